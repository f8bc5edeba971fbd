package recovery_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/blink"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/verify"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts anew")

// TestTranscripts tells the stories in testdata, of this package and of occ: steps, one a line, and
// behind each, indented, what it posts, verb by verb. With -rewrite they are written anew. The
// steps:
//
//	database [backups=1] [blades=3] [policy=ford] [ordered] [reclaim=N]
//	load k=v ...             rows that are there before the story, by a session that is closed
//	client A [knows k ...]   a session, which may have the addresses of rows in its cache
//	A: begin, A: commit, A: rollback
//	A: get k ...             stages the keys together, and executes
//	A: put k=v ...           likewise; A: delete k ...
//	A: range k l             reads the rows of keys from k on, below l
//	A: posts                 makes what the index is owed: separators, a new root
//	A: reclaim               unlinks and frees the rows that A has deleted
//	A: unblock               looks after the lock that A has met
//	A: repair                repairs the block that A has met damaged
//	A: rejoin                goes on as a new coordinator, after a failure
//	stop A after N           the next step of A ends behind N verbs, as if A were killed
//	tear A after N           likewise, and of the next verb, a WRITE, one half arrives
//	pause A before N         the next step of A pauses before its round trip N; "wake A" ends that
//	recover A by R, sweep by R
//	lose blade of k by R     the blade of the row's primary stops, and R declares it dead
//	damage backup of k       or the primary: one bit of the value
//	dump                     all blocks that the story has met
//	check                    that the database is as if nothing had been stopped or lost
//
// In what comes out, numbers in front count the round trips of a step: what has no number was
// posted together with the verb above. The number behind the verb is the blade. A transaction is
// called by its client, and its number there: a.1 is the first one of a. A guard is "held by a.2",
// or "free at a.1", which is its version. "load" stands for all that was there
// before. Blocks are called by the rows they hold; leaves are
// numbered as they are met.
func TestTranscripts(t *testing.T) {
	var files []string
	for _, dir := range []string{"../testdata/*.txt", "testdata/*.txt"} {
		in, err := filepath.Glob(dir)
		must(t, err)
		files = append(files, in...)
	}
	if len(files) == 0 {
		t.Fatal("there are no transcripts")
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(name)
			must(t, err)
			got := tell(t, string(want))
			switch {
			case got == string(want):
			case *rewrite:
				must(t, os.WriteFile(name, []byte(got), 0o600))
			default:
				t.Errorf("%s: it is now (write it with -rewrite)\n%s", name, got)
			}
		})
	}
}

// tell tells a story: its steps and remarks, with what comes out now.
func tell(t *testing.T, text string) string {
	var out strings.Builder
	var s *story
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "    ") { // what came out
			continue
		}
		fmt.Fprintln(&out, line)
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "database"):
			s = newStory(t, strings.Fields(line)[1:])
		default:
			s.run(line, &out)
		}
	}
	return out.String()
}

// story is a database, and what has happened to it.
type story struct {
	w            *world
	tapped       *tapped
	actors       map[string]*actor
	quiet        bool // what is posted is not told
	told         []*doorbell
	called       map[layout.Addr]string
	coordinators map[uint32]string
	slots        map[uint32]string
	txs          map[record.TxID]string
	drawn        map[uint32]int
}

// actor is a client, or what recovers.
type actor struct {
	s             *story
	name          string
	th            *rdma.Thread
	session       *occ.Session
	tx            *occ.Tx
	trips         int // of the step
	pauseAt       int // round trip before which it pauses; 0: none
	stopAt        int // verbs of the next step; negative: all
	torn          bool
	paused, awake chan struct{}
	ended         chan string
}

func newStory(t *testing.T, options []string) *story {
	blades, ordered, o := 3, false, occ.Options{ReclaimAfter: 100}
	set := setting{occ.PolicyDefault, 1, rdma.Caps{Placed: true, OrderedLine: true, MaskedCAS: true}}
	for _, x := range options {
		name, arg, _ := strings.Cut(x, "=")
		n, _ := strconv.Atoi(arg)
		switch name {
		case "backups":
			set.backups = n
		case "blades":
			blades = n
		case "reclaim":
			o.ReclaimAfter = n
		case "policy":
			set.policy = map[string]occ.Policy{"default": occ.PolicyDefault, "ford": occ.PolicyFORD}[arg]
		case "ordered":
			ordered = true
		default:
			t.Fatalf("unknown option %q", x)
		}
	}
	s := &story{
		quiet: true, actors: map[string]*actor{}, called: map[layout.Addr]string{},
		coordinators: map[uint32]string{}, slots: map[uint32]string{},
		txs: map[record.TxID]string{}, drawn: map[uint32]int{},
	}
	via := func(f *rdmatest.Fabric) rdma.Fabric {
		s.tapped = &tapped{Fabric: f, s: s}
		return s.tapped
	}
	s.w = newWorldVia(t, rdmatest.Options{Blades: blades, Size: 3 << 20}, via, set, o,
		memory.Options{SegmentSize: 256 << 10, LogArea: 64 << 10})
	if ordered {
		s.order()
	}
	for id := range s.w.space.Layout().NextCoordinator { // those that have made the tables
		s.coordinators[id] = "load"
	}
	return s
}

