package memory_test

import (
	"slices"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestRestOfAll: a change of a table has an effect when every process has said that it rests behind
// it, and what is left of those that are gone is recovered. Processes that have registered since
// are not waited for, and tables that are made are no such change.
func TestRestOfAll(t *testing.T) {
	b := newSharedBed(t, 2, 20, 1)
	b.fabric.clock = new(int64)
	one, _ := b.open() // whose registration does not end
	two, _ := b.open()
	dead, _ := b.join(10)
	for _, s := range []*memory.Space{one, two, dead} {
		if _, _, due := s.RestDue(); due {
			t.Errorf("process %d is to rest, and nothing has changed", s.Process())
		}
	}
	var told []layout.Table
	two.OnTables(func(t layout.Table) { told = append(told, t) })
	table := must(one.CreateTable("words", []byte("x")))(t)
	left := must(dead.NewCoordinatorUntil(1000))(t)
	check(t, two.Follow())
	if _, _, due := two.RestDue(); due || len(told) > 0 {
		t.Errorf("a table was made: a process is to rest %v, and told %v", due, told)
	}
	waits := func(what string, n memory.Notice, processes, coordinators []uint32) {
		t.Helper()
		r := must(one.Unrested(n))(t)
		if !slices.Equal(r.Processes, processes) || !slices.Equal(r.Coordinators, coordinators) {
			t.Errorf("%s: it waits for %v", what, r)
		}
	}
	rest := func(s *memory.Space) {
		t.Helper()
		check(t, s.Follow())
		rev, below, due := s.RestDue()
		if !due || below != s.NextCoordinator() {
			t.Errorf("process %d is to rest: %v, below %d of %d", s.Process(), due, below, s.NextCoordinator())
		}
		check(t, s.Rested(rev))
		if _, _, due := s.RestDue(); due {
			t.Errorf("process %d is to rest once more", s.Process())
		}
	}

	check(t, one.ChangeTables(memory.TableChange{ID: table.ID, Drop: true}))
	n := must(one.Notice())(t)
	late, _ := b.open()
	check(t, two.Renew(0))
	check(t, dead.Renew(10))
	waits("no process rests", n, []uint32{one.Process(), two.Process(), dead.Process()}, nil)
	rest(one)
	check(t, two.Follow())
	if len(told) != 1 || told[0].ID != table.ID || told[0].State != layout.TableDropping {
		t.Errorf("it was told %+v", told)
	}
	check(t, two.Listen())
	waits("one knows, and has not said that it rests", n, []uint32{two.Process(), dead.Process()}, nil)
	rest(two)
	waits("one of three does not rest", n, []uint32{dead.Process()}, nil)
	*b.fabric.clock = 50
	waits("its registration has expired, and is not ended", n, []uint32{dead.Process()}, nil)
	must(one.TakeOver(50))(t)
	waits("what it has left is not recovered", n, nil, []uint32{left.ID})
	claim := must(one.Claim(memory.ClaimOptions{By: one.Process(), Now: 50, Until: 500}, left.ID))(t)
	waits("it is being recovered", n, nil, []uint32{left.ID})
	check(t, claim.Forget())
	waits("all rest", n, nil, nil)

	// A process asks all to rest: nothing else has changed.
	n = must(one.Ask())(t)
	waits("asked", n, []uint32{one.Process(), two.Process(), late.Process()}, nil)
	for _, s := range []*memory.Space{two, late, one} {
		rest(s)
	}
	check(t, one.Listen())
	waits("asked, and all rest", n, nil, nil)

	// Another change, which the process that waits learns of from others: none is taken for it that
	// rests behind the one before.
	check(t, two.ChangeTables(memory.TableChange{ID: table.ID, Options: []byte("y")}))
	n = must(one.Notice())(t)
	waits("another change", n, []uint32{one.Process(), two.Process(), late.Process()}, nil)
	for _, s := range []*memory.Space{two, late, one} {
		rest(s)
	}
	for _, s := range []*memory.Space{two, late} { // it may know of the change by a later revision than they did
		check(t, s.Listen())
	}
	waits("all rest once more", n, nil, nil)
}

// TestRestUnsure: a process whose change was made, though the catalog has failed to say so,
// waits for all others.
func TestRestUnsure(t *testing.T) {
	for _, lie := range []bool{false, true} {
		b := newSharedBed(t, 2, 20, 1)
		one, _ := b.open()
		two, _ := b.open()
		table := must(one.CreateTable("words", nil))(t)
		check(t, two.Follow())
		check(t, two.Listen())
		b.cat.fail, b.cat.lie = lie, lie
		b.cat.failed = func() { // and another process changes the catalog before it can be asked
			b.cat.fail = false
			must(two.CreateTable("more", nil))(t)
		}
		err := one.ChangeTables(memory.TableChange{ID: table.ID, Drop: true})
		b.cat.fail, b.cat.lie = false, false
		check(t, err) // it has asked what became of the change
		n := must(one.Notice())(t)
		if r := must(one.Unrested(n))(t); !slices.Equal(r.Processes, []uint32{one.Process(), two.Process()}) {
			t.Errorf("lie %v: it waits for %v", lie, r)
		}
	}
}

// TestAskTakenBack: others have learnt of a request of which the process that made it was told
// that it had failed. They rest once more for the next one, as of everything that they had
// begun before that.
func TestAskTakenBack(t *testing.T) {
	b := newSharedBed(t, 2, 20, 1)
	one, _ := b.open()
	two, _ := b.open()
	must(one.Ask())(t)
	rest := func() {
		t.Helper()
		check(t, two.Follow())
		rev, _, due := two.RestDue()
		if !due {
			t.Error("it is not to rest")
		}
		check(t, two.Rested(rev))
	}
	rest()
	b.cat.fail, b.cat.lie, b.cat.deaf = true, true, true
	if _, err := one.Ask(); err == nil {
		t.Fatal("it was not told that the request had failed")
	}
	b.cat.fail, b.cat.lie, b.cat.deaf = false, false, false
	rest()
	n := must(one.Ask())(t)
	if r := must(one.Unrested(n))(t); !slices.Equal(r.Processes, []uint32{one.Process(), two.Process()}) {
		t.Errorf("it waits for %v", r)
	}
	rest()
}

// TestDropOrBackup: a process that drops tables, and one that makes a backup, do not go together.
func TestDropOrBackup(t *testing.T) {
	b := newSharedBed(t, 2, 20, 1)
	one, _ := b.open()
	two, _ := b.open()
	cut := func(s *memory.Space) (*memory.Cut, error) {
		c, change, err := s.BeginCut()
		check(t, err)
		err = s.AdvanceEpoch(change)
		return c, err
	}
	if !one.AcquireRight(layout.RightDrop) {
		t.Fatal("there is no right")
	}
	c, err := cut(two)
	if err == nil {
		t.Error("a backup begins beside a drop")
	}
	_ = two.EndCut(c)
	check(t, two.Follow())
	if two.AcquireRight(layout.RightDrop) {
		t.Error("two processes drop tables")
	}
	one.ReleaseRight(layout.RightDrop)
	if c, err = cut(two); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*memory.Space{one, two} {
		if s.AcquireRight(layout.RightDrop) {
			t.Error("a drop begins beside a backup")
			s.ReleaseRight(layout.RightDrop)
		}
	}
	check(t, two.EndCut(c))
	if !one.AcquireRight(layout.RightDrop) {
		t.Error("there is no right behind the backup")
	}
	one.ReleaseRight(layout.RightDrop)
}
