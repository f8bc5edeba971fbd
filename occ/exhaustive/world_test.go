package exhaustive

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"

	"txnode/history"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/steptest"
	"txnode/verify"
)

// config is a kind of database.
type config struct {
	policy  occ.Policy
	backups int
	caps    rdma.Caps
	groups  uint32 // of a sub-table; 0: 8
	reclaim int    // occ.Options.ReclaimAfter
}

func (c config) String() string {
	s := fmt.Sprintf("%v/f=%d", c.policy, c.backups)
	if !c.caps.Placed {
		s += "/unplaced"
	}
	if !c.caps.OrderedLine {
		s += "/unordered"
	}
	if !c.caps.MaskedCAS {
		s += "/unmasked"
	}
	return s
}

// strong are the promises of the in-process fabric, weak is none.
var strong, weak = rdma.Caps{Placed: true, OrderedLine: true, MaskedCAS: true}, rdma.Caps{}

const (
	blades     = 3
	bladeSize  = 8 << 20
	segment    = 256 << 10
	logArea    = 64 << 10
	arena      = 640 << 10
	cacheBytes = 64 << 10
)

// world is a database that can be put back to its beginning.
type world struct {
	t    testing.TB
	conf config
	f    *steptest.Fabric

	begin    []memory.Entry // of the catalog
	initial  []history.Txn
	contents map[string]string
	// judged is what became of states of the memory that have been walked before.
	judged  map[uint64]verdict
	summary verify.Summary // of the last walk

	// pardon tells findings that are known; pardoned counts them.
	pardon   func(verify.Finding) bool
	pardoned int

	loaders []*client // while the database is made

	// Of the present run:
	cat   *catalog.Mem
	space *memory.Space
	ctl   *rdma.Thread
	rec   *history.Recorder
	tick  int64
	next  int
}

// verdict is what a walk over the database finds.
type verdict struct {
	content  string
	findings string
}

