package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/catalog/catalogtest"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Several spaces on one catalog and one set of blades: what one of them has changed, the others
// take over.

// agree fails the test unless all spaces say what the catalog says, once they have followed.
func agree(t *testing.T, b *bed, spaces ...*memory.Space) *layout.Layout {
	t.Helper()
	l := must(layout.LoadLayout(b.cat))(t)
	for i, s := range spaces {
		check(t, s.Follow())
		if !reflect.DeepEqual(l.Entries(), s.Layout().Entries()) {
			t.Fatalf("the catalog says\n%+v, and the layout of space %d is\n%+v", l, i, s.Layout())
		}
		if v := s.View(); v.Epoch != l.Epoch || v.Segments() != len(l.Segments) {
			t.Fatalf("space %d: a view of epoch %d with %d segments, of %d with %d",
				i, v.Epoch, v.Segments(), l.Epoch, len(l.Segments))
		}
		for blade := range rdma.BladeID(len(l.Blades)) {
			if l.Blades[blade].State == layout.BladeUp && s.View().Key(blade) != b.key(blade) {
				t.Fatalf("space %d: key %d of blade %d, whose oldest is %d",
					i, s.View().Key(blade), blade, b.key(blade))
			}
		}
		for _, c := range l.Coordinators {
			if want := map[bool]memory.LeaseState{
				false: memory.LeaseLive, true: memory.LeaseClaimed,
			}[c.Recovering]; s.Lease(c.ID, 0) != want {
				t.Fatalf("space %d: the lease of coordinator %d is %v, not %v", i, c.ID, s.Lease(c.ID, 0), want)
			}
		}
	}
	return l
}

