package recovery_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

var breaks = flag.Int("breaks", 4, "how often TestQueuePairBreaks breaks a queue pair in each of its cases")

// broken is what a queue pair breaks in, of a session that goes on: it is told what its
// transaction has come to.
type broken struct {
	name string
	// run runs a transaction in the name of the victim, and what is done about it, and
	// says what it was told.
	run func(g *glitch, ops []op) error
}

// glitch is a case of TestQueuePairBreaks: of the two sessions the victim runs the transaction, and
// somebody else looks after it.
type glitch struct {
	*world
	r        *rand.Rand
	victim   *occ.Session
	tx       *occ.Tx
	other    *occ.Session
	otherTx  *occ.Tx
	verbs    [2]int // about how many verbs what breaks has, and how many of them are no READs
	lasting  bool
	happened int
}

// breakIn runs fn, and has a queue pair break with one of its verbs.
func (g *glitch) breakIn(fn func() error) error {
	changes := g.r.IntN(2) // 1: one that is no READ
	at, n, blade := g.r.IntN(g.verbs[changes]+1), 0, rdma.BladeID(0)
	g.lasting = g.r.IntN(3) == 0 // it breaks again, as often as it is connected
	g.stop = stop{pick: func(wr *rdma.WR) bool {
		if changes == 0 || wr.Op != rdma.OpRead {
			if n++; n == at+1 {
				blade = wr.Blade
			}
		}
		return n > at && wr.Blade == blade && (g.lasting || !g.stop.hit)
	}}
	err := fn()
	g.verbs[changes] = max(n, g.verbs[changes]*3/4)
	if g.disarm() {
		g.happened++
	}
	return err
}

// repair has a session go on behind an error.
func (g *glitch) mend(s *occ.Session, err error) {
	g.t.Helper()
	if err != nil && !errors.Is(err, occ.ErrConflict) {
		s.Break(err)
	}
	if s.Broken() != nil {
		must(g.t, s.Rejoin(s.Thread().Plain()))
	}
}

// growth has sub-tables split.
var growth = canonical{name: "growth", before: func(p string) []op { return []op{put(p+"a", "1")} },
	tx: func(p string) (ops []op) {
		for i := range 80 {
			ops = append(ops, put(fmt.Sprint(p, "-", i), "1"))
		}
		return ops
	}}

var brokenIn = []broken{
	{"commit", func(g *glitch, ops []op) error {
		told := g.breakIn(func() error { return g.do(g.tx, ops...) })
		g.mend(g.victim, told)
		return told
	}},
	{"rejoin", func(g *glitch, ops []op) error {
		g.arm(g.r.IntN(30))
		told := g.do(g.tx, ops...)
		g.disarm()
		g.victim.Break(errors.New("broken"))
		for range 3 {
			if g.breakIn(func() error { return g.victim.Rejoin(g.victim.Thread().Plain()) }) == nil {
				return told
			}
		}
		must(g.t, g.victim.Rejoin(g.victim.Thread().Plain()))
		return told
	}},
	{"recovery", func(g *glitch, ops []op) error { return g.lookAfter(ops, g.other) }},
	{"recovery without a coordinator", func(g *glitch, ops []op) error { return g.lookAfter(ops, nil) }},
	{"reclaiming", func(g *glitch, ops []op) error {
		told := g.do(g.tx, ops...)
		g.mend(g.victim, told)
		g.tx.Coro().Sleep(10_000)
		for range 2 {
			g.mend(g.victim, g.breakIn(func() error {
				_, err := g.victim.MakeRoom(g.victim.Thread().Plain())
				return err
			}))
		}
		return told
	}},
}

// lookAfter has the victim stop, as if its process were killed, and somebody recover it and sweep,
// whose queue pair breaks a few times.
func (g *glitch) lookAfter(ops []op, by *occ.Session) error {
	g.arm(g.r.IntN(30))
	told := g.do(g.tx, ops...)
	g.disarm()
	o, c := g.eng.Recovery(), g.ctl.Plain()
	if by != nil {
		o, c = by.Recovery(), by.Thread().Plain()
	}
	o.Steal = true
	for i := range 4 { // what a sweep that has failed leaves is for a later one
		if !g.space.Registered(g.victim.Coordinator()) && g.r.IntN(3) == 0 {
			break
		}
		job := func() error {
			if g.space.Registered(g.victim.Coordinator()) {
				_, err := recovery.Recover(c, o, g.victim.Coordinator())
				return err
			}
			_, err := recovery.Sweep(c, o)
			return err
		}
		var err error
		if i < 2 {
			err = g.breakIn(job)
		} else {
			err = job()
			must(g.t, err)
		}
		if err == nil {
			continue
		}
		if by == nil {
			must(g.t, recovery.Reconnect(c, g.space))
			continue
		}
		g.mend(by, err)
		o = by.Recovery()
		o.Steal = true
	}
	g.victim.Break(errors.New("it was declared dead"))
	must(g.t, g.victim.Rejoin(g.victim.Thread().Plain()))
	return told
}

// TestQueuePairBreaks: a queue pair to one blade breaks in the middle of a commit, of a rejoining,
// of a recovery, or of the reclaiming of deleted records, once, or as often as it is connected
// again, while those to the others are sound. The session goes on, and the others do, who know the
// blocks from before. The transaction has happened or not, as was told; then every key can be
// written, and is found by everybody; nothing is lost.
func TestQueuePairBreaks(t *testing.T) {
	for _, s := range settings(t) {
		for _, b := range brokenIn {
			t.Run(fmt.Sprintf("%v/%s", s, b.name), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(s.backups), uint64(*breaks))) // small
				happened := 0
				all := append(slices.Clone(canonicals), growth)
				for i := range all {
					g := &glitch{world: newWorld(t, s, occ.Options{ReclaimAfter: 100}), r: r, verbs: [2]int{30, 10}}
					g.victim, g.tx = g.session()
					g.other, g.otherTx = g.session()
					for k := range *breaks {
						g.once(&all[i], b, fmt.Sprint(k))
						if t.Failed() {
							t.Fatalf("%s, number %d", all[i].name, k)
						}
					}
					happened += g.happened
				}
				if happened == 0 && *breaks >= 4 {
					t.Error("no queue pair has broken")
				}
			})
		}
	}
}

// once is one case.
func (g *glitch) once(c *canonical, b broken, prefix string) {
	g.t.Helper()
	by, tx := g.other, g.otherTx
	if g.r.IntN(2) == 0 {
		by, tx = g.victim, g.tx // the tombstones are the victim's
	}
	ks, old, now := g.prepare(by, tx, c, prefix)
	g.values(g.other, g.otherTx, ks...)
	tx.Coro().Sleep(10_000)
	told := b.run(g, c.tx(prefix))
	if g.r.IntN(2) == 0 { // else it is written before anybody has looked
		got := g.values(g.other, g.otherTx, ks...)
		if !slices.Equal(got, now) && (told == nil || !slices.Equal(got, old)) {
			g.t.Fatalf("%.9q; before it was %.9q, and would be %.9q; told: %v", got, old, now, told)
		}
	}
	var all []op
	for _, k := range ks {
		all = append(all, put(k, "last"))
	}
	g.sure(g.other, g.otherTx, all...)
	g.otherTx.Coro().Sleep(10_000)
	fresh, another := g.session()
	for i, v := range g.values(fresh, another, ks...) {
		if v != "last" {
			g.t.Errorf("key %q has %.9q, written last was %q", ks[i], v, "last")
		}
	}
	must(g.t, fresh.Close())
	g.sweep()
	g.check(c.name)
}
