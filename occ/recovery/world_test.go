package recovery_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/verify"
)

// setting is what a world is made of.
type setting struct {
	policy  occ.Policy
	backups int
	caps    rdma.Caps
}

func (s setting) String() string {
	return fmt.Sprintf("%v f=%d placed=%v ordered=%v", s.policy, s.backups, s.caps.Placed, s.caps.OrderedLine)
}

// strong and weak are the fabrics at both ends of the contract.
var (
	strong = rdma.Caps{Synchronous: true, Placed: true, OrderedLine: true, MaskedCAS: true}
	weak   = rdma.Caps{}
)

var full = flag.Bool("full", false, "stop after every verb, where a part of them is tried otherwise")

// byRun is what goes for this run: usually, with -full, or with -short.
func byRun(usually, withFull, withShort int) int {
	switch {
	case *full:
		return withFull
	case testing.Short():
		return withShort
	}
	return usually
}

// settings are both policies with every number of backups, on both fabrics: with -full. Else they
// are three of these, and with -short two: the usual one, and those that the name of the test
// draws, so that the tests together have all.
func settings(t testing.TB) []setting {
	var out []setting
	for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		for f := range 3 {
			out = append(out, setting{p, f, strong})
		}
		out = append(out, setting{p, 1, weak})
	}
	usual := setting{occ.PolicyDefault, 1, strong}
	some := []setting{usual}
	out = slices.DeleteFunc(out, func(s setting) bool { return s == usual })
	draw := crc32.ChecksumIEEE([]byte(t.Name()))
	for range byRun(2, len(out), 1) {
		i := draw % uint32(len(out))
		some, out = append(some, out[i]), slices.Delete(out, int(i), int(i)+1)
	}
	return some
}

// replicated are those with backups: without, a blade is not lost with a placeholder and without
// its slot.
func replicated(t testing.TB) []setting {
	return slices.DeleteFunc(settings(t), func(s setting) bool { return s.backups == 0 })
}

// world is a database on a fabric whose verbs can be made to fail from one on.
type world struct {
	t      testing.TB
	f      *rdmatest.Fabric
	stop   stop
	ctl    *rdma.Thread
	cat    *catalog.Mem
	space  *memory.Space
	eng    *occ.Engine
	table  *occ.Table
	thread int
	spoilt bool // an index is, or was, damaged
	arrive func(wr *rdma.WR, data []byte)
	others *[]*world // processes on the same fabric
	until  int64     // when registrations of processes that join end; 0: never
}

// damaged is told what a recovery could not finish since an index is damaged.
func (w *world) damaged(err error) {
	if errors.Is(err, layout.ErrCorrupt) && !w.spoilt {
		w.t.Errorf("no index is damaged, and a recovery has met: %v", err)
	}
}

// stop makes the verbs behind the first left ones fail, like those of a process
// that was killed; negative: never.
type stop struct {
	left int
	once bool // one verb alone fails, and what its queue pair has behind it
	// status is what it fails with; rdma.StatusOK: StatusNoBlade.
	status rdma.Status
	hit    bool
	// pick, if it is set, alone says which verbs fail.
	pick func(wr *rdma.WR) bool
	at   func() // called for each verb
}

func (s *stop) fail(wr *rdma.WR) rdma.Status {
	if s.pick != nil {
		if s.pick(wr) {
			s.hit = true
			return rdma.StatusNoBlade
		}
		return rdma.StatusOK
	}
	if s.at != nil {
		s.at()
	}
	switch {
	case s.left < 0:
		return rdma.StatusOK
	case s.left == 0:
		s.hit = true
		if s.once {
			s.left = -1
		}
		if s.status != rdma.StatusOK {
			return s.status
		}
		return rdma.StatusNoBlade
	}
	s.left--
	return rdma.StatusOK
}

func (w *world) arm(n int) { w.stop = stop{left: n} }

// disarm ends it, and reports whether a verb has failed.
func (w *world) disarm() bool {
	hit := w.stop.hit
	w.stop = stop{left: -1}
	return hit
}

func newWorld(t testing.TB, s setting, o occ.Options) *world {
	t.Helper()
	return newWorldOf(t, s, o, 64<<10)
}

