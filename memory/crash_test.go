package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/internal/raced"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// session is a client that remembers what it was told.
type session struct {
	b *bed
	s *memory.Space
	c *rdma.Coro
	a *memory.Allocator

	epoch        layout.Epoch
	tables       map[string]layout.Addr // name to root
	coordinators map[uint32]bool
	lastID       uint32
	extents      map[layout.Addr]uint32
	unsure       map[layout.Addr]bool // freed, or being freed
	records      map[layout.Addr]layout.Class
}

func newSession(b *bed) *session {
	return &session{b: b, tables: map[string]layout.Addr{}, coordinators: map[uint32]bool{},
		extents: map[layout.Addr]uint32{}, unsure: map[layout.Addr]bool{}, records: map[layout.Addr]layout.Class{}}
}

// run does a bit of everything until something fails.
func (x *session) run() error {
	var err error
	if x.s, err = memory.Open(x.c, x.b.fabric, x.b.cat, x.b.opts); err != nil {
		return err
	}
	x.epoch = max(x.epoch, x.s.View().Epoch)
	if x.a, err = x.s.NewAllocator(x.c.Thread()); err != nil {
		return err
	}
	steps := []func() error{
		func() error { return x.table("accounts") },
		x.coordinator,
		func() error { return x.extent("accounts", 3000) },
		func() error { return x.record(12) },
		x.coordinator,
		func() error { return x.extent("", 20_000) },
		x.freeExtent,
		func() error { return x.extent("accounts", 500) },
		x.closeCoordinator,
		func() error { return x.record(30) },
		x.advance,
		x.coordinator,
		func() error { return x.table("savings") },
		func() error { return x.record(12) },
		func() error { return x.extent("savings", 70_000) },
		x.freeExtent,
		x.advance,
		func() error { return x.s.Close(x.c) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (x *session) table(name string) error {
	_, err := x.s.CreateTable(name, nil)
	if err == nil {
		x.tables[name] = 0
	} else if errors.Is(err, memory.ErrTableExists) {
		return nil
	}
	return err
}

func (x *session) coordinator() error {
	c, err := x.s.NewCoordinator()
	if err != nil {
		return err
	}
	if c.ID <= x.lastID {
		x.b.tb.Errorf("coordinator %d after %d", c.ID, x.lastID)
	}
	x.lastID = c.ID
	x.coordinators[c.ID] = true
	// It writes to its log.
	t := x.c.Thread()
	buf, err := t.Alloc(64)
	if err != nil {
		return err
	}
	defer t.Free(buf, 64)
	var batch rdma.Batch
	for _, l := range c.Logs {
		batch.Reset()
		batch.Read(l.Addr, buf, 64)
		if err := x.c.Do(&batch); err != nil {
			return err
		}
		if !isZero(t.Bytes(buf, 64)) {
			x.b.tb.Errorf("coordinator %d got a log that is not clear", c.ID)
		}
		t.PutWord(buf, uint64(c.ID))
		batch.Reset()
		batch.Write(l.Addr, buf, 64)
		if err := x.c.Do(&batch); err != nil {
			return err
		}
	}
	return nil
}

func (x *session) closeCoordinator() error {
	for id := range x.coordinators {
		err := x.s.CloseCoordinatorOn(x.c, id)
		if err == nil {
			delete(x.coordinators, id)
		}
		return err
	}
	return nil
}

func (x *session) extent(root string, size uint32) error {
	a, err := x.s.AllocExtent(x.c, size)
	if err != nil {
		return err
	}
	delete(x.unsure, a)
	x.extents[a] = size
	if root == "" {
		return nil
	}
	tables, err := x.s.Tables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name == root {
			if err := x.s.SetTableRoot(t.ID, a); err != nil {
				delete(x.tables, root) // one or the other
				return err
			}
			x.tables[root] = a
		}
	}
	return nil
}

func (x *session) freeExtent() error {
	for a, size := range x.extents {
		isRoot := false
		for _, r := range x.tables {
			isRoot = isRoot || r == a
		}
		if isRoot {
			continue
		}
		delete(x.extents, a)
		x.unsure[a] = true
		return x.s.FreeAt(a, size)
	}
	return nil
}

// record inserts a record: once its WRITEs are under way, the block is taken.
func (x *session) record(k layout.Class) error {
	for range 3 {
		a, err := x.a.Alloc(x.c, k)
		if err != nil {
			return err
		}
		if _, taken := x.records[a]; taken {
			x.b.tb.Errorf("the block %v of a record is handed out", a)
		}
		t := x.c.Thread()
		buf, err := t.Alloc(64)
		if err != nil {
			return err
		}
		copy(t.Bytes(buf, 64), image(a, record.MakeTxID(x.lastID, 1), record.Live, k, 0))
		v := x.s.View()
		for i := range v.Copies(a) {
			var batch rdma.Batch
			batch.Write(v.At(a, i), buf, 64)
			if err := x.c.Do(&batch); err != nil {
				return err
			}
			if i == 0 {
				x.records[a] = k
			}
		}
		t.Free(buf, 64)
	}
	return nil
}

func (x *session) advance() error {
	if err := x.s.AdvanceEpoch(nil); err != nil {
		return err
	}
	x.epoch = x.s.View().Epoch
	return nil
}

// verify opens what the crash has left and compares it with what was promised.
func (x *session) verify() {
	t := x.b.tb
	t.Helper()
	s, c := x.b.open()
	defer x.b.dropThreads()
	l := s.Layout()
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	if l.Epoch < x.epoch {
		t.Errorf("epoch %d, and %d had been reached", l.Epoch, x.epoch)
	}
	for _, info := range x.b.fabric.Blades() { // no key of an earlier epoch opens it
		if k := s.View().Key(info.ID); k != info.Key {
			t.Errorf("blade %d: the oldest key is %d, and the epoch has %d", info.ID, info.Key, k)
		}
	}
	tables := map[string]layout.Addr{}
	for _, tab := range l.Tables {
		tables[tab.Name] = tab.Root
	}
	for name, root := range x.tables {
		if got, ok := tables[name]; !ok || root != 0 && got != root {
			t.Errorf("table %q has root %v, not %v", name, got, root)
		}
	}
	open := map[uint32]bool{}
	for _, e := range l.Coordinators {
		open[e.ID] = true
	}
	for id := range x.coordinators {
		if !open[id] {
			t.Errorf("coordinator %d is forgotten", id)
		}
	}
	extents := map[layout.Addr]uint32{}
	for _, e := range s.Extents() {
		extents[e.Addr] = e.Size
	}
	for a, size := range x.extents {
		if extents[a] < size {
			t.Errorf("the extent of %d bytes at %v has %d", size, a, extents[a])
		}
	}
	// A new coordinator has clear logs, that nobody else has.
	x.s, x.c = s, c
	if err := x.coordinator(); err != nil && !errors.Is(err, memory.ErrNoSpace) {
		t.Error(err)
	}
	// All blocks but those of records can be had.
	a := x.b.allocator(s, c)
	for _, k := range []layout.Class{12, 30} {
		blocks := drain(t, a, c, k)
		checkBlocks(t, s, blocks, k)
		for _, b := range blocks {
			if _, taken := x.records[b]; taken {
				t.Errorf("the block %v of a record is handed out", b)
			}
		}
		total, taken := 0, 0
		for _, seg := range s.Layout().Segments {
			if seg.Kind == layout.KindBlocks && seg.Class == k {
				total += int(testSegment / k.Size())
			}
		}
		for _, class := range x.records {
			if class == k {
				taken++
			}
		}
		if len(blocks)+taken != total {
			t.Errorf("class %d: %d blocks are free and %d taken, of %d", k, len(blocks), taken, total)
		}
	}
}

// TestCrashAtEveryStep stops a session at each verb, each change of the catalog
// and each request to a blade, opens what it has left, checks every promise, and
// does it again with a second session that is stopped likewise.
func TestCrashAtEveryStep(t *testing.T) {
	raced.Skip(t)
	for _, x := range []struct {
		f        int
		openings bool
	}{{0, false}, {1, false}, {2, false}, {1, true}} {
		f := x.f
		t.Run(fmt.Sprintf("f=%d,openings=%v", f, x.openings), func(t *testing.T) {
			blades := max(2, f+1)
			total := -1
			for k := 0; total < 0 || k <= total; k++ {
				b := newBed(t, blades, 14, f)
				b.opts.Openings = x.openings
				x := newSession(b)
				ok := true
				// Two crashes: the second at a step of its own.
				for i, at := range []int{k, (k * 7) % 97} {
					x.c = b.thread().Plain()
					st := &stop{left: at}
					b.fabric.stop, b.cat.stop = st, st
					err := x.run()
					if err == nil && i == 0 {
						total = st.taken
					}
					if err != nil && st.left > 0 {
						t.Errorf("crash at step %d: %v", k, err)
						ok = false
					}
					b.crash()
				}
				if x.verify(); t.Failed() || !ok {
					t.Fatalf("crash at step %d", k)
				}
			}
			if total < 80 {
				t.Errorf("a session has only %d steps", total)
			}
			t.Logf("%d steps", total)
		})
	}
}
