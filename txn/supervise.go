package txn

import (
	"txnode/rdma"
	"txnode/txn/supervisor"
)

// What looks after blades, copies and coordinators beside the transactions is a type of its own:
// see package supervisor. Programs find its reports here.
type (
	// Outage is the story of a blade that was lost.
	Outage = supervisor.Outage
	// Redundancy is how well the data is copied just now.
	Redundancy = supervisor.Redundancy
	// CopyMetrics are how far a process is with the copies that it builds now.
	CopyMetrics = supervisor.CopyMetrics
)

// host is what the supervisor asks of a database.
type host struct{ db *DB }

// supervise makes the supervisor, which renews the registration of the process from now on.
func (db *DB) supervise() {
	db.sup = supervisor.New(supervisor.Options{
		Space: db.space, Fabric: db.fabric, Host: host{db}, Logger: db.opts.Logger, Techniques: *db.opts.Techniques,
		Thread:    controlThread + 1,
		LeaseTerm: db.opts.LeaseTerm, GiveBack: db.opts.GiveBack,
	})
}

// Control implements supervisor.Host.
func (h host) Control(fn func(c *rdma.Coro) error) error {
	h.db.ctlMu.Lock()
	defer h.db.ctlMu.Unlock()
	return fn(h.db.ctl.Plain())
}

// BesideBackups implements supervisor.Host: a backup of this process alone holds dropMu.
func (h host) BesideBackups(fn func() error) error {
	if !h.db.space.Shared() {
		if !h.db.dropMu.TryLock() {
			return nil
		}
		defer h.db.dropMu.Unlock()
	}
	return fn()
}

// Ask implements supervisor.Host.
func (h host) Ask() (rested func() (bool, error), err error) {
	n, err := h.db.space.Ask()
	own, since, term := h.db.ownRest(), h.db.fabric.Now(), int64(h.db.opts.LeaseTerm)
	return func() (bool, error) {
		rested, _, err := h.db.allRested(n, own)
		// in a shared database lookForRest does so
		if now := h.db.fabric.Now(); own != nil && !rested && term > 0 && now-since > term {
			since = now
			h.db.recoverLate(own.Late())
		}
		return rested, err
	}, err
}

// LookForRest implements supervisor.Host.
func (h host) LookForRest() (more bool) { return h.db.lookForRest() }

// withBlades is supervisor.WithBlades on the control thread. The caller holds ctlMu.
func (db *DB) withBlades(fn func(c *rdma.Coro) error) error {
	return db.sup.WithBlades(db.ctl.Plain(), fn)
}

// Redundancy tells how well the data is copied, which blades are missing, and how far
// their replacement is.
func (db *DB) Redundancy() Redundancy {
	if db.sup == nil { // the zero value
		return Redundancy{}
	}
	return db.sup.Redundancy()
}

// Tenders returns bodies that do, on a fabric with virtual time, what goroutines of a database do
// where time is real: the first renews leases and hears of changes of the catalog, the second does
// maintenance, the third looks after blades and copies. Each has a thread of its own, and is to run
// in a body of Fabric.Run of its own. It returns soon after over returns true, which it asks
// between two rounds; its error is that it has no thread. While one of them runs, workers leave all
// of that to them. All must have returned when the database is closed. It is for simulations, which
// otherwise never have a thread that is no session's in the middle of something.
func (db *DB) Tenders(over func() bool) []func() error { return db.sup.Tenders(over) }
