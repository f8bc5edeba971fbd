package occ_test

import (
	"sync"
	"testing"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// mapIndex is the slow twin of an index: a map under a mutex. Each lookup reads
// one word of a blade, so that it has a round trip to share.
type mapIndex struct {
	mu    sync.Mutex
	slots map[string]index.Candidate
	word  rdma.RemoteAddr
}

func (m *mapIndex) BufferSize() int { return 64 }

func (m *mapIndex) Search(b *rdma.Batch, q *index.Query) { b.Read(m.word, q.Local, 8) }

func (m *mapIndex) Resolve(_ *rdma.Coro, q *index.Query) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q.Candidates = q.Candidates[:0]
	if x, ok := m.slots[string(q.Key)]; ok {
		q.Candidates = append(q.Candidates, x)
	}
	return false, nil
}

func (m *mapIndex) Validate(b *rdma.Batch, _ *index.Query, buffer uint32) { b.Read(m.word, buffer, 8) }

func (m *mapIndex) Unchanged(q *index.Query, _ uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x, ok := m.slots[string(q.Key)]
	return ok == (len(q.Candidates) == 1) && (!ok || x == q.Candidates[0])
}

func (m *mapIndex) Insert(_ *rdma.Coro, q *index.Query, a layout.Addr, class layout.Class) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.slots[string(q.Key)]; ok {
		return index.ErrDuplicate
	}
	m.slots[string(q.Key)] = index.Candidate{Addr: a, Class: class}
	return nil
}

func (m *mapIndex) Replace(_ *rdma.Coro, q *index.Query, old, a layout.Addr, class layout.Class) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slots[string(q.Key)].Addr != old {
		return index.ErrChanged
	}
	m.slots[string(q.Key)] = index.Candidate{Addr: a, Class: class}
	return nil
}

func (m *mapIndex) Remove(_ *rdma.Coro, q *index.Query, a layout.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slots[string(q.Key)].Addr != a {
		return index.ErrChanged
	}
	delete(m.slots, string(q.Key))
	return nil
}

// bed is a test bed: an engine over blades with one table.
type bed struct {
	t      testing.TB
	fabric rdma.Fabric
	ctl    *rdma.Thread
	space  *memory.Space
	eng    *occ.Engine
	table  *occ.Table
	next   int
	opts   occ.Options
}

func newBed(t testing.TB, blades, backups int, o occ.Options) *bed {
	t.Helper()
	return newBedSized(t, blades, memory.Options{Backups: backups, SegmentSize: 1 << 20, LogArea: 64 << 10}, o)
}

func newBedSized(t testing.TB, blades int, m memory.Options, o occ.Options) *bed {
	t.Helper()
	fo := inproc.Options{Seed: 3}
	for range blades {
		fo.Blades = append(fo.Blades, inproc.BladeOptions{Size: 256 << 20})
	}
	f, err := inproc.New(fo)
	if err != nil {
		t.Fatal(err)
	}
	return newBedOn(t, f, m, o)
}

func newBedOn(t testing.TB, f rdma.Fabric, m memory.Options, o occ.Options) *bed {
	t.Helper()
	ctl, err := rdma.NewThread(f, rdma.ThreadOptions{Index: 99})
	if err != nil {
		t.Fatal(err)
	}
	space, err := memory.Open(ctl.Plain(), f, &catalog.Mem{}, m)
	if err != nil {
		t.Fatal(err)
	}
	o.CacheBytes = 1 << 20
	b := &bed{t: t, fabric: f, ctl: ctl, space: space, opts: o, eng: occ.NewEngine(space, o)}
	b.table = &occ.Table{ID: 1, Name: "t", Index: &mapIndex{
		slots: map[string]index.Candidate{}, word: rdma.RemoteAddr{Blade: 0, Key: space.View().Key(0)},
	}}
	t.Cleanup(func() {
		if err := space.Close(ctl.Plain()); err != nil {
			t.Error(err)
		}
		if err := ctl.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// session makes a coordinator on a thread of its own, closed at the end.
func (b *bed) session() (*occ.Session, *occ.Tx) {
	b.t.Helper()
	th, err := rdma.NewThread(b.fabric,
		rdma.ThreadOptions{Index: b.next, Techniques: rdma.AllTechniques, Arena: 8 << 20})
	if err != nil {
		b.t.Fatal(err)
	}
	b.next++
	s, err := b.eng.NewSession(th)
	if err != nil {
		b.t.Fatal(err)
	}
	tx, err := s.NewTx(th.Plain())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.t.Error(err)
		}
		if err := th.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return s, tx
}

// op is one step of a small transaction.
type op struct {
	key    string
	update bool
	put    *string
	del    bool
}

func get(k string) op        { return op{key: k} }
func lock(k string) op       { return op{key: k, update: true} }
func put(k, v string) op     { return op{key: k, update: true, put: &v} }
func lazyPut(k, v string) op { return op{key: k, put: &v} }
func del(k string) op        { return op{key: k, update: true, del: true} }
func must(t testing.TB, e error) {
	t.Helper()
	if e != nil {
		t.Fatal(e)
	}
}

// do stages all keys, executes, writes, and commits.
func (b *bed) do(tx *occ.Tx, ops ...op) error {
	b.t.Helper()
	if err := tx.Begin(); err != nil {
		return err
	}
	if err := b.apply(tx, ops...); err != nil {
		must(b.t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

func (b *bed) apply(tx *occ.Tx, ops ...op) error {
	n := make([]int, len(ops))
	for i, o := range ops {
		var err error
		if n[i], err = tx.Stage(b.table, []byte(o.key), o.update); err != nil {
			return err
		}
	}
	if err := tx.Execute(); err != nil {
		return err
	}
	for i, o := range ops {
		var err error
		switch {
		case o.put != nil:
			err = tx.Put(n[i], []byte(*o.put))
		case o.del:
			err = tx.Delete(n[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value reads a key in a transaction of its own; ok is false if it has no value.
func (b *bed) value(tx *occ.Tx, key string) (string, bool) {
	b.t.Helper()
	must(b.t, tx.Begin())
	i, err := tx.Stage(b.table, []byte(key), false)
	must(b.t, err)
	must(b.t, tx.Execute())
	v, ok := tx.Read(i)
	out := string(v)
	must(b.t, tx.Commit())
	return out, ok
}