// TestChangedByOthers makes each change of the catalog in a space that does not know yet what
// another one has changed.
func TestChangedByOthers(t *testing.T) {
	b := newBed(t, 3, 40, 1)
	first, c := b.open()
	second, _ := b.open()
	a := b.allocator(first, c)
	n := 0
	other := func() { // changes tables, coordinators, segments, and the epoch
		n++
		must(second.CreateTable(fmt.Sprintf("other%d", n), nil))(t)
		must(second.NewCoordinator())(t)
		check(t, second.AdvanceEpoch(nil))
	}
	step := func(name string, fn func() error) {
		t.Helper()
		other()
		if err := fn(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		agree(t, b, first, second)
	}
	var table layout.Table
	var one, two memory.Coordinator
	var root layout.Addr
	step("create a table", func() (err error) { table, err = first.CreateTable("mine", nil); return err })
	step("register", func() (err error) { one, err = first.NewCoordinator(); return err })
	step("register once more", func() (err error) { two, err = first.NewCoordinator(); return err })
	step("grow logs", func() error { _, err := first.GrowLogs(one.ID); return ignore(err, layout.ErrLayout) })
	step("allocate an extent", func() (err error) { root, err = first.AllocExtent(c, 100); return err })
	step("set a root", func() error { return first.SetTableRoot(table.ID, root) })
	step("allocate blocks", func() error { _, err := a.Alloc(c, 3); return err })
	step("allocate others", func() error { _, err := a.Alloc(c, 20); return err })
	step("renew", func() error { return first.Renew(1000, one.ID, two.ID) })
	step("advance", func() error { return first.AdvanceEpoch(nil) })
	step("checkpoint", func() error { return first.SetCheckpoint(1) })
	step("no checkpoint", func() error { return first.SetCheckpoint(0) })
	step("close", func() error { return first.CloseCoordinatorOn(c, one.ID) })
	var claim *memory.Claim
	step("claim", func() (err error) {
		claim, err = first.Claim(memory.ClaimOptions{Now: 1, Until: 100}, two.ID)
		return err
	})
	if err := claim.Renew(200); !errors.Is(err, rdma.ErrStaleKey) && err != nil {
		t.Fatal(err)
	}
	step("claim again", func() (err error) {
		claim, err = first.Claim(memory.ClaimOptions{Now: 1, Until: 100, Again: claim}, two.ID)
		return err
	})
	must(second.CreateTable("more", nil))(t) // of the same epoch
	check(t, claim.Renew(300))
	must(second.CreateTable("and more", nil))(t)
	check(t, claim.Decide([]layout.Verdict{{Coordinator: two.ID, Last: 2, Committed: []uint64{2}}}))
	must(second.CreateTable("and yet more", nil))(t)
	check(t, claim.Forget())
	if l := agree(t, b, first, second); !l.Unswept {
		t.Error("nothing is to be swept")
	}
	generation, ok := second.Unswept()
	if !ok {
		t.Error("the other space has nothing to sweep")
	}
	step("answer", func() error { return first.CompleteVerdict([]uint64{1}, two.ID) })
	check(t, second.Follow())
	if again, _ := second.Unswept(); again == generation {
		t.Log("no coordinator has gone since")
	}
	step("drop the table", func() error { return first.ChangeTables(memory.TableChange{ID: table.ID, Drop: true}) })
	step("forget the table", func() error { return first.ForgetTable(table.ID) })
	generation, _ = first.Unswept()
	step("swept", func() error { return first.Swept(generation) })
	step("fastened", func() error { return first.LeaksFreed(generation) })
	step("take a blade down", func() error {
		return first.AdvanceEpoch(func(l *layout.Layout) error { l.TakeDown(2); return nil })
	})
	step("take it in again", func() error { return first.Admit(c, 2, nil) })
	check(t, a.Close(c))
	other()
	check(t, first.Close(c))
	if err := first.Follow(); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func ignore(err, but error) error {
	if errors.Is(err, but) {
		return nil
	}
	return err
}

// TestOthersMadeItImpossible: a change that does not apply any more is an error of its own, and
// the space goes on.
func TestOthersMadeItImpossible(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	first, c := b.open()
	second, _ := b.open()
	x := must(first.NewCoordinatorUntil(10))(t)
	check(t, second.Follow())
	must(second.Claim(memory.ClaimOptions{Now: 20, Until: 100}, x.ID))(t)
	if err := first.CloseCoordinatorOn(c, x.ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("close what another process recovers: %v", err)
	}
	y := must(first.NewCoordinatorUntil(10))(t)
	check(t, second.Follow())
	claim := must(second.Claim(memory.ClaimOptions{Now: 20, Until: 100}, y.ID))(t)
	if _, err := first.Claim(memory.ClaimOptions{Now: 30}, y.ID); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("claim what another process recovers: %v", err)
	}
	check(t, claim.Forget())
	if _, err := first.Claim(memory.ClaimOptions{Now: 30}, y.ID); !errors.Is(err, memory.ErrNoCoordinator) {
		t.Errorf("claim what another process has recovered: %v", err)
	}
	must(second.CreateTable("t", nil))(t)
	tab := must(second.Tables())(t)[0]
	check(t, second.SetTableRoot(tab.ID, must(second.AllocExtent(b.thread().Plain(), 64))(t)))
	if _, err := first.CreateTable("t", nil); !errors.Is(err, memory.ErrTableExists) {
		t.Errorf("create what another process has created: %v", err)
	}
	must(first.CreateTable("u", nil))(t)
	agree(t, b, first, second)
}

// TestClaimOfAnotherProcess: two processes claim a coordinator one after the other, both in
// the name of no coordinator. The first claim does not become valid again, whatever the
// first process does.
func TestClaimOfAnotherProcess(t *testing.T) {
	b := newBed(t, 2, 8, 1)
	first, _ := b.open()
	second, _ := b.open()
	x := must(first.NewCoordinatorUntil(10))(t)
	was := must(first.Claim(memory.ClaimOptions{Now: 20, Until: 100}, x.ID))(t)
	check(t, second.Follow())
	is := must(second.Claim(memory.ClaimOptions{Now: 200, Until: 300}, x.ID))(t)
	check(t, first.Follow())
	if err := was.Forget(); !errors.Is(err, memory.ErrClaimed) {
		t.Errorf("forget under the claim before: %v", err)
	}
	if _, err := first.Claim(memory.ClaimOptions{Now: 210, Until: 300, Again: was, Stay: true}, x.ID); !errors.Is(err,
		memory.ErrClaimed) {
		t.Errorf("claim again what another process has claimed: %v", err)
	}
	was.Abandon(1)
	if s := first.Lease(x.ID, 210); s != memory.LeaseClaimed {
		t.Errorf("given up under the claim before, it is %v", s)
	}
	check(t, is.Forget())
	agree(t, b, first, second)
}

// TestEpochOfAnotherProcess: a process dies between its change of the catalog and any of its calls
// to blades. Another one that follows begins the epoch: keys of the one before open nothing, and
// the view is that of the epoch.
func TestEpochOfAnotherProcess(t *testing.T) {
	const blades = 3
	for told := range blades {
		for _, how := range []string{"follow", "change", "look"} {
			b := newBed(t, blades, 4, 1)
			first, _ := b.open()
			second, _ := b.open()
			old := second.View()
			asked := 0
			b.fabric.revoking = func(rdma.BladeID) error {
				if asked++; asked > told {
					return errStopped
				}
				return nil
			}
			if err := first.AdvanceEpoch(nil); !errors.Is(err, errStopped) {
				t.Fatal(err)
			}
			b.fabric.revoking = nil
			switch how {
			case "follow":
				check(t, second.Follow())
			case "change":
				must(second.CreateTable("t", nil))(t)
			case "look":
				must(second.NewCoordinator())(t)
				must(second.Coordinators())(t)
			}
			v := second.View()
			if v.Epoch != old.Epoch+1 {
				t.Errorf("%s: epoch %d after %d", how, v.Epoch, old.Epoch)
			}
			for blade := range rdma.BladeID(blades) {
				if b.opens(blade, old.Key(blade)) || !b.opens(blade, v.Key(blade)) || v.Key(blade) != b.key(blade) {
					t.Errorf("%s: blade %d is not of epoch %d", how, blade, v.Epoch)
				}
			}
		}
	}
}

// TestLeaseDuringEpoch: while blades are asked for memory and keys, no lock is held: others look at
// the layout, and leases are renewed.
func TestLeaseDuringEpoch(t *testing.T) {
	b := newBed(t, 2, 40, 1)
	s, c := b.open()
	x := must(s.NewCoordinatorUntil(10))(t)
	until, asked := int64(10), map[string]int{}
	ask := func(what string) {
		asked[what]++
		s.Layout()
		s.Room()
		until++
		check(t, s.Renew(until, x.ID))
		if s.Lease(x.ID, until) == memory.LeaseExpired {
			t.Errorf("%s: the lease was not renewed", what)
		}
	}
	b.fabric.Fabric = &asking{b.inner, ask}
	b.fabric.granting = func(rdma.BladeID) error { ask("Grant"); return nil }
	b.fabric.revoking = func(rdma.BladeID) error { ask("Revoke"); return nil }
	check(t, s.AdvanceEpoch(nil))
	a := b.allocator(s, c)
	must(a.Alloc(c, 9))(t)
	must(s.AllocExtent(c, 200))(t)
	must(s.NewCoordinator())(t)
	_, err := s.GrowLogs(x.ID)
	check(t, ignore(err, layout.ErrLayout))
	s.Restarted(1)
	must(s.Claim(memory.ClaimOptions{Change: s.DeclareDead(1)}, slices.Collect(ids(s))...))(t)
	for _, what := range []string{"Grant", "Revoke", "Provision", "Blades"} {
		if asked[what] == 0 {
			t.Errorf("no blade was asked for %s: this test tests nothing", what)
		}
	}
	b.fabric.Fabric, b.fabric.granting, b.fabric.revoking = b.inner, nil, nil
	check(t, a.Close(c))
}

func ids(s *memory.Space) func(func(uint32) bool) {
	return func(yield func(uint32) bool) {
		for _, c := range s.Layout().Coordinators {
			if !yield(c.ID) {
				return
			}
		}
	}
}

// asking is told when a blade is asked.
type asking struct {
	rdma.Fabric
	ask func(what string)
}

func (a *asking) Provision(b rdma.BladeID, off, n uint64) error {
	a.ask("Provision")
	return a.Fabric.Provision(b, off, n)
}

func (a *asking) Blades() []rdma.BladeInfo {
	a.ask("Blades")
	return a.Fabric.Blades()
}

// TestMissingHere: an address in a segment that another process has added is no damage.
func TestMissingHere(t *testing.T) {
	b := newBed(t, 2, 20, 1)
	first, _ := b.open()
	second, c := b.open()
	old := first.View()
	x := must(second.AllocExtent(c, 64))(t)
	if err := first.Missing(old, x); !errors.Is(err, rdma.ErrStaleKey) {
		t.Errorf("%v", err)
	}
	if !first.View().Valid(x) {
		t.Error("the segment is not in the view")
	}
}

// TestMissingUnheard: as long as a process cannot ask the catalog whether another one has added a
// segment, nothing is called damaged.
func TestMissingUnheard(t *testing.T) {
	b := newSharedBed(t, 2, 20, 1)
	first, c := b.open()
	cat := &catalogtest.Unheard{Catalog: b.cat}
	second := must(memory.Open(b.thread().Plain(), b.fabric, cat, b.opts))(t)
	old := second.View()
	x := must(first.AllocExtent(c, 64))(t)
	cat.Away.Store(true)
	if err := second.Missing(old, x); !errors.Is(err, memory.ErrAway) {
		t.Errorf("the catalog does not answer: %v", err)
	}
	cat.Away.Store(false)
	if err := second.Missing(old, x); !errors.Is(err, rdma.ErrStaleKey) || !second.View().Valid(x) {
		t.Errorf("the catalog answers: %v", err)
	}
	if err := second.Missing(second.View(), layout.MakeAddr(1000, 0)); err != nil {
		t.Errorf("an address in no segment: %v", err)
	}
}

// TestUnheardCoordinator: while a process cannot ask the catalog, a coordinator that it does not
// know has its locks.
func TestUnheardCoordinator(t *testing.T) {
	const hour = 3_600_000_000_000
	b := newSharedBed(t, 2, 20, 1)
	now := int64(1000)
	b.fabric.clock, b.opts.Until = &now, now+hour
	first, c := b.open()
	check(t, first.EndAlone())
	cat := &catalogtest.Unheard{Catalog: b.cat}
	second := must(memory.Open(b.thread().Plain(), b.fabric, cat, b.opts))(t)
	gone := must(first.NewCoordinator())(t)
	check(t, first.CloseCoordinatorOn(c, gone.ID))
	x := must(first.NewCoordinator())(t)
	cat.Away.Store(true)
	if s := second.Lease(x.ID, 0); !second.Registered(x.ID) || s != memory.LeaseUnknown {
		t.Errorf("the catalog does not answer: registered %v, its lease is %v", second.Registered(x.ID), s)
	}
	cat.Away.Store(false)
	if s := second.Lease(x.ID, 0); !second.Registered(x.ID) || s != memory.LeaseLive {
		t.Errorf("the catalog answers: registered %v, its lease is %v", second.Registered(x.ID), s)
	}
	if s := second.Lease(gone.ID, 0); second.Registered(gone.ID) || s != memory.LeaseGone {
		t.Errorf("one that was closed: registered %v, its lease is %v", second.Registered(gone.ID), s)
	}
	y := must(first.NewCoordinatorUntil(now + hour))(t)
	check(t, second.Listen())
	cat.Away.Store(true)
	check(t, first.Renew(now+hour, y.ID))
	if s, ids := second.Lease(y.ID, now+hour+hour/2), second.Expired(now+hour+hour/2); s != memory.LeaseUnknown ||
		len(ids) > 0 {
		t.Errorf("the catalog does not answer whether its process is alive: %v, expired %v", s, ids)
	}
	cat.Away.Store(false)
	now += hour / 2
	if s, ids := second.Lease(y.ID, now+hour), second.Expired(now+hour); s != memory.LeaseLive || len(ids) > 0 {
		t.Errorf("its process is alive: %v, expired %v", s, ids)
	}
	if s, ids := second.Lease(y.ID, now+hour+1), second.Expired(now+hour+1); s != memory.LeaseExpired ||
		!slices.Contains(ids, y.ID) {
		t.Errorf("its process has not said so for its term: %v, expired %v", s, ids)
	}
	check(t, first.CloseCoordinatorOn(c, y.ID))
	if s := second.Lease(y.ID+1, 0); second.Registered(y.ID+1) || s != memory.LeaseGone {
		t.Errorf("one that there is not: registered %v, its lease is %v", second.Registered(y.ID+1), s)
	}
}

// TestSeveralAtRandom has three spaces change one catalog that fails, lies, is late and deaf. What
// they were told holds, no number is given twice, and in the end all say what the catalog says.
func TestSeveralAtRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 12))
		b := newBed(t, 3, 200, 1)
		flaws := make([]*cat, 3)
		var spaces []*memory.Space
		var coros []*rdma.Coro
		mine := make([]map[uint32]bool, 3)
		shared := &catalog.Mem{}
		for i := range flaws {
			flaws[i] = &cat{Catalog: shared}
			c := b.thread().Plain()
			spaces = append(spaces, must(memory.Open(c, b.fabric, flaws[i], b.opts))(t))
			coros, mine[i] = append(coros, c), map[uint32]bool{}
		}
		b.cat.Catalog = shared
		given, tables := map[uint32]bool{}, map[string]bool{}
		failed := 0
		for n := range 80 {
			i := r.IntN(3)
			s, f := spaces[i], flaws[i]
			f.fail, f.lie = r.IntN(4) == 0, r.IntN(2) == 0
			f.deaf = f.fail && r.IntN(2) == 0
			if f.late = r.IntN(2) == 0; f.slow == nil {
				f.behind = r.IntN(6)
			}
			var err error
			var what string
			switch r.IntN(8) {
			case 0:
				what = "table"
				name := fmt.Sprintf("t%d", n)
				if _, err = s.CreateTable(name, nil); err == nil {
					tables[name] = true
				}
			case 1:
				what = "coordinator"
				var x memory.Coordinator
				if x, err = s.NewCoordinatorUntil(int64(1 + n)); err == nil {
					if given[x.ID] {
						t.Fatalf("seed %d, step %d: coordinator %d was given twice", seed, n, x.ID)
					}
					given[x.ID], mine[i][x.ID] = true, true
				}
			case 2:
				what = "epoch"
				err = s.AdvanceEpoch(nil)
			case 3:
				what = "renew"
				var all []uint32
				for id := range mine[i] {
					all = append(all, id)
				}
				err = s.Renew(int64(100+n), all...)
			case 4:
				what = "close"
				for id := range mine[i] {
					if err = s.CloseCoordinatorOn(coros[i], id); err == nil {
						delete(mine[i], id)
					}
					break
				}
			case 5:
				what = "extent"
				_, err = s.AllocExtent(coros[i], testSegment/2)
			case 6:
				what = "claim"
				for id := range mine[(i+1)%3] {
					var c *memory.Claim
					if c, err = s.Claim(memory.ClaimOptions{Steal: true, Now: int64(n), Until: int64(n + 5)},
						id); err == nil {
						err = c.Forget()
					}
					if err == nil || errors.Is(err, memory.ErrNoCoordinator) {
						delete(mine[(i+1)%3], id)
					}
					break
				}
			case 7:
				what = "follow"
				err = s.Follow()
			}
			switch {
			case err == nil:
			case f.fail || f.deaf:
				failed++
			case errors.Is(err, memory.ErrNoCoordinator), errors.Is(err, memory.ErrClaimed),
				errors.Is(err, rdma.ErrStaleKey):
			default:
				t.Fatalf("seed %d, step %d: space %d: %s: %v", seed, n, i, what, err)
			}
		}
		for i := range flaws {
			flaws[i].fail, flaws[i].deaf, flaws[i].slow = false, false, nil
		}
		for i, s := range spaces { // what is in doubt is settled
			must(s.CreateTable(fmt.Sprintf("last%d", i), nil))(t)
		}
		l := agree(t, b, spaces...)
		for name := range tables {
			if !slices.ContainsFunc(l.Tables, func(x layout.Table) bool { return x.Name == name }) {
				t.Errorf("seed %d: table %q is gone", seed, name)
			}
		}
		if failed == 0 {
			t.Errorf("seed %d: nothing failed", seed)
		}
		b.dropThreads()
	}
}

