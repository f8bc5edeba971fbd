package main

import (
	"context"
	"flag"
	"os/exec"
	"slices"
	"testing"
	"time"

	"txnode/cluster"
	"txnode/memory/layout"
)

// Processes that are silent: writers are killed one by one, and another takes each one's place. The
// test measures how long each one stays registered, and how many were taken for dead that are
// alive, beside goroutines that keep the processors busy.

var (
	silenceRounds = flag.Int("silence.rounds", 2, "how many writers are killed")
	silenceQuiet  = flag.Duration("silence.quiet", 0, "for how long none is killed, before that")
	silenceLease  = flag.Duration("silence.lease", 500*time.Millisecond, "lease of the writers")
	silenceSpin   = flag.Int("silence.spin", 0, "goroutines of each writer that do nothing but keep a processor busy")
)

// registrations follows which processes have a database open.
type registrations struct {
	t   *testing.T
	cat layout.Catalog
	rev layout.Revision
	ids []uint32
	// ended is how many registrations have ended.
	ended int
	// changes of the catalog that were seen.
	changes int
}

// next waits for a change of the catalog, for so long at most.
func (r *registrations) next(patience time.Duration) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	rev, err := r.cat.Await(ctx, r.rev)
	if err != nil && ctx.Err() != nil {
		return
	}
	l, err2 := layout.LoadLayout(r.cat)
	if err != nil || err2 != nil {
		r.t.Fatal(err, err2)
	}
	r.rev = rev
	r.changes++
	var now []uint32
	for _, p := range l.Processes {
		if !p.Resigned() {
			now = append(now, p.ID)
		}
	}
	for _, id := range r.ids {
		if !slices.Contains(now, id) {
			r.ended++
		}
	}
	r.ids = now
}

// TestSilentProcesses: see above.
func TestSilentProcesses(t *testing.T) {
	c := &chaos{
		t: t, lease: *silenceLease, spin: *silenceSpin, blades: make([]*exec.Cmd, 2), writers: make([]*exec.Cmd, 3),
	}
	c.begin()
	cat, err := cluster.DialCatalog(t.Context(), c.address, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cat.Close()
	r := &registrations{t: t, cat: cat}
	c.await("not all writers are registered", func() bool { r.next(time.Second); return len(r.ids) == len(c.writers) })
	r.ended, r.changes = 0, 0
	began := time.Now()
	for time.Since(began) < *silenceQuiet {
		r.next(*silenceQuiet - time.Since(began))
	}
	alarms, changes, quiet := r.ended, r.changes, time.Since(began)
	var took []time.Duration
	for round := range *silenceRounds {
		had := len(r.ids)
		i := round % len(c.writers)
		killed := time.Now()
		c.kill(c.writers[i])
		c.await("a dead writer stays registered", func() bool { r.next(time.Second); return len(r.ids) < had })
		took = append(took, time.Since(killed))
		c.startWriter(i)
		c.goOn("after a writer was killed")
		c.await("not all writers are registered", func() bool {
			r.next(time.Second)
			return len(r.ids) == len(c.writers)
		})
		time.Sleep(time.Second)
	}
	c.audit("at the end")
	slices.Sort(took)
	t.Logf("lease %v: %d registrations of %d processes ended within %v while all were alive, and the catalog changed "+
		"%d times; dead ones ended after %v",
		c.lease, alarms, len(c.writers), quiet.Round(time.Millisecond), changes, took)
}