// newWorld makes a database with the records that load puts, and remembers it.
func newWorld(t testing.TB, c config, load func(s *client) error) *world {
	t.Helper()
	if c.groups == 0 {
		c.groups = 8
	}
	w := &world{t: t, conf: c, judged: map[uint64]verdict{}}
	w.f = steptest.New(steptest.Options{Blades: blades, Size: bladeSize, Caps: c.caps})
	w.cat, w.rec = &catalog.Mem{}, &history.Recorder{}
	w.open()
	if _, err := w.space.CreateTable("t", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	root, _, err := race.Create(w.ctl.Plain(), w.space, 1, race.Options{Groups: c.groups, MaxDepth: 6})
	if err == nil {
		err = w.space.SetTableRoot(1, root)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Blocks that an allocator hands out one after the other are on one blade. Segments are
	// opened by the first who need blocks, until there is one for each blade.
	var clients []*client
	for range 2 * blades {
		s := w.client()
		s.warm()
		clients = append(clients, s)
	}
	w.loaders = clients[blades:]
	if err := load(w.loaders[0]); err != nil {
		t.Fatal(err)
	}
	for _, s := range clients {
		if err := s.session.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.loaders = nil
	if err := w.space.Close(w.ctl.Plain()); err != nil {
		t.Fatal(err)
	}
	w.initial = w.rec.Txns()
	w.begin, _, err = w.cat.Load()
	if err != nil {
		t.Fatal(err)
	}
	w.f.Save()
	return w
}

// scatter runs ops one after the other, each of a client of its own in turn: what is put
// one after the other has its primaries on different blades.
func (s *client) scatter(ops ...op) error {
	for i, o := range ops {
		if err := s.w.loaders[i%blades].do(o); err != nil {
			return err
		}
	}
	return nil
}

// open attaches to the database.
func (w *world) open() {
	var err error
	w.ctl, err = rdma.NewThread(w.f, rdma.ThreadOptions{Index: 99, Arena: arena})
	if err == nil {
		w.space, err = memory.Open(w.ctl.Plain(), w.f, w.cat, memory.Options{Backups: w.conf.backups, SegmentSize: segment, LogArea: logArea})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.next = 0
}

// restart begins another run, from the beginning.
func (w *world) restart() {
	w.f.Restore()
	w.cat = &catalog.Mem{}
	if _, err := w.cat.Apply(0, w.begin); err != nil {
		w.t.Fatal(err)
	}
	w.rec, w.tick = &history.Recorder{}, 1<<20
	w.open()
}

// client is a coordinator: a process of its own, but for the space.
type client struct {
	w       *world
	c       *rdma.Coro
	session *occ.Session
	tx      *occ.Tx
	table   *occ.Table
	counted bool          // what runs is an attempt
	told    []error       // by attempt: what Commit, or the step that failed, said
	ids     []record.TxID // of the attempts, by the same number
	run     *steptest.Client
}

// client makes one, synchronously.
func (w *world) client() *client {
	w.t.Helper()
	th, err := rdma.NewThread(w.f, rdma.ThreadOptions{Index: w.next, Arena: arena})
	if err != nil {
		w.t.Fatal(err)
	}
	w.next++
	s := &client{w: w, c: th.Plain()}
	ix, err := race.Open(s.c, w.space, w.root(), 1)
	if err != nil {
		w.t.Fatal(err)
	}
	s.table = &occ.Table{ID: 1, Name: "t", Index: ix}
	eng := occ.NewEngine(w.space, occ.Options{Policy: w.conf.policy, CacheBytes: cacheBytes, ReclaimAfter: w.conf.reclaim})
	if s.session, err = eng.NewSession(th); err == nil {
		s.tx, err = s.session.NewTx(s.c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	s.tx.Record(w.rec.Session(), func() int64 { w.tick++; return w.tick })
	return s
}

func (w *world) root() memory.Addr {
	ts, err := w.space.Tables()
	if err != nil || len(ts) != 1 {
		w.t.Fatal(err, ts)
	}
	return ts[0].Root
}

// op is one step of a transaction.
type op struct {
	what  opKind
	key   string
	value string
}

type opKind uint8

const (
	opGet    opKind = iota
	opLock          // fetch for update, and not write
	opPut           // fetch for update, and write
	opLate          // write what was fetched for reading: locked at commit
	opInsert        // fail if it has a value
	opDelete        //
	opThen          // what was staged is fetched, before the next
	opRoll          // roll back
	opNext          // commit, and begin another
	opRest          // wait until everything is at rest, then maintain the session
)

// k is a key of 8 bytes.
func k(s string) string { return (s + "........")[:8] }

func get(key string) op          { return op{opGet, k(key), ""} }
func lock(key string) op         { return op{opLock, k(key), ""} }
func put(key, v string) op       { return op{opPut, k(key), v} }
func late(key, v string) op      { return op{opLate, k(key), v} }
func insert(key, v string) op    { return op{opInsert, k(key), v} }
func del(key string) op          { return op{opDelete, k(key), ""} }
func then() op                   { return op{what: opThen} }
func roll() op                   { return op{what: opRoll} }
func next() op                   { return op{what: opNext} }
func rest() op                   { return op{what: opRest} }
func big(c string, n int) string { return strings.Repeat(c, n) }

var errExists = errors.New("has a value")

// do runs the transactions that ops are, each once.
func (s *client) do(ops ...op) error {
	for len(ops) > 0 {
		n := slices.IndexFunc(ops, func(o op) bool { return o.what == opNext })
		one := ops
		if n >= 0 {
			one, ops = ops[:n], ops[n+1:]
		} else {
			ops = nil
		}
		if len(one) == 1 && one[0].what == opRest {
			if err := s.session.Maintain(s.c); err != nil {
				return err
			}
			continue
		}
		s.counted = true
		err := s.once(one)
		s.counted = false
		s.told = append(s.told, err)
		if s.session.Broken() != nil {
			return s.session.Broken()
		}
	}
	return nil
}

// errRolled is what a transaction ends with that rolls itself back.
var errRolled = errors.New("rolled back")

func (s *client) once(ops []op) error {
	tx := s.tx
	if err := tx.Begin(); err != nil {
		return err
	}
	if s.counted {
		s.ids = append(s.ids, tx.ID())
	}
	err := s.steps(ops)
	if err == nil {
		return tx.Commit()
	}
	if e := tx.Rollback(); e != nil {
		return errors.Join(err, e)
	}
	return err
}

func (s *client) steps(ops []op) error {
	tx := s.tx
	for len(ops) > 0 {
		n := slices.IndexFunc(ops, func(o op) bool { return o.what == opThen })
		if n < 0 {
			n = len(ops)
		}
		part := ops[:n]
		ops = ops[min(n+1, len(ops)):]
		at := make([]int, len(part))
		for i, o := range part {
			if o.what == opRoll {
				continue
			}
			var err error
			if at[i], err = tx.Stage(s.table, []byte(o.key), o.what != opGet && o.what != opLate); err != nil {
				return err
			}
			if o.what == opInsert {
				if err := tx.Insert(at[i], []byte(o.value)); err != nil {
					return err
				}
			}
		}
		if err := tx.Execute(); err != nil {
			return err
		}
		for i, o := range part {
			var err error
			switch o.what {
			case opPut, opLate:
				err = tx.Put(at[i], []byte(o.value))
			case opDelete:
				err = tx.Delete(at[i])
			case opInsert:
				if tx.Found(at[i]) {
					tx.Withdraw(at[i])
					err = errExists
				}
			case opRoll:
				err = errRolled
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// warm reads keys, so that their addresses are cached, and fetches free blocks, so
// that inserts and moves need not.
func (s *client) warm(keys ...string) {
	s.w.t.Helper()
	s.tx.Record(nil, nil)
	for _, v := range []string{"", big("x", 100), big("x", 200)} {
		if err := s.once([]op{insert("fresh", v), roll()}); !errors.Is(err, errRolled) {
			s.w.t.Fatal(err)
		}
	}
	for _, key := range keys {
		if err := s.once([]op{{opGet, key, ""}}); err != nil {
			s.w.t.Fatal(err)
		}
	}
	s.tx.Record(s.w.rec.Session(), func() int64 { s.w.tick++; return s.w.tick })
}

// keysOf lists the keys that ops name.
func keysOf(ops []op) (keys []string) {
	for _, o := range ops {
		if o.key != "" && !slices.Contains(keys, o.key) {
			keys = append(keys, o.key)
		}
	}
	return keys
}

// content is what the given keys hold, read by a transaction; "" is absence.
func (w *world) content(s *client, keys []string) map[string]string {
	w.t.Helper()
	out := w.contentOnce(s, keys)
	for range 8 {
		if out["error"] == "" {
			break
		}
		if ok, err := s.tx.Unblock(); !ok || err != nil {
			break
		}
		out = w.contentOnce(s, keys)
	}
	return out
}

// contentOnce is content, without help for who is in somebody's way that is gone.
func (w *world) contentOnce(s *client, keys []string) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	if err := s.tx.Begin(); err != nil {
		w.t.Fatal(err)
	}
	at := make([]int, len(keys))
	for i, key := range keys {
		var err error
		if at[i], err = s.tx.Stage(s.table, []byte(key), false); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := s.tx.Execute(); err != nil {
		_ = s.tx.Rollback()
		return map[string]string{"error": err.Error()}
	}
	for i, key := range keys {
		if v, ok := s.tx.Read(at[i]); ok {
			out[key] = string(v)
		}
	}
	if err := s.tx.Commit(); err != nil {
		return map[string]string{"error": err.Error()}
	}
	return out
}

// print makes a content comparable, and short.
func printed(content map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(content)) {
		v := content[key]
		if len(v) > 12 {
			v = fmt.Sprintf("%s(%d)", v[:1], len(v))
		}
		fmt.Fprintf(&b, "%s=%s ", strings.TrimRight(key, "."), v)
	}
	return b.String()
}

// judge walks the database, in which nobody runs, and reads the keys. States of the
// memory that have been seen before are not walked again.
func (w *world) judge(keys []string) verdict {
	w.t.Helper()
	h := w.state()
	if v, ok := w.judged[h]; ok {
		return v
	}
	var v verdict
	v.findings = w.walk()
	v.content = printed(w.content(w.client(), keys))
	w.judged[h] = v
	return v
}

// state tells states of memory and catalog apart.
func (w *world) state() uint64 {
	w.t.Helper()
	entries, _, err := w.cat.Load()
	if err != nil {
		w.t.Fatal(err)
	}
	h := w.f.Hash()
	for _, e := range entries {
		h = h*31 + maphash.String(seed, e.Key) ^ maphash.Bytes(seed, e.Value)
	}
	return h
}

var seed = maphash.MakeSeed()

// walk returns what verify finds.
func (w *world) walk() string {
	w.t.Helper()
	d, err := verify.Attach(w.f, w.space.Layout())
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	w.summary, err = d.Check(context.Background(), verify.Options{Report: func(f verify.Finding) error {
		if w.pardon != nil && w.pardon(f) {
			w.pardoned++
			return nil
		}
		fmt.Fprintf(&b, "%v\n", f)
		return nil
	}})
	if err = errors.Join(err, d.Close()); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

// spare holds the blocks that were given back against what the blades say of them: one
// that is not free, or is there twice, would be somebody's two times.
func (w *world) spare() error {
	seen := map[memory.Addr]bool{}
	v := w.space.View()
	for _, a := range w.space.Spare() {
		if seen[a] {
			return fmt.Errorf("block %v was given back twice", a)
		}
		seen[a] = true
		if v.Copies(a) == 0 {
			continue
		}
		if img := w.image(v.At(a, 0), record.LineSize); img.Meta().State() != record.Free {
			return fmt.Errorf("block %v was given back, and is not free: state %d, version %v", a, img.Meta().State(), img.Version())
		}
	}
	return nil
}

// owned demands that every block which is free is in a pool, or a live session has it, and
// that none is there twice: nothing has to be opened again for it. A sweep is over.
func (w *world) owned() error {
	var free []memory.FreeBlock
	v := w.space.View()
	_ = w.everyBlock(func(a memory.Addr, _ uint32) error {
		if img := w.image(v.At(a, 0), record.LineSize); img.Meta().State() == record.Free && !img.Guard().Held() {
			free = append(free, memory.FreeBlock{Addr: a, Version: uint64(img.Version())})
		}
		return nil
	})
	nobodys, twice := w.space.Unowned(free)
	if len(twice) > 0 {
		return fmt.Errorf("blocks are there twice: %v", twice)
	}
	if len(nobodys) > 0 {
		return fmt.Errorf("%d free blocks are nobody's: %v ... (version %v)", len(nobodys), nobodys[0].Addr, record.TxID(nobodys[0].Version))
	}
	return nil
}