// postponed is a catalog whose next change fails, and is made later.
type postponed struct {
	layout.Catalog
	next func() // makes the change; nil: the next one is to fail
}

func (p *postponed) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if p.next == nil {
		changes = slices.Clone(changes)
		p.next = func() { _, _ = p.Catalog.Apply(rev, changes) }
		return 0, errStopped
	}
	return p.Catalog.Apply(rev, changes)
}

// TestPostponedChange: a change that has failed, and of which the catalog says that it was not
// made, is not made later, though nothing else is changed in between.
func TestPostponedChange(t *testing.T) {
	b := newBed(t, 2, 4, 1)
	p := &postponed{Catalog: b.cat.Catalog, next: func() {}}
	s := must(memory.Open(b.thread().Plain(), b.fabric, p, b.opts))(t)
	p.next = nil
	if _, err := s.CreateTable("t", nil); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	p.next()
	if l := must(layout.LoadLayout(p))(t); len(l.Tables) > 0 {
		t.Error("the table is there, though no caller has got it")
	}
	must(s.CreateTable("t", nil))(t)
}

// TestRegisteredElsewhere: what another process has registered, and renewed, is known
// when it is asked for.
func TestRegisteredElsewhere(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	now := int64(1)
	b.fabric.clock, b.opts.Until = &now, now+10
	first, c := b.open()
	second, _ := b.join(0)
	x := must(first.NewCoordinatorUntil(now + 10))(t)
	if !second.Registered(x.ID) {
		t.Error("it is not registered")
	}
	y := must(first.NewCoordinatorUntil(now + 10))(t)
	if s := second.Lease(y.ID, 5); s != memory.LeaseLive {
		t.Errorf("its lease is %v", s)
	}
	for range 3 {
		now += 10
		check(t, first.Renew(now+10, x.ID, y.ID))
		if s, ids := second.Lease(x.ID, now+5), second.Expired(now+5); s != memory.LeaseLive || len(ids) > 0 {
			t.Errorf("its lease is %v; expired: %v", s, ids)
		}
	}
	check(t, first.CloseCoordinatorOn(c, x.ID))
	if ids := second.Expired(now + 11); len(ids) != 1 || ids[0] != y.ID {
		t.Errorf("expired: %v", ids)
	}
	// Its process is alive, and nobody stands for it there.
	now += 10
	check(t, first.Renew(now+10))
	if ids := second.Expired(now + 5); len(ids) > 0 {
		t.Errorf("expired, though its process is alive: %v", ids)
	}
	now++
	check(t, first.Renew(now+10))
	if ids := second.Expired(now); len(ids) > 0 {
		t.Errorf("expired, as far as the catalog has said: %v", ids)
	}
	check(t, second.Follow())
	if ids := second.Expired(now); len(ids) != 1 || ids[0] != y.ID {
		t.Errorf("a coordinator that was given up: %v", ids)
	}
	if second.Registered(1<<20) || second.Lease(1<<20, 0) != memory.LeaseGone {
		t.Error("a coordinator that never was")
	}
}

