package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"txnode/index"
	"txnode/rdma"
)

// RunNodes is the suite of indexes of nodes.
func RunNodes(t *testing.T, s NodeSubject) {
	t.Run("Model", func(t *testing.T) { nodesModel(t, s) })
	t.Run("Churn", func(t *testing.T) { nodesChurn(t, s) })
	t.Run("Evidence", func(t *testing.T) { nodesEvidence(t, s) })
	t.Run("Schedules", func(t *testing.T) { nodesSchedules(t, s) })
	t.Run("Stops", func(t *testing.T) { nodesStops(t, s) })
	t.Run("Allocations", func(t *testing.T) { nodesAllocations(t, s) })
}

// nodesModel does random operations by several handles and compares with a map. What is owed is
// done late, or never. Handles take nodes for what they were at any time before, whatever their
// blocks hold by now.
func nodesModel(t *testing.T, s NodeSubject) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, k0 := startNodes(t, s, MemoryOptions{Copies: 1 + int(seed%3), SegmentSize: 64 << 10, Segments: 256})
		clients := []*NodeClient{k0, k0.another(t, m.Thread(t).Plain()), k0.another(t, m.Thread(t).Plain())}
		want := map[int]string{}
		for step := range 1500 {
			k, i := clients[r.IntN(len(clients))], r.IntN(120)
			v, there := want[i]
			var err, expected error
			switch n := r.IntN(12); {
			case n < 4 && step%500 < 350 || n < 2:
				if _, err = k.Insert(name(i), []byte(fmt.Sprint(step))); there {
					expected = ErrExists
				} else {
					want[i] = fmt.Sprint(step)
				}
			case n < 6:
				if err = k.Delete(name(i)); !there {
					expected = ErrNotFound
				}
				delete(want, i)
			case n < 7:
				if err = k.Move(name(i)); !there {
					expected = ErrNotFound
				}
			case n < 8 && seed%2 == 0:
				_, err = k.Settle()
			case n < 9:
				old := *k.past
				k.Index.Published(old[r.IntN(len(old))])
			case n < 10:
				from, to := index.Bound{Key: name(r.IntN(120)), After: r.IntN(2) == 0},
					index.Bound{Key: name(r.IntN(120)), After: r.IntN(2) == 0}
				err = compareScan(k, want, from, to, r.IntN(2) == 0, 1+r.IntN(5))
			default:
				var got []byte
				if got, err = k.Get(name(i)); (got != nil) != there || string(got) != v {
					t.Fatalf("key %d is %q, should be %q", i, got, v)
				}
				if same, e := k.Unchanged(); e != nil || !same {
					t.Fatalf("a lookup of key %d, repeated at once, has changed: %v", i, e)
				}
			}
			if !errors.Is(err, expected) {
				t.Fatalf("seed %d, step %d, key %d, there %v: %v", seed, step, i, there, err)
			}
		}
		k0.verify(t, len(want))
		for range 3 {
			for _, k := range clients {
				k.settleAll(t)
			}
		}
		k0.verify(t, len(want))
		for _, k := range append(clients, k0.another(t, m.Thread(t).Plain())) {
			for i := range 120 {
				if got, err := k.Get(name(i)); err != nil || string(got) != want[i] {
					t.Fatalf("key %d is %q, should be %q: %v", i, got, want[i], err)
				}
			}
			for _, down := range []bool{false, true} {
				if err := compareScan(k, want, index.Bound{}, index.Bound{End: true}, down, math.MaxInt); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// compareScan compares the range between two bounds, read a few entries at a time, with a map.
func compareScan(k *NodeClient, want map[int]string, from, to index.Bound, down bool, most int) error {
	within := func(key []byte) bool {
		f, u := bytes.Compare(key, from.Key), bytes.Compare(key, to.Key)
		return (f > 0 || f == 0 && !from.After) && (to.End || u < 0 || u == 0 && to.After)
	}
	left := map[string]bool{}
	for i := range want {
		if within(name(i)) {
			left[string(name(i))] = true
		}
	}
	if d := bytes.Compare(from.Key, to.Key); !to.End && (d > 0 || d == 0 && (from.After || !to.After)) {
		return nil
	}
	p := index.Place{Bound: from}
	if down {
		p = index.Place{Bound: to, Below: true}
	}
	var last []byte
	for more := true; more; {
		n, _, err := k.seek(p)
		if err != nil {
			return err
		}
		lower, upper := p.Bound, to
		if down {
			lower, upper = from, p.Bound
		}
		var list []index.Candidate
		list, p, more = k.Index.Entries(nil, n.Node, lower, upper, down, most)
		for _, x := range list {
			img, err := k.read(x.Addr, x.Class)
			if err != nil {
				return err
			}
			key := img.Key()
			if d := bytes.Compare(last, key); last != nil && (d == 0 || d > 0 != down) || !left[string(key)] {
				return fmt.Errorf("a scan from %+v to %+v, down %v: key %q behind %q", from, to, down, key, last)
			}
			last = key
			delete(left, string(key))
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("a scan from %+v to %+v, down %v, has not met %v", from, to, down, left)
	}
	return nil
}

// nodesChurn: clients insert, delete and move a few keys beside each other, and keys that make the
// index grow; what each saw is linearizable. Keys that are always there are found, and keys that
// never are, are not.
func nodesChurn(t *testing.T, s NodeSubject) {
	seeds := 20
	if testing.Short() {
		seeds = 6
	}
	const clients, steps, stable, churned = 4, 60, 24, 6
	for seed := range uint64(seeds) {
		fabric := disorderly
		if seed%2 == 1 {
			fabric = NewStepwise
		}
		m, k0 := startNodes(t, s, MemoryOptions{
			Seed: seed + 1, Fabric: fabric, SegmentSize: 64 << 10, Segments: 256, Copies: 1 + int(seed%3),
		})
		k0.past = nil
		entries := make([]int, clients+1)
		for i := range stable {
			if _, err := k0.Insert(name(i), name(i)); err != nil {
				t.Fatal(err)
			}
			entries[clients]++
		}
		histories := make([]History, clients)
		var threads []*rdma.Thread
		for range clients {
			threads = append(threads, m.Thread(t))
		}
		m.Fabric.Run(clients, func(id int) {
			r := rand.New(rand.NewPCG(seed, uint64(id)))
			k := k0.another(t, threads[id].Plain())
			defer k.Close()
			fresh := 1000 * (id + 1)
			for range steps {
				if t.Failed() {
					return
				}
				var err error
				switch n := r.IntN(10); {
				case n < 3:
					fresh++
					if _, err = k.Insert(name(fresh), name(fresh)); err == nil {
						entries[id]++
					}
				case n < 5:
					i := r.IntN(stable)
					v, e := k.Get(name(i))
					if err = e; err == nil && v == nil {
						err = fmt.Errorf("key %d, which is always there, was not found", i)
					}
				case n < 6:
					err = k.Move(name(r.IntN(stable)))
				case n < 7:
					v, e := k.Get(name(-1 - r.IntN(10)))
					if err = e; err == nil && v != nil {
						err = fmt.Errorf("a key that was never inserted was found")
					}
				case n < 8:
					_, err = k.Settle()
				default:
					i := stable + r.IntN(churned)
					err = histories[id].do(k, id, call{i, opKind(r.IntN(int(numOps)))}, name(i))
				}
				if err != nil && !errors.Is(err, ErrLocked) {
					t.Errorf("seed %d, client %d: %v", seed, id, err)
				}
			}
		})
		checkHistories(t, histories)
		if t.Failed() {
			return
		}
		sum := 0
		for _, n := range entries {
			sum += n
		}
		for i := range churned {
			if v, err := k0.Get(name(stable + i)); err != nil {
				t.Fatal(err)
			} else if v != nil {
				sum++
			}
		}
		k0.verify(t, sum)
	}
}

// nodesEvidence: what the nodes say of a lookup after others have done this and that.
func nodesEvidence(t *testing.T, s NodeSubject) {
	m, k := startNodes(t, s, MemoryOptions{})
	other := k.another(t, m.Thread(t).Plain())
	foreign := 0
	step := func(i int, found, changes bool, what string, fn func() error) {
		t.Helper()
		if absent, err := k.absent(name(i)); err != nil || absent == found {
			t.Fatalf("key %d before %s: absent %v, %v", i, what, absent, err)
		}
		if same, err := k.Unchanged(); !same || err != nil {
			t.Fatalf("key %d, nothing has changed: %v, %v", i, same, err)
		}
		if err := fn(); err != nil {
			t.Fatalf("%s of key %d: %v", what, i, err)
		}
		same, err := k.Unchanged()
		if err != nil || changes && same {
			t.Fatalf("%s of key %d was not noticed: %v", what, i, err)
		}
		if !same && !changes {
			foreign++
		}
	}
	insert := func(i int) func() error {
		return func() error { _, err := other.Insert(name(i), name(i)); return err }
	}
	const keys = 200
	for i := range keys { // the index grows underneath
		step(i, false, true, "the insert", insert(i))
		if i%2 == 0 {
			step(i, true, true, "the delete", func() error { return other.Delete(name(i)) })
			step(i, false, true, "an insert and a delete", func() error {
				return errors.Join(insert(i)(), other.Delete(name(i)))
			})
			step(i, false, true, "the second insert", insert(i))
		}
		if i%3 == 0 {
			step(i, true, true, "the move", func() error { return other.Move(name(i)) })
		}
		step(i/2, true, false, "another insert", insert(1000+i))
		if i%5 == 0 {
			step(2000+i, false, false, "what is owed", func() error { _, err := other.Settle(); return err })
		}
	}
	if foreign > keys {
		t.Errorf("%d of %d changes of other keys looked like one", foreign, keys)
	}
	k.verify(t, 2*keys)
}

// pair is an operation of one client beside one of another.
type pair struct {
	name string
	a, b func(k *NodeClient) error
}

func pairs() []pair {
	insert := func(i int) func(k *NodeClient) error {
		return func(k *NodeClient) error { _, err := k.Insert(name(i), name(i)); return err }
	}
	remove := func(i int) func(k *NodeClient) error {
		return func(k *NodeClient) error { return k.Delete(name(i)) }
	}
	move := func(i int) func(k *NodeClient) error { return func(k *NodeClient) error { return k.Move(name(i)) } }
	get := func(i int) func(k *NodeClient) error {
		return func(k *NodeClient) error {
			if v, err := k.Get(name(i)); err != nil || v != nil {
				return err
			}
			return ErrNotFound
		}
	}
	settle := func(k *NodeClient) error { _, err := k.Settle(); return err }
	return []pair{
		{"one key twice", insert(21), insert(21)}, {"two keys", insert(21), insert(22)},
		{"insert, delete", insert(21), remove(20)}, {"two deletes", remove(20), remove(20)},
		{"delete, insert of it", remove(20), insert(20)}, {"move, get", move(20), get(20)},
		{"move, delete", move(20), remove(20)},
		{"split, separator", insert(21), settle}, {"delete, merge", remove(18), settle},
		{"get, merge", get(16), settle},
		{"get, split", get(20), insert(21)},
	}
}

// schedulesWorld is an index of the even keys below 40, of which those from 24 to 28 are gone:
// separators and merges are owed.
func schedulesWorld(t *testing.T, s NodeSubject) (m *Memory, f *Stepwise, a, b *NodeClient, want map[int]bool) {
	t.Helper()
	m, k := startNodes(t, s, MemoryOptions{Fabric: NewStepwise, Copies: 2, SegmentSize: 64 << 10, Segments: 3})
	a, b = k.another(t, m.Thread(t).Plain()), k.another(t, m.Thread(t).Plain())
	want = map[int]bool{}
	for i := 0; i < 40; i += 2 {
		if _, err := a.Insert(name(i), name(i)); err != nil {
			t.Fatal(err)
		}
		want[i] = true
		if i < 20 {
			a.settleAll(t)
		}
	}
	for i := 24; i <= 28; i += 2 {
		if err := b.Delete(name(i)); err != nil {
			t.Fatal(err)
		}
		delete(want, i)
	}
	return m, m.Fabric.(*Stepwise), a, b, want
}

// outcomes are the sets of keys that a pair may leave, and whether each of the two has done
// something.
func (p pair) check(t *testing.T, when string, k *NodeClient, want map[int]bool, ea, eb error) {
	t.Helper()
	for _, err := range []error{ea, eb} {
		if err != nil && !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) {
			t.Fatalf("%s, %s: %v", p.name, when, err)
		}
	}
	got := 0
	for i := range 40 {
		v, err := k.Get(name(i))
		if err != nil {
			t.Fatalf("%s, %s: key %d: %v", p.name, when, i, err)
		}
		if v != nil {
			got++
		}
		if i != 20 && i != 21 && i != 22 && i != 18 && (v != nil) != want[i] {
			t.Fatalf("%s, %s: key %d is %q", p.name, when, i, v)
		}
	}
	k.verify(t, got)
}

// nodesSchedules runs two operations in all orders of the verbs of both with at most two changes
// between them, and compares what they return, and leave, with the two serial orders.
func nodesSchedules(t *testing.T, s NodeSubject) {
	stride := 1
	if testing.Short() {
		stride = 4
	}
	for _, p := range pairs() {
		serial := map[string]bool{}
		run := func(turns ...int) (string, bool) {
			_, f, a, b, want := schedulesWorld(t, s)
			var ea, eb error
			all := f.Turns(turns, func() { ea = p.a(a) }, func() { eb = p.b(b) })
			for range 3 {
				if errors.Is(ea, ErrLocked) {
					ea = p.a(a)
				}
				if errors.Is(eb, ErrLocked) {
					eb = p.b(b)
				}
			}
			p.check(t, fmt.Sprintf("turns %v", turns), a, want, ea, eb)
			left := ""
			for i := 16; i < 24; i++ {
				if v, err := b.Get(name(i)); err != nil {
					t.Fatal(err)
				} else if v != nil {
					left += fmt.Sprint(" ", i)
				}
			}
			return fmt.Sprintf("%v, %v:%s", ea, eb, left), all
		}
		for _, turns := range [][]int{{math.MaxInt}, {0, math.MaxInt}} {
			out, _ := run(turns...)
			serial[out] = true
		}
		runs := 0
		try := func(turns ...int) (all bool) {
			out, all := run(turns...)
			if runs++; !serial[out] {
				t.Fatalf("%s, turns %d: %s; in turn: %v", p.name, turns, out, serial)
			}
			return all
		}
		for i := 1; try(i, 0); i += stride { // b as a whole, in the middle of a
			try(i, math.MaxInt)
		}
		for i := 1; try(i, 1); i += 8 * stride { // and a part of b
			for j := 1; try(i, j); j += 16 * stride {
			}
		}
		if runs < 10 {
			t.Errorf("%s: %d schedules", p.name, runs)
		}
	}
}

// nodesStops stops a client after each of its verbs, has another one finish what was decided,
// and undo the rest.
func nodesStops(t *testing.T, s NodeSubject) {
	insert := func(i int) func(k *NodeClient) error {
		return func(k *NodeClient) error { _, err := k.Insert(name(i), name(i)); return err }
	}
	for what, op := range map[string]func(k *NodeClient) error{
		"insert": insert(21), "split": insert(19), "delete": func(k *NodeClient) error { return k.Delete(name(20)) },
		"move":   func(k *NodeClient) error { return k.Move(name(20)) },
		"settle": func(k *NodeClient) error { _, err := k.Settle(); return err },
	} {
		decided := 0
		for n := 0; ; n++ {
			_, f, a, b, want := schedulesWorld(t, s)
			f.Stop(1, n)
			err := op(a)
			if err == nil {
				if n < 5 || decided == 0 {
					t.Errorf("%s: %d verbs, stopped %d times behind the decision", what, n, decided)
				}
				break
			}
			done := a.decided
			if done {
				decided++
			}
			if err := errors.Join(a.redo(b), a.unlock(b)); err != nil {
				t.Fatalf("%s, stopped after %d verbs: %v", what, n, err)
			}
			before := len(want)
			switch {
			case done && (what == "insert" || what == "split"):
				before++
			case done && what == "delete":
				before--
			}
			b.verify(t, before)
			for i := range 40 { // and all of it can be changed
				want[i] = true
				if _, err := b.Insert(name(i), name(i)); err != nil && !errors.Is(err, ErrExists) {
					t.Fatalf("%s, stopped after %d verbs: key %d: %v", what, n, i, err)
				}
				b.settleAll(t)
			}
			b.verify(t, len(want))
		}
	}
}

// nodesAllocations: a lookup whose way is known allocates nothing.
func nodesAllocations(t *testing.T, s NodeSubject) {
	_, k := startNodes(t, s, MemoryOptions{})
	nodes := map[string]index.Node{}
	for i := range 60 {
		if _, err := k.Insert(name(i), name(i)); err != nil {
			t.Fatal(err)
		}
		k.settleAll(t)
	}
	var keys [][]byte
	for i := range 60 {
		n, _, err := k.seek(index.PlaceOf(name(i)))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, name(i))
		nodes[string(name(i))] = n.Node
	}
	evidence, dst, i := make([]index.Node, 1), make([]index.Candidate, 0, 4), 0
	if n := testing.AllocsPerRun(200, func() {
		key := keys[i%len(keys)]
		i++
		p := index.PlaceOf(key)
		evidence[0] = nodes[string(key)]
		if hop := k.Index.Find(p); hop.Addr != evidence[0].Addr || !hop.Near {
			t.Fatalf("key %q: %+v, the node is %v", key, hop, evidence[0].Addr)
		}
		if _, step, err := k.Index.Follow(p, evidence[0], 0); step != index.Here || err != nil {
			t.Fatal(step, err)
		}
		if list := k.Index.Candidates(dst, key, evidence); len(list) != 1 {
			t.Fatal(list)
		}
	}); n > 0 {
		t.Errorf("%v allocations of a lookup", n)
	}
}
