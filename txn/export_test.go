package txn

import "txnode/rdma"

// Unanswering lists the blades that should be up, and whose failure the next transaction
// would see to.
func (db *DB) Unanswering() ([]rdma.BladeID, error) {
	db.ctlMu.Lock()
	defer db.ctlMu.Unlock()
	return db.probe(db.ctl.Plain())
}

// LookForGaps is what ends the sight of a blade that does not answer.
func (db *DB) LookForGaps() { db.lookForGaps() }