// TestOthersWentOn: a change of which a process was told that it has failed stays if another
// process has made the same, has gone on from it, or may have. What no other one can have gone on
// from is taken back.
func TestOthersWentOn(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	sound := b.cat
	ill := &cat{Catalog: sound}
	b.cat = ill
	first, c := b.join(0)
	b.cat = sound
	second, _ := b.join(0)
	fails := func(made bool, change func() error) {
		t.Helper()
		ill.fail, ill.lie, ill.deaf = true, made, true
		if err := change(); !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		ill.fail, ill.lie, ill.deaf = false, false, false
	}

	// Another process makes the same change.
	x := must(first.NewCoordinatorUntil(10))(t)
	verdict := layout.Verdict{Coordinator: x.ID, Last: 7, Committed: []uint64{7}}
	was := must(first.Claim(memory.ClaimOptions{Now: 20, Until: 100}, x.ID))(t)
	fails(false, func() error { return was.Decide([]layout.Verdict{verdict}) })
	check(t, second.Follow())
	is := must(second.Claim(memory.ClaimOptions{Now: 200, Until: 300}, x.ID))(t)
	check(t, is.Decide([]layout.Verdict{verdict}))
	check(t, is.Forget())
	must(first.CreateTable("t", nil))(t)
	if v, ok := first.Verdict(x.ID); !ok || !reflect.DeepEqual(v, verdict) {
		t.Errorf("the verdict of another process is %+v, %v", v, ok)
	}
	agree(t, b, first, second)

	// The catalog does not tell whether another process has gone on from it.
	if !first.AcquireRight(1) {
		t.Fatal("no right to make the table")
	}
	root := must(first.AllocExtent(c, 256))(t)
	fails(true, func() error { return first.SetTableRoot(1, root) })
	check(t, second.Follow())
	must(first.CreateTable("u", nil))(t)
	if l := agree(t, b, first, second); l.Tables[0].Root != root {
		t.Errorf("another process has found the table at %v, and it is at %v", root, l.Tables[0].Root)
	}

	// Another process has changed something since.
	fails(true, func() error { _, err := first.NewCoordinatorUntil(500); return err })
	must(second.CreateTable("v", nil))(t)
	must(first.CreateTable("w", nil))(t)
	n := len(agree(t, b, first, second).Coordinators)

	// No other process has.
	fails(true, func() error { _, err := first.NewCoordinatorUntil(500); return err })
	must(first.CreateTable("x", nil))(t)
	if l := agree(t, b, first, second); len(l.Coordinators) != n {
		t.Errorf("%d coordinators instead of %d", len(l.Coordinators), n)
	}
}