// order makes an ordered table, whose leaves have three entries, that of the story.
func (s *story) order() {
	w := s.w
	g, err := blink.Geometry{MaxKey: 32, MaxEntries: 3}.Fit()
	must(w.t, err)
	meta, err := w.space.CreateNodesTable("o", []byte(`{"key":"bytes","value":"bytes","index":"ordered"}`),
		g.Class, g.MaxKey, nil)
	must(w.t, err)
	se, tx := w.session()
	root, err := tx.NewNodes(&occ.Table{ID: meta.ID, Name: meta.Name}, g.Class, tree.Empty)
	must(w.t, err)
	w.setRoot(meta.ID, root)
	must(w.t, se.Close())
	tr, err := tree.New(w.space, g, meta.ID, root)
	must(w.t, err)
	w.table = &occ.Table{ID: meta.ID, Name: meta.Name, Index: tr}
}

// run runs a step, and prints what it has posted.
func (s *story) run(step string, out *strings.Builder) {
	for _, a := range s.actors {
		a.trips = 0
	}
	said := s.step(step)
	s.render(out)
	for line := range strings.Lines(said) {
		fmt.Fprintf(out, "    %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// step runs one, and returns what is said of it behind the verbs.
func (s *story) step(step string) string {
	f := strings.Fields(step)
	if name, ok := strings.CutSuffix(f[0], ":"); ok {
		return s.actor(name).act(func(a *actor) string { return a.do(f[1], f[2:]) })
	}
	number := func() int {
		n, err := strconv.Atoi(f[len(f)-1])
		must(s.w.t, err)
		return n
	}
	switch {
	case f[0] == "load":
		s.load(f[1:])
	case f[0] == "client":
		s.client(f[1], f[min(3, len(f)):])
	case f[0] == "stop" || f[0] == "tear":
		a := s.by(f[:2])
		a.stopAt, a.torn = number(), f[0] == "tear"
	case f[0] == "pause":
		s.by(f[:2]).pauseAt = number()
	case f[0] == "wake":
		return s.actor(f[1]).wake()
	case f[0] == "recover":
		id := s.actor(f[1]).tx.ID().Coordinator()
		return s.by(f).act(func(a *actor) string { return s.recovers(a, id) })
	case f[0] == "sweep":
		defer s.changes()
		return s.by(f).act(func(a *actor) string {
			rep, err := recovery.Sweep(a.th.Plain(), s.steals())
			return fmt.Sprintf("locks resolved: %d, blocks freed: %d%s", rep.Locks, rep.Freed, failed(err))
		})
	case f[0] == "lose":
		at := s.w.copiesOf(f[3])[0].Blade
		must(s.w.t, s.w.f.StopBlade(at))
		said := s.by(f).act(func(a *actor) string {
			_, err := recovery.FailOver(a.th.Plain(), s.steals(), s.w.space.DeclareDead(at))
			return fmt.Sprintf("blade %d is declared dead%s\n%s", at, failed(err), s.verdicts())
		})
		must(s.w.t, recovery.Reconnect(s.w.ctl.Plain(), s.w.space))
		return said
	case f[0] == "damage":
		at := s.w.copiesOf(f[3])[map[string]int{"primary": 0, "backup": 1}[f[1]]]
		s.w.f.Memory(at.Blade)[at.Off+record.KeyOff+8] ^= 1
	case f[0] == "dump":
		return s.dump()
	case f[0] == "check":
		return s.check()
	default:
		s.w.t.Fatalf("unknown step %q", step)
	}
	return ""
}

// changes forgets READs, of which a sweep posts one for each block.
func (s *story) changes() {
	for _, d := range s.told {
		d.verbs = slices.DeleteFunc(d.verbs, func(v *verb) bool { return v.wr.Op == rdma.OpRead })
	}
}

// failed is an error, without the numbers in it, behind what a step says.
func failed(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), ": transaction c")
	text, _, _ = strings.Cut(text, " of 64 bytes at")
	return "; fails: " + text
}

func (s *story) steals() recovery.Options {
	o := s.w.eng.Recovery()
	o.Steal = true
	return o
}

// actor is that of a name.
func (s *story) actor(name string) *actor {
	s.w.t.Helper()
	a := s.actors[name]
	if a == nil {
		s.w.t.Fatalf("there is no %s", name)
	}
	return a
}

// by is the actor that a step ends with, which need not exist yet.
func (s *story) by(f []string) *actor {
	name := f[len(f)-1]
	if s.actors[name] == nil {
		s.newActor(name)
	}
	return s.actors[name]
}

func (s *story) newActor(name string) *actor {
	a := &actor{
		s: s, name: name, stopAt: -1,
		paused: make(chan struct{}), awake: make(chan struct{}), ended: make(chan string),
	}
	s.tapped.next = a
	a.th = s.w.newThread()
	s.tapped.next = nil
	s.actors[name] = a
	return a
}

// client makes a client that knows the addresses of keys.
func (s *story) client(name string, keys []string) {
	a := s.newActor(name)
	var err error
	a.session, err = s.w.eng.NewSession(a.th)
	must(s.w.t, err)
	a.tx, err = a.session.NewTx(a.th.Plain())
	must(s.w.t, err)
	a.registered()
	if len(keys) > 0 {
		s.w.values(a.session, a.tx, keys...)
	}
}

// registered notes the number of a client's coordinator.
func (a *actor) registered() {
	id, s := a.session.Coordinator(), a.s
	e := s.w.space.Layout().Coordinator(id)
	if e == nil || s.coordinators[id] != "" {
		return
	}
	name := a.name
	for i := 2; slices.Contains(values(s.coordinators), name); i++ {
		name = fmt.Sprintf("%s(%d)", a.name, i)
	}
	s.coordinators[id], s.slots[e.Slot] = name, name
}

func values(m map[uint32]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// load makes rows.
func (s *story) load(rows []string) {
	se, tx := s.w.session()
	s.coordinators[se.Coordinator()] = "load"
	for _, r := range rows {
		k, v, _ := strings.Cut(r, "=")
		s.w.sure(se, tx, put(k, value(v)))
	}
	must(s.w.t, se.Close())
}

// value is a value: one that begins with "long" does not fit a line.
func value(v string) string {
	if strings.HasPrefix(v, "long") {
		return v + strings.Repeat(v[len(v)-1:], 200-len(v))
	}
	return v
}

// act runs a step of an actor, whose verbs are told. It may stop, or pause.
func (a *actor) act(fn func(a *actor) string) string {
	s := a.s
	if a.stopAt >= 0 {
		s.w.arm(a.stopAt)
	}
	s.quiet = false
	go func() { a.ended <- fn(a) }()
	return a.follow()
}

// wake goes on with a step that was paused.
func (a *actor) wake() string {
	a.s.quiet = false
	a.awake <- struct{}{}
	return a.follow()
}

// follow waits for the end of a step, or a pause.
func (a *actor) follow() (said string) {
	s := a.s
	select {
	case <-a.paused:
		said = a.name + " is paused"
	case said = <-a.ended:
		a.th.Plain().Sleep(10_000) // until locks are released
		if a.session != nil {
			a.registered()
		}
	}
	s.quiet = true
	if a.stopAt >= 0 {
		if s.w.disarm() {
			said = a.name + " is killed"
		}
		a.stopAt = -1
		if a.torn {
			s.tear()
		}
	}
	return said
}

// pause has the goroutine of a step wait.
func (a *actor) pause() {
	a.pauseAt = 0
	a.paused <- struct{}{}
	<-a.awake
}

// tear has one half of the WRITE arrive that was the first verb to fail.
func (s *story) tear() {
	for _, d := range s.told {
		for _, v := range d.verbs {
			if v.wr.Status == rdma.StatusNoBlade && v.wr.Op == rdma.OpWrite {
				copy(s.w.f.Memory(v.wr.Blade)[v.wr.Off:], v.data[:len(v.data)/2])
				what, _ := s.words(v)
				s.told = append(s.told, &doorbell{remark: "one half arrives of the WRITE of " + what})
				return
			}
		}
	}
}

// do is a step of a client.
func (a *actor) do(what string, args []string) string {
	w, tx := a.s.w, a.tx
	var err error
	switch what {
	case "begin":
		err = tx.Begin()
	case "get", "put", "delete":
		return a.stage(what, args)
	case "range":
		return a.ranges(args[0], args[1])
	case "commit":
		if err = tx.Commit(); err == nil {
			told := a.s.told
			for i, d := range told {
				if !d.done && d.remark == "" {
					a.s.told = slices.Insert(told, i, &doorbell{remark: "committed; what follows is not awaited"})
					return ""
				}
			}
			return "committed"
		}
	case "rollback":
		err = tx.Rollback()
	case "posts":
		err = tx.Posts(w.table)
	case "reclaim":
		var n int
		if n, err = a.session.MakeRoom(a.th.Plain()); err == nil {
			return fmt.Sprintf("blocks freed: %d", n)
		}
	case "unblock":
		var done bool
		if done, err = tx.Unblock(); err == nil {
			return map[bool]string{true: "the lock is resolved", false: "the lock is left alone"}[done]
		}
	case "repair":
		block := tx.Ill()
		if block == 0 {
			block = tx.Served()
		}
		m, whole, err := tx.Repair(block)
		return fmt.Sprintf("copies that were damaged: %d; all are whole now: %v%s", m.Copies, whole, failed(err))
	case "rejoin":
		if a.session.Broken() == nil {
			a.session.Break(errors.New("a verb was refused"))
		}
		err = a.session.Rejoin(a.th.Plain())
	default:
		w.t.Fatalf("unknown step %q", what)
	}
	return a.fails(err)
}

// fails says an error. A transaction that is open ends with it.
func (a *actor) fails(err error) string {
	if err == nil {
		return ""
	}
	if a.tx.Active() {
		_ = a.tx.Rollback()
	}
	return strings.TrimPrefix(failed(err), "; ")
}

// stage is get, put or delete.
func (a *actor) stage(what string, args []string) string {
	tx, t := a.tx, a.s.w.table
	var n []int
	for _, arg := range args {
		k, _, _ := strings.Cut(arg, "=")
		i, err := tx.Stage(t, []byte(k), what != "get")
		if err != nil {
			return a.fails(err)
		}
		n = append(n, i)
	}
	if err := tx.Execute(); err != nil {
		return a.fails(err)
	}
	var said []string
	for i, arg := range args {
		k, v, _ := strings.Cut(arg, "=")
		var err error
		switch what {
		case "get":
			v, ok := tx.Read(n[i])
			if said = append(said, k+"="+short(string(v))); !ok {
				said[i] = k + " is absent"
			}
		case "put":
			err = tx.Put(n[i], []byte(value(v)))
		case "delete":
			err = tx.Delete(n[i])
		}
		if err != nil {
			return a.fails(err)
		}
	}
	return strings.Join(said, ", ")
}

// ranges reads a range.
func (a *actor) ranges(from, to string) string {
	scan, err := a.tx.Range(a.s.w.table, index.Bound{Key: []byte(from)}, index.Bound{Key: []byte(to)}, false, 0)
	var said []string
	for err == nil {
		var k, v []byte
		var ok bool
		if k, v, ok, err = scan.Next(); !ok {
			break
		}
		said = append(said, fmt.Sprintf("%s=%s", k, short(string(v))))
	}
	if err != nil {
		return a.fails(err)
	}
	return strings.Join(said, ", ")
}

// recovers has a coordinator recovered.
func (s *story) recovers(a *actor, id uint32) string {
	_, err := recovery.Recover(a.th.Plain(), s.steals(), id)
	if err != nil {
		return a.name + failed(err)
	}
	return s.verdicts()
}

// verdicts says which transactions of recovered coordinators have committed.
func (s *story) verdicts() string {
	var out []string
	for id, name := range s.txs {
		if v, ok := s.w.space.Verdict(id.Coordinator()); ok {
			out = append(out, fmt.Sprintf("the verdict on %s: %v", name, v.Of(id.Seq())))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// dump is every block that has a name, copy by copy.
func (s *story) dump() string {
	type named struct {
		name string
		a    layout.Addr
	}
	var all []named
	for a, name := range s.called {
		all = append(all, named{name, a})
	}
	slices.SortFunc(all, func(x, y named) int { return strings.Compare(x.name, y.name) })
	var out strings.Builder
	v := s.w.space.View()
	for _, x := range all {
		var blades, holds []string
		for k := range v.Copies(x.a) {
			blades = append(blades, fmt.Sprint(v.At(x.a, k).Blade))
			holds = append(holds, s.image(x.a, s.memory(x.a, k)))
		}
		if len(slices.Compact(slices.Clone(holds))) == 1 {
			fmt.Fprintf(&out, "%-12s  blades %s  %s\n", x.name, strings.Join(blades, " "), holds[0])
			continue
		}
		for k := range holds {
			fmt.Fprintf(&out, "%-12s  blade  %s    %s\n", x.name, blades[k], holds[k])
		}
	}
	return out.String()
}

// check looks at the whole database.
func (s *story) check() string {
	s.w.check("at the end")
	found := 0
	s.w.examine(verify.Options{Report: func(verify.Finding) error { found++; return nil }})
	return fmt.Sprintf("%d findings", found)
}
