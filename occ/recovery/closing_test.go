package recovery_test

import (
	"testing"

	"txnode/occ"
)

// TestClosedTogether: two sessions are closed at about the same time, of which one has a lock on a record
// that the other one has deleted, until it ends. No deleted record stays.
func TestClosedTogether(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			for first := range 2 { // who has the later thread
				for delay := int64(0); delay < 30_000; delay += 500 {
					closedTogether(t, s, first, delay)
				}
			}
		})
	}
}

// TestClosedTooEarly: a session that has taken deleted records of others upon itself cannot be closed, since a
// transaction of it is open: somebody else has them from then on.
func TestClosedTooEarly(t *testing.T) {
	w := newWorld(t, setting{occ.PolicyDefault, 1, strong}, occ.Options{ReclaimAfter: 100})
	ours, own := w.session()
	busy, tx := w.session()
	late, open := w.session()
	w.sure(ours, own, put("a", "1"))
	w.sure(ours, own, del("a"))
	own.Coro().Sleep(10_000) // until its locks are released
	must(t, w.open(tx, put("a", "2")))
	if n, err := late.MakeRoom(late.Thread().Plain()); n != 0 || err != nil {
		t.Fatalf("%d deleted records are reclaimed: %v", n, err)
	}
	must(t, w.open(open, put("b", "1")))
	if err := late.Close(); err == nil {
		t.Error("closed, with a transaction that is open")
	}
	_ = tx.Rollback()
	must(t, busy.Close())
	must(t, ours.Close())
	if n := w.deleted(w.table); n > 0 {
		t.Errorf("%d records are deleted", n)
	}
	_ = open.Rollback()
	must(t, late.Close())
	w.check("closed")
}
