package exhaustive

import (
	"fmt"
	"testing"

	"txnode/occ"
	"txnode/rdma/steptest"
)

// TestPairs runs pairs of transactions that are in each other's way in every order of
// their requests.
func TestPairs(t *testing.T) {
	each(t, configs(), func(t *testing.T, c config) {
		w := newWorld(t, c, loadPairs)
		for i, x := range conflicting {
			for _, y := range conflicting[i:] {
				for _, cold := range []bool{false, true} {
					name := x.name + "+" + y.name
					if cold {
						name += "/cold"
					}
					t.Run(name, func(t *testing.T) { pair(t, w, cold, byRun(3, 2000, 2), x, y) })
				}
			}
		}
	})
}

// TestMorePairs is TestPairs for canonical transactions that come to a record more than once,
// or change in place what they have read: each with some that are in its way, and with itself.
func TestMorePairs(t *testing.T) {
	all := configs()
	if !*full {
		all = those(all, config.promised, config.oneBackup)
	}
	each(t, all, func(t *testing.T, c config) {
		w := newWorld(t, c, loadPairs)
		limit := byRun(8, 600, 4)
		if !c.promised() {
			limit = byRun(8, 150, 4)
		}
		for _, p := range morePairs() {
			for _, cold := range []bool{false, true} {
				name := p[0].name + "+" + p[1].name
				if cold {
					name += "/cold"
				}
				t.Run(name, func(t *testing.T) { pair(t, w, cold, limit, p[0], p[1]) })
			}
		}
	})
}

// pair runs two transactions in every order, or in so many.
func pair(t *testing.T, w *world, cold bool, limit int, txns ...txn) {
	t.Helper()
	var clients []*client
	start := func() { clients = w.startPair(cold, txns...) }
	end := func(schedule) error { return w.endOfPair(clients) }
	w.orders(t, limit, start, end)
}

// orders runs clients in every order of their requests; if there are more than half of
// limit, in so many of them and as many that are drawn at random. A schedule that fails is
// printed as what repeats it.
func (w *world) orders(t *testing.T, limit int, start func(), end func(schedule) error) {
	t.Helper()
	if *only != "" || *single {
		s, err := steptest.ParseSchedule(*only)
		if err != nil {
			t.Fatal(err)
		}
		w.try(t, func() error {
			start()
			w.f.Replay(s)
			return end(s)
		})
		return
	}
	var at schedule
	n := 0
	visit := func(s schedule) error {
		at = s
		n++
		return end(s)
	}
	w.try(t, func() error {
		err := guarded(func() error {
			_, all, err := w.f.Interleave(limit/2, true, start, visit)
			if err == nil && !all {
				err = w.f.Walks(limit/2, start, visit)
				done.more(t, orders)
			}
			return err
		})
		done.add(t, orders, n)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, rerun(t, fmt.Sprintf("-replay -schedule '%v'", at)))
		}
		return nil
	})
}

// startPair begins a run of transactions, each of a client of its own.
func (w *world) startPair(cold bool, txns ...txn) (clients []*client) {
	w.restart()
	w.f.SetGrain(fineOr(steptest.Queues), false)
	w.tombstones(opsOf(txns))
	for _, x := range txns {
		s := w.client()
		if cold {
			s.warm()
		} else {
			s.warm(keysOf(x.ops)...)
		}
		clients = append(clients, s)
	}
	for i, s := range clients {
		s.run = w.f.Go(func() {
			if err := s.do(txns[i].ops...); err != nil {
				panic(err)
			}
		})
	}
	return clients
}

// TestReduction holds the schedules that are left out against those that are run:
// both have the same outcomes.
func TestReduction(t *testing.T) {
	configs := []config{
		{policy: occ.PolicyDefault, backups: 1, caps: strong}, {policy: occ.PolicyFORD, backups: 1, caps: strong},
	}
	pairs := [][2]string{
		{"read-ab", "write-a"}, {"read-ab", "read-b-write-a"}, {"write-a", "late-a"},
		{"read-a-write-b", "read-b-write-a"},
	}
	if !*full {
		configs = configs[:1]
	}
	if testing.Short() {
		pairs = pairs[:2]
	}
	for _, c := range configs {
		w := newWorld(t, c, loadPairs)
		for _, p := range pairs {
			var outcomes [2]map[string]int
			var runs [2]int
			for i := range outcomes {
				outcomes[i] = map[string]int{}
				var clients []*client
				var err error
				runs[i], _, err = w.f.Interleave(6_000, i == 0,
					func() { clients = w.startPair(false, named(p[0]), named(p[1])) },
					func(schedule) error {
						v := w.judge(pairKeys)
						outcomes[i][fmt.Sprint(clients[0].told, clients[1].told, v)]++
						return nil
					})
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%v, %v and %v: %d schedules stand for %d; %d outcomes",
				c, p[0], p[1], runs[0], runs[1], len(outcomes[0]))
			for o := range outcomes[1] {
				if outcomes[0][o] == 0 {
					t.Errorf("%v, %v: an outcome is missed: %s", c, p, o)
				}
			}
			w.f.End()
		}
	}
}

// endOfPair checks what two clients have left.
func (w *world) endOfPair(clients []*client) error {
	for i, s := range clients {
		if !s.run.Ended() {
			return fmt.Errorf("client %d has not come to its end", i)
		}
	}
	keys := pairKeys
	if w.conf.entries > 0 {
		keys = rangeKeys
	}
	found, err := w.sound(keys)
	if err != nil {
		return err
	}
	w.content(w.client(), keys)
	if err := w.consistent(); err != nil {
		return fmt.Errorf("%w\nfound: %s\ntold: %v, %v", err, found, clients[0].told, clients[1].told)
	}
	return nil
}