func newWorldOf(t testing.TB, s setting, o occ.Options, logs uint32) *world {
	t.Helper()
	return newWorldOn(t, 3, s, o, logs)
}

func newWorldOn(t testing.TB, blades int, s setting, o occ.Options, logs uint32) *world {
	t.Helper()
	return newWorldIn(t, rdmatest.Options{Blades: blades, Size: 3 << 20}, s, o, logs)
}

func newWorldIn(t testing.TB, f rdmatest.Options, s setting, o occ.Options, logs uint32) *world {
	t.Helper()
	return newWorldWith(t, f, s, o, memory.Options{SegmentSize: 256 << 10, LogArea: logs})
}

// newWorldWith is newWorldIn with options of the memory.
func newWorldWith(t testing.TB, f rdmatest.Options, s setting, o occ.Options, mo memory.Options) *world {
	t.Helper()
	w := &world{t: t, stop: stop{left: -1}, cat: &catalog.Mem{}}
	w.others = &[]*world{w}
	f.Caps, f.Seed, f.Fail = s.caps, 7, func(wr *rdma.WR) rdma.Status {
		for _, x := range *w.others {
			if status := x.stop.fail(wr); status != rdma.StatusOK {
				return status
			}
		}
		return rdma.StatusOK
	}
	f.Arrive = func(wr *rdma.WR, data []byte) {
		if w.arrive != nil {
			w.arrive(wr, data)
		}
	}
	w.f = rdmatest.New(f)
	w.ctl = w.newThread()
	var err error
	mo.Backups = s.backups
	w.space, err = memory.Open(w.ctl.Plain(), w.f, w.cat, mo)
	must(t, err)
	must(t, w.space.EndAlone())
	o.Policy, o.CacheBytes, o.Damaged = s.policy, 64<<10, w.damaged
	w.eng = occ.NewEngine(w.space, o)
	meta, err := w.space.CreateTable("t", []byte(`{"key":"bytes","value":"bytes","index":"race"}`))
	must(t, err)
	root, ix, err := race.Create(w.ctl.Plain(), w.space, meta.ID, race.Options{Groups: 16})
	must(t, err)
	w.setRoot(meta.ID, root)
	w.table = &occ.Table{ID: meta.ID, Name: "t", Index: ix}
	return w
}

// setRoot records where the index of a table starts, as the process that makes it.
func (w *world) setRoot(table uint16, root layout.Addr) {
	w.t.Helper()
	if !w.space.AcquireRight(uint32(table)) {
		w.t.Fatal("another process makes the table")
	}
	must(w.t, w.space.SetTableRoot(table, root))
	w.space.ReleaseRight(uint32(table))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) newThread() *rdma.Thread { return w.newThreadOf(1 << 20) }

func (w *world) newThreadOf(arena int) *rdma.Thread {
	th, err := rdma.NewThread(w.f, rdma.ThreadOptions{Index: w.thread, Techniques: rdma.AllTechniques, Arena: arena})
	must(w.t, err)
	w.thread++
	return th
}

// session is a coordinator with a transaction.
func (w *world) session() (*occ.Session, *occ.Tx) {
	s, err := w.eng.NewSession(w.newThread())
	must(w.t, err)
	tx, err := s.NewTx(s.Thread().Plain())
	must(w.t, err)
	return s, tx
}

// op is a step of a transaction: put a value, delete (""), or get.
type op struct {
	key   string
	value string
	get   bool
}

func put(k, v string) op { return op{key: k, value: v} }
func del(k string) op    { return op{key: k} }
func get(k string) op    { return op{key: k, get: true} }

// do runs a transaction.
func (w *world) do(tx *occ.Tx, ops ...op) error {
	if err := w.open(tx, ops...); err != nil {
		return err
	}
	return tx.Commit()
}

