package recovery_test

import (
	"testing"

	"txnode/occ"
	"txnode/rdma/rdmatest"
)

// TestClosedTogether: two sessions are closed at about the same time, of which one has a lock on a
// record that the other one has deleted, until it ends. No deleted record stays.
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

// TestClosedBesideRelease: a session is closed while another one, whose closing has begun before,
// waits for the release of its lock on a record that the first one has deleted. The one that is
// closed last inherits the record, and reclaims it.
func TestClosedBesideRelease(t *testing.T) {
	for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		s := setting{p, 1, weak} // on a better fabric a Rollback returns when the locks are released
		t.Run(s.String(), func(t *testing.T) {
			service := int64(10)
			w := newWorldIn(t, rdmatest.Options{
				Blades: 3, Size: 3 << 20, ServiceNs: func(int) int64 { return service },
			}, s, occ.Options{ReclaimAfter: 100}, 64<<10)
			ours, own := w.session()
			busy, tx := w.session()
			w.sure(ours, own, put("a", "1"))
			w.sure(ours, own, del("a"))
			own.Coro().Sleep(10_000) // until its locks are released
			must(t, w.open(tx, put("a", "2")))
			w.f.Run(2, func(i int) {
				if i == 0 {
					service = 100_000 // until the lock is released
					_ = tx.Rollback()
					service = 10
					must(t, busy.Close())
					return
				}
				own.Coro().Sleep(100) // busy is being closed now
				must(t, ours.Close())
				if w.deleted(w.table) == 0 {
					t.Error("the other one's lock was released before")
				}
			})
			if n := w.deleted(w.table); n > 0 {
				t.Errorf("%d records are deleted, and all sessions closed", n)
			}
			w.check("closed")
		})
	}
}

// TestClosedTooEarly: a session that has taken deleted records of others upon itself cannot be
// closed, since a transaction of it is open: somebody else has them from then on.
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
