package memory

import (
	"sync"
	"sync/atomic"

	"txnode/memory/layout"
	"txnode/rdma"
)

// membership is what takes part in the database: this process and the others, coordinators and
// until when each is alive, rights, the keys that open blades, and which of the dead have left
// something to be swept.
//
// Invariants, under mu:
//
//	since <= layout.NextCoordinator
//	process < layout.NextCoordinator           0: it has not registered
//	id in own => id in layout.Coordinators     as far as the registry has been made since
//	claimed[id] >= 0, and own and claimed are of this process alone
//	!unrevoked => no key of an epoch before view.Epoch opens a blade
type membership struct {
	store

	// regs is what is asked without the lock: see register.
	regs atomic.Pointer[registry]
	// since is the first coordinator number of this session: what carries a
	// smaller one was written before the Space was opened.
	since uint32
	// process is the number under which the process has joined; 0: it is alone, or has not
	// registered yet. Under mu.
	process uint32
	// first: see First.
	first bool
	// rights are those that acts of this process have, or are about to have, by what they are of:
	// the numbers of the registrations under which they were taken, 0 if the database is not
	// shared, or they are not taken yet. The catalog says which process has a right by now, so an
	// act has it only as long as the catalog names that registration: see keeps. Under mu.
	rights map[uint32]uint32
	// company is how many other processes have been registered since this one was opened. Under mu.
	company int
	// own is, by each open coordinator that this process has registered, until when its lease is
	// good; 0: for ever. The catalog does not have it: for other processes a coordinator is a part
	// of its process. Under mu.
	own map[uint32]int64
	// until is when the registration of this process ends by the clock of this one, unless it
	// says before that it is alive; 0: never. beats are the signs of life of all that were
	// heard last. Under mu.
	until int64
	beats map[uint32]layout.Beat
	// hearing is held while the catalog is told that this process is alive, and never while mu is:
	// answers come in order, and a catalog that does not answer holds up nothing else.
	hearing sync.Mutex
	// asked is when the catalog was first told that this process is alive without an answer since;
	// 0: it has answered.
	asked atomic.Int64
	// lasts is for how long this process has registered itself last, in nanoseconds; 0:
	// for ever, or not yet.
	lasts int64
	// noticed is the revision by which this process knew of the last change that all must know (see
	// rest.go), unsure if it is not known yet; rested is that up to which all that it had begun
	// before has ended. Under mu.
	noticed, rested layout.Revision
	onTables        func(t layout.Table) // see OnTables; nil: none. Under mu
	asks            uint64               // how often Ask has tried. Under mu
	// acknowledged is the last epoch of which Acknowledge was to tell others.
	acknowledged atomic.Uint32
	// claimed is, by coordinator, how long the last claim of this process was good, in nanoseconds
	// from when it was made; 0: for ever.
	claimed map[uint32]int64
	// abandoned are coordinators that no process stands for, or recovers, from a time on: see
	// expireLease.
	abandoned map[uint32]int64
	// cut: see CutOff.
	cut         cut
	indexRights atomic.Int32 // how many rights to recover an index this process has

	// unrevoked: keys of epochs before that of the view may open a blade. See EndKeys. It changes
	// under mu, with the view.
	unrevoked atomic.Bool
	// refusals are, by blade, those of blades to change keys. Under mu.
	refusals map[rdma.BladeID]refusal
	// vain: see vainEpochs. Under mu.
	vain vainEpochs

	sweeps   uint64        // grows when something is left to be swept
	dangling bool          // see Dangling
	withheld bool          // free blocks of earlier sessions are not given away: slots may lead to them
	failures atomic.Uint64 // how often CompareAgain was called
	losses   uint64        // of blades, whose transactions are decided
	halfDone atomic.Bool   // see HalfDone
	owing    bool          // see OweSweep. Under mu
	failing  bool          // see OweSweep. Under mu
	// waits says since when, by the fabric's clock, a process has had the right of RightSweep that
	// has not come to the end of the sweep. Under mu.
	waits struct {
		holder uint32
		since  int64
	}

	// leaked counts what has left extents to DeadExtents in this process; listed and fastened are
	// what it was when these were listed, and when all of a list were seen to.
	leaked, listed, freed uint64
}