// TestAskedWithoutLock: a catalog that is elsewhere is asked whether it has changed. Whoever needs
// the lock of the space does not wait for its answer.
func TestAskedWithoutLock(t *testing.T) {
	b := newSharedBed(t, 2, 8, 1)
	s, _ := b.open()
	asked := 0
	b.cat.awaited = func() {
		asked++
		if s.Locked() {
			t.Error("the lock is held while the catalog is asked")
		}
	}
	for what, fn := range map[string]func() error{
		"following": s.Follow,
		"a change":  func() error { return s.CloseCoordinator(1 << 20) },
	} {
		before := asked
		if err := fn(); err != nil && !errors.Is(err, memory.ErrNoCoordinator) {
			t.Errorf("%s: %v", what, err)
		}
		if asked == before {
			t.Errorf("%s does not ask the catalog", what)
		}
	}
}

// hangingCatalog does not answer of who is alive until it is released.
type hangingCatalog struct {
	layout.Catalog
	asked, released chan struct{}
}

func (c *hangingCatalog) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	if b.Member != 0 {
		c.asked <- struct{}{}
		<-c.released
	}
	return c.Catalog.KeepAlive(b)
}

// TestHangingRenewal: the catalog does not answer that it has heard that a process is alive. That
// holds up nothing else in the process.
func TestHangingRenewal(t *testing.T) {
	b := newSharedBed(t, 2, 20, 1)
	now := int64(1000)
	b.fabric.clock, b.opts.Until = &now, now+100
	cat := &hangingCatalog{Catalog: b.cat, asked: make(chan struct{}), released: make(chan struct{})}
	c := b.thread().Plain()
	s := must(memory.Open(c, b.fabric, cat, b.opts))(t)
	check(t, s.EndAlone())
	x := must(s.NewCoordinatorUntil(now + 100))(t)
	renewed := make(chan error)
	go func() { renewed <- s.Renew(now+150, x.ID) }()
	<-cat.asked
	if state := s.Lease(x.ID, now+150); state != memory.LeaseLive {
		t.Errorf("the lease of the session is %v", state)
	}
	y := must(s.NewCoordinator())(t)
	must(s.CreateTable("t", nil))(t)
	check(t, s.CloseCoordinatorOn(c, y.ID))
	close(cat.released)
	check(t, <-renewed)
	check(t, s.CloseCoordinatorOn(c, x.ID))
}
