package channelbench

import (
	"context"
	"errors"
	"fmt"

	"txnode/channel"
)

// Variants of what a member dies with.
const (
	dieMutex   = "holder of a Mutex"
	dieTicket  = "holder of a TicketLock"
	dieKV      = "holder of a bucket of a KV"
	dieBarrier = "party of a Barrier"
)

// failTerm is the term of members, ns.
const failTerm = 1_000_000

func failures(*Config) (all []setup) {
	for _, v := range []string{dieMutex, dieTicket, dieKV, dieBarrier} {
		all = append(all, setup{Point{Variant: v, X: failTerm / 1e3, XName: "term us"}, fail})
	}
	return all
}

// fail lets one of two members stop, and measures until the other one goes on.
func fail(ctx context.Context, c *Config, p *Point) error {
	w, err := c.simulated(shape{nodes: 2, threads: 1, window: 1, blades: 2, term: failTerm})
	if err != nil {
		return err
	}
	var died int64
	err = w.run(ctx, func(ctx context.Context, s *seat) error {
		hold, err := s.holds(ctx, p.Variant)
		if err != nil {
			return err
		}
		if s.n == 0 {
			if err := s.m.Beat(s.c); err != nil {
				return err
			}
			if p.Variant != dieBarrier {
				err = hold(ctx)
			}
			died = s.c.Thread().Now()
			return err
		}
		for died == 0 {
			s.c.Sleep(failTerm / 100)
		}
		before := *s.c.Count
		if err := hold(ctx); err != nil && !(p.Variant == dieBarrier && errors.Is(err, channel.ErrMissing)) {
			return err
		} else if err == nil && p.Variant == dieBarrier {
			return fmt.Errorf("%w: a barrier did not miss its party", errWrong)
		}
		s.tally = tally{
			ops: 1, verbs: s.c.Count.Total() - before.Total(), trips: s.c.Count.RoundTrips - before.RoundTrips,
			took: []int64{s.c.Thread().Now() - died},
		}
		return nil
	})
	w.fill(p, failTerm, true)
	return w.uncounted(err)
}

// holds opens an object and returns what takes it, or waits for it.
func (s *seat) holds(ctx context.Context, variant string) (func(ctx context.Context) error, error) {
	scope := s.m.Scope("f")
	switch variant {
	case dieMutex:
		l, err := channel.OpenMutex(ctx, s.c, scope, "mutex")
		return func(ctx context.Context) error { _, err := l.Lock(ctx, s.c); return err }, err
	case dieTicket:
		l, err := channel.OpenTicketLock(ctx, s.c, scope, "ticket")
		return func(ctx context.Context) error { _, err := l.Lock(ctx, s.c); return err }, err
	case dieKV:
		v, err := channel.OpenKV(ctx, s.c, scope, "kv", channel.Plain[uint64]("key"), channel.Plain[uint64]("value"),
			channel.KVOptions{})
		return func(ctx context.Context) error { _, _, err := v.Hold(ctx, s.c, 1); return err }, err
	}
	b, err := channel.OpenBarrier(ctx, s.c, scope, "barrier", 2)
	return func(ctx context.Context) error { return b.Wait(ctx, s.c) }, err
}
