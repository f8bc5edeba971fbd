package exhaustive

import (
	"errors"
	"fmt"
	"math"

	"txnode/history"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/steptest"
)

// advance lets one client go on for n moves, requests first and placements when nothing
// else is left, and returns how many there were.
func (w *world) advance(c *steptest.Client, n int) int {
	for i := range n {
		next := steptest.Move{Port: -1}
		for _, m := range w.f.Moves() {
			if w.f.Of(m) == c && (next.Port < 0 || next.Place && !m.Place) {
				next = m
			}
		}
		if next.Port < 0 {
			return i
		}
		w.f.Do(next)
	}
	return n
}

// place makes visible what a client has written to a blade.
func (w *world) place(c *steptest.Client, b rdma.BladeID) {
	for _, m := range w.f.Moves() {
		if m.Place && m.Blade == b && w.f.Of(m) == c {
			w.f.Do(m)
			return
		}
	}
}

// toTheEnd lets everybody go on until nothing is left to be done.
func (w *world) toTheEnd() {
	for m := w.f.Moves(); len(m) > 0; m = w.f.Moves() {
		w.f.Do(m[0])
	}
}

// allMoves is an argument of advance: to the end.
const allMoves = math.MaxInt

// stopClients stops clients where they are; what they were about becomes of unknown outcome.
func stopClients(clients ...*client) {
	for _, s := range clients {
		if !s.run.Ended() {
			s.run.Stop()
			s.tx.Abandon()
		}
	}
}

// damaged is told what a recovery could not finish since an index is damaged. None is: who takes
// one for it would leave undone what this world is to see done.
func (w *world) damaged(err error) {
	if errors.Is(err, layout.ErrCorrupt) {
		w.t.Errorf("no index is damaged, and a recovery has met: %v", err)
	}
}

// recoveryBy are the options of a recovery by a client, or, nil, by nobody in particular.
func (w *world) recoveryBy(by *client) recovery.Options {
	o := recovery.Options{Space: w.space, Steal: true, Damaged: w.damaged}
	if by != nil {
		o.By = by.session.Coordinator()
	}
	return o
}

// decide decides what clients that are dead have left behind, those whose coordinators are
// registered still; by may be nil.
func (w *world) decide(c *rdma.Coro, by *client, dead ...*client) error {
	var ids []uint32
	for _, s := range dead {
		ids = append(ids, s.session.Coordinator())
	}
	_, err := recovery.Recover(c, w.recoveryBy(by), ids...)
	return err
}

// recovers is decide, by the client.
func (s *client) recovers(dead ...*client) error { return s.w.decide(s.c, s, dead...) }

// recoverFrom is decide, and a sweep.
func (w *world) recoverFrom(by *client, dead ...*client) error {
	c := w.ctl.Plain()
	if by != nil {
		c = by.c
	}
	if err := w.decide(c, by, dead...); err != nil {
		return err
	}
	_, err := recovery.Sweep(c, w.recoveryBy(by))
	return err
}

// agree holds everything against everything when nobody runs any more and the clients
// that did not end well were recovered: the history with what the verdicts say of the
// transactions whose clients do not know, the contents of pairKeys as the last reader of
// it, and the bytes.
func (w *world) agree(clients ...*client) error {
	for i, s := range clients {
		if err := w.resolved(s); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
	}
	found, err := w.sound(pairKeys)
	if err == nil {
		err = w.spare()
	}
	if err != nil {
		return err
	}
	told := ""
	for _, s := range clients {
		told += fmt.Sprintf("%v ", s.told)
	}
	if now := w.content(w.client(), pairKeys); now["error"] != "" {
		return fmt.Errorf("cannot be read: %v\ntold: %s", now, told)
	}
	if err := w.consistent(); err != nil {
		return fmt.Errorf("%w\nfound: %s\ntold: %s", err, found, told)
	}
	return nil
}

// resolved tells the history how the last transaction of a client ended that was
// recovered, and holds the verdict against what the client was told.
func (w *world) resolved(s *client) error {
	v, ok := w.space.Verdict(s.session.Coordinator())
	if !ok {
		return nil // it was not recovered
	}
	writes := map[uint64]bool{}
	ended := map[uint64]history.Outcome{}
	for _, t := range w.rec.Txns() {
		for _, o := range t.Ops {
			writes[t.ID] = writes[t.ID] || o.Kind == history.Write || o.Kind == history.Delete
		}
		ended[t.ID] = t.Outcome
	}
	for i, id := range s.ids {
		o, t := v.Of(id.Seq()), uint64(id)
		switch {
		case ended[t] == history.Committed:
			if o == layout.OutcomeAborted && writes[t] {
				return fmt.Errorf("attempt %d has committed, and the verdict on it is %v", i, o)
			}
		case ended[t] == 0:
			if o == layout.OutcomeCommitted {
				return fmt.Errorf("attempt %d was aborted, and the verdict on it is %v; told %v", i, o, s.told)
			}
		case o != layout.OutcomeUnknown:
			s.tx.Resolved(id, o == layout.OutcomeCommitted)
		case writes[t]:
			return fmt.Errorf("attempt %d is undecided, and the catalog does not say how it ended; told %v", i, s.told)
		}
	}
	return nil
}

// anew begins another run, in which every request is a move.
func (w *world) anew() {
	w.restart()
	w.f.SetGrain(steptest.Verbs, false)
}

// start makes a client for each of the transactions, who knows the addresses of its keys;
// then they begin, one after the other, and try once.
func (w *world) start(txns ...txn) (clients []*client) {
	w.tombstones(opsOf(txns))
	for range txns {
		clients = append(clients, w.client())
	}
	for i, s := range clients {
		s.warm(keysOf(txns[i].ops)...)
	}
	for i, s := range clients {
		s.begins(1, txns[i].ops...)
	}
	return clients
}

// begins starts a client on its transactions. After a conflict they are tried again, so
// many times in all, with pauses.
func (s *client) begins(tries int, ops ...op) {
	s.run = s.w.f.Go(func() {
		for range tries {
			if s.do(ops...) != nil || !errors.Is(s.told[len(s.told)-1], occ.ErrConflict) {
				return
			}
			s.c.Sleep(10_000_000)
		}
	})
}

// lateVerbs lets everybody go on to the end who is declared dead, when all is decided:
// nothing changes any more.
func (w *world) lateVerbs() error {
	was := w.state()
	w.toTheEnd()
	if w.state() != was {
		return errors.New("a late verb has changed something")
	}
	return nil
}

// agreeLate is lateVerbs, and then agree.
func (w *world) agreeLate(clients ...*client) error {
	if err := w.lateVerbs(); err != nil {
		return err
	}
	return w.agree(clients...)
}