// open is do without the commit.
func (w *world) open(tx *occ.Tx, ops ...op) error {
	if err := tx.Begin(); err != nil {
		return err
	}
	n := make([]int, len(ops))
	run := func() (err error) {
		for i, o := range ops {
			if n[i], err = tx.Stage(w.table, []byte(o.key), !o.get); err != nil {
				return err
			}
		}
		if err := tx.Execute(); err != nil {
			return err
		}
		for i, o := range ops {
			switch {
			case o.get:
			case o.value == "":
				err = tx.Delete(n[i])
			default:
				err = tx.Put(n[i], []byte(o.value))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	err := run()
	if err != nil {
		_ = tx.Rollback()
	}
	return err
}

// loaded is a session that has run a transaction, which is at rest.
func (w *world) loaded(ops ...op) (*occ.Session, *occ.Tx) {
	w.t.Helper()
	s, tx := w.session()
	w.sure(s, tx, ops...)
	tx.Coro().Sleep(10_000) // until the locks are released
	return s, tx
}

// sure runs a transaction until it commits, as a worker of package txn does.
func (w *world) sure(s *occ.Session, tx *occ.Tx, ops ...op) {
	w.t.Helper()
	w.try(s, tx, func() error { return w.do(tx, ops...) })
}

// try repeats what has met conflicts, or has been fenced.
func (w *world) try(s *occ.Session, tx *occ.Tx, fn func() error) {
	w.t.Helper()
	var last []string
	defer func() {
		if w.t.Failed() {
			w.t.Log(strings.Join(last[max(0, len(last)-6):], "\n"))
		}
	}()
	for range 100 {
		err := fn()
		last = append(last, fmt.Sprint(err))
		if err == nil {
			return
		}
		if errors.Is(err, occ.ErrConflict) {
			_, err = tx.Unblock()
			for _, x := range (*w.others)[1:] { // processes that have joined maintain the database meanwhile
				must(w.t, x.space.Follow())
				if _, due := x.space.Unswept(); due {
					x.sweep()
				}
			}
		}
		if err != nil {
			s.Break(err)
		}
		if s.Broken() != nil {
			must(w.t, s.Rejoin(s.Thread().Plain()))
		}
		tx.Coro().Sleep(3000)
	}
	w.t.Fatal("it does not come to an end")
}

// values reads keys in one transaction; "": no value.
func (w *world) values(s *occ.Session, tx *occ.Tx, keys ...string) (out []string) {
	w.t.Helper()
	w.try(s, tx, func() error {
		if err := tx.Begin(); err != nil {
			return err
		}
		var n []int
		for _, k := range keys {
			i, err := tx.Stage(w.table, []byte(k), false)
			must(w.t, err)
			n = append(n, i)
		}
		if err := tx.Execute(); err != nil {
			_ = tx.Rollback()
			return err
		}
		out = out[:0]
		for _, i := range n {
			v, _ := tx.Read(i)
			out = append(out, string(v))
		}
		return tx.Commit()
	})
	return out
}

// examine looks at every byte of the database.
func (w *world) examine(o verify.Options) {
	w.t.Helper()
	d, err := verify.Attach(w.f, w.space.Layout())
	must(w.t, err)
	_, err = d.Check(context.Background(), o)
	must(w.t, err)
	must(w.t, d.Close())
}

// repair repairs what can be repaired of the database, whose sessions are closed, and returns how
// many findings there were.
func (w *world) repair() (found int) {
	w.t.Helper()
	w.examine(verify.Options{Repair: true, Report: func(verify.Finding) error { found++; return nil }})
	return found
}

// repaired demands that keys have their values since the database was repaired, and that it is as
// if nothing had been damaged.
func (w *world) mended(what string, keys, want []string) {
	w.t.Helper()
	s, tx := w.session()
	if got := w.values(s, tx, keys...); !slices.Equal(got, want) {
		w.t.Errorf("%s: the values are %.8q, and not %.8q", what, got, want)
	}
	must(w.t, s.Close())
	w.sweep()
	w.check(what)
}

// unlive damages the bit of a record by which its block is in use.
func unlive(block []byte) { block[record.MetaOff+36/8] ^= byte(record.Live) << (36 % 8) }

// check demands that the database is as if nobody had ever died: nothing is locked,
// all copies are equal, no block is lost. The open coordinators are at rest.
func (w *world) check(what string) {
	w.t.Helper()
	report := func(f verify.Finding) error {
		w.t.Errorf("%s: %v", what, f)
		return nil
	}
	if _, due := w.space.Unswept(); due {
		w.examine(verify.Options{Report: report})
		w.sweep()
	}
	w.owned(what, report)
	if err := w.table.Index.(*race.Index).Verify(w.ctl.Plain()); err != nil {
		w.t.Errorf("%s: %v", what, err)
	}
}

// owned demands that every free block is in a pool, or a session's that is registered, once. The
// database is swept, and report is told what is wrong with it.
func (w *world) owned(what string, report func(verify.Finding) error) {
	w.t.Helper()
	var free []memory.FreeBlock
	is := map[layout.Addr]bool{}
	w.examine(verify.Options{Report: report, Free: func(a layout.Addr, v uint64) {
		free = append(free, memory.FreeBlock{Addr: a, Version: v})
		is[a] = true
	}})
	if nobodys, twice := w.space.Unowned(free); len(nobodys) > 0 || len(twice) > 0 {
		w.t.Errorf("%s: %d free blocks are nobody's, %d are there twice: %v %v", what, len(nobodys), len(twice),
			nobodys[:min(len(nobodys), 4)], twice)
	}
	for _, a := range w.space.Spare() {
		if !is[a] {
			w.t.Errorf("%s: block %v is in a pool, and is not free", what, a)
		}
	}
}

// sweep sweeps once.
func (w *world) sweep() {
	w.t.Helper()
	_, err := recovery.Sweep(w.ctl.Plain(), w.eng.Recovery())
	must(w.t, err)
}

// recover recovers a coordinator on a thread of its own, and sweeps.
func (w *world) recover(id uint32) recovery.Report {
	w.t.Helper()
	th := w.newThread()
	o := w.eng.Recovery()
	o.Steal = true
	rep, err := recovery.Recover(th.Plain(), o, id)
	must(w.t, err)
	_, err = recovery.Sweep(th.Plain(), o)
	must(w.t, err)
	must(w.t, th.Close())
	return rep
}

// decideUntil is recover without a sweep, and the thread is stopped after so many verbs,
// negative: not. It reports whether it was.
func (w *world) decideUntil(id uint32, stop int) (stopped bool) {
	w.t.Helper()
	th := w.newThread()
	o := w.eng.Recovery()
	o.Steal = true
	w.arm(stop)
	_, err := recovery.Recover(th.Plain(), o, id)
	if stopped = w.disarm(); !stopped {
		must(w.t, err)
		must(w.t, th.Close())
	}
	return stopped
}

// blocks calls fn for the first line of every block that a slot leads to.
func (w *world) blocks(c *rdma.Coro, fn func(a layout.Addr, line record.Image)) {
	w.t.Helper()
	v := w.space.View()
	must(w.t, w.table.Index.(*race.Index).Walk(c, func(_ layout.Addr, x index.Candidate) error {
		buf, err := c.Thread().Alloc(record.LineSize)
		must(w.t, err)
		defer c.Thread().Free(buf, record.LineSize)
		var b rdma.Batch
		b.Read(v.At(x.Addr, 0), buf, record.LineSize)
		must(w.t, c.Do(&b))
		fn(x.Addr, record.Image(c.Thread().Bytes(buf, record.LineSize)))
		return nil
	}))
}

// zero frees the block of a key on the first copies of it, as when its placeholder was on
// a blade that was lost.
func (w *world) zero(c *rdma.Coro, key string, copies int) {
	w.t.Helper()
	v := w.space.View()
	w.blocks(c, func(a layout.Addr, line record.Image) {
		if string(line.Key()) != key {
			return
		}
		buf, err := c.Thread().Alloc(record.LineSize)
		must(w.t, err)
		defer c.Thread().Free(buf, record.LineSize)
		clear(c.Thread().Bytes(buf, record.LineSize))
		var b rdma.Batch
		for k := range copies {
			b.Write(v.At(a, k), buf, record.LineSize)
		}
		must(w.t, c.Do(&b))
		must(w.t, c.Fence(rdma.FenceThread, 0, &b))
	})
}
