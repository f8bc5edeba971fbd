package exhaustive

import (
	"errors"
	"fmt"
	"math"

	"txnode/check"
	"txnode/history"
	"txnode/memory"
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
			s.tx.Forsake()
		}
	}
}

// recoverFrom recovers from coordinators that are dead, synchronously; those that are not
// registered any more are passed over.
func (w *world) recoverFrom(by *client, dead ...*client) error {
	o := recovery.Options{Space: w.space, Steal: true}
	if by != nil {
		o.By = by.session.Coordinator()
	}
	c := w.ctl.Plain()
	if by != nil {
		c = by.c
	}
	var ids []uint32
	for _, s := range dead {
		ids = append(ids, s.session.Coordinator())
	}
	if _, err := recovery.Recover(c, o, ids...); err != nil {
		return err
	}
	_, err := recovery.Sweep(c, o)
	return err
}

// agree holds everything against everything when nobody runs any more and the clients
// that did not end well were recovered: the history with what the verdicts say of the
// transactions whose clients do not know, the contents of keys as the last reader of it,
// and the bytes.
func (w *world) agree(keys []string, clients ...*client) error {
	for i, s := range clients {
		if err := w.resolved(s); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
	}
	v := w.judge(keys)
	if v.findings != "" {
		return fmt.Errorf("the database is damaged:\n%s", v.findings)
	}
	if err := w.spare(); err != nil {
		return err
	}
	told := ""
	for _, s := range clients {
		told += fmt.Sprintf("%v ", s.told)
	}
	if now := w.content(w.client(), keys); now["error"] != "" {
		return fmt.Errorf("cannot be read: %v\ntold: %s", now, told)
	}
	txns := append(w.initial[:len(w.initial):len(w.initial)], w.rec.Txns()...)
	if err := check.Check(txns, check.Options{FromEmpty: true}).Err(); err != nil {
		return fmt.Errorf("%w\nfound: %s\ntold: %s", err, v.content, told)
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
			if o == memory.OutcomeAborted && writes[t] {
				return fmt.Errorf("attempt %d has committed, and the verdict on it is %v", i, o)
			}
		case ended[t] == 0:
			if o == memory.OutcomeCommitted {
				return fmt.Errorf("attempt %d was aborted, and the verdict on it is %v; told %v", i, o, s.told)
			}
		case o != memory.OutcomeUnknown:
			s.tx.Resolved(id, o == memory.OutcomeCommitted)
		case writes[t]:
			return fmt.Errorf("attempt %d is undecided, and the catalog does not say how it ended; told %v", i, s.told)
		}
	}
	return nil
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

var errLate = errors.New("a late verb has changed something")
