package txn

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ/recovery"
	"txnode/rdma"

	"go.uber.org/zap"
)

// failover sees to blades that die and come back. The worker that meets a silent blade
// declares it dead, on its own thread, and decides all transactions; the other workers
// wait. The rest is done in small steps beside the transactions: blades that are back
// are taken in again, copies are built. On a fabric that runs in real time the database
// has a goroutine for that. With virtual time the workers do it between their transactions.
type failover struct {
	deciding atomic.Bool // a worker looks after blades that do not answer
	keeping  atomic.Bool // the next step of what can wait is being done
	degraded atomic.Bool // there is something that can wait
	kick     chan struct{}
	stop     chan struct{} // nil: there is no goroutine; never changed after Open
	done     sync.WaitGroup
	thread   *rdma.Thread // of the goroutine
	copier   *memory.Copier
	copied   atomic.Pointer[copying]
	suspects atomic.Int32          // that were told of
	failure  atomic.Pointer[error] // what the last step of what can wait has failed with
	looked   atomic.Uint32         // the epoch in which it was looked whether anything is missing
	lookAt   int64                 // when to look next whether a blade is back
	giving   giving
	copying  bool         // this process has the right to take in blades and to build copies
	useless  memory.Epoch // in which it had no use for it, and leaves it to others
	usefulAt int64        // until then
	rest     int64        // for how long, the last time
	gated    memory.Epoch // in which it was seen last that transactions wait to be decided
	gatedAt  int64        // since when
	// acknowledged is the last epoch that other processes were told of that this one knows: see acknowledge.
	acknowledged atomic.Uint32

	mu       sync.Mutex
	outages  []Outage
	aroundAt int64                  // when to look next whether blades answer: see lookAround
	askAt    int64                  // when another round of questions may begin about a blade that others hear
	down     [memory.MaxBlades]bool // it is known of a blade, or about to be: see outagesOfOthers
	// expected counts the changes under way of which it is known that a blade may be down after them: see expecting.
	expected int
}

// Outage is the story of a blade that was lost. Times are nanoseconds of the fabric's
// clock; 0: not yet.
type Outage struct {
	Blade    int
	Noticed  int64  // a verb had failed
	Promoted int64  // the blade was declared dead, and its backups are primaries
	Decided  int64  // all transactions are decided, and others can begin
	Back     int64  // the blade takes part again
	Whole    int64  // every segment has all of its copies again
	Primary  int    // segments whose primary it had
	Built    int    // segments of which copies were built since
	Copied   uint64 // bytes of blocks that were written for these
	Finished int    // transactions that were found committed and were completed
	Undone   int    // and that were taken back
	// Cause is what was heard last from the blade, or of it.
	Cause string

	before    memory.CopyProgress        // what was built and copied for others
	silent    bool                       // this process hears nothing of the blade, which may live
	says      layout.Says                // then: what it says of the blade
	restarted bool                       // it answers, in another incarnation
	spare     bool                       // it is not declared dead if the last copy of a segment would be lost with it
	found     memory.Epoch               // it was asked whether it lives in this epoch, or a later one
	demise    func(*memory.Layout) error // memory.Space.Demise of before it was asked
}

// Redundancy is how well the data is copied just now.
type Redundancy struct {
	memory.Redundancy
	// How far the copies are that this process builds, as in CopyMetrics.
	BuildDone, BuildTotal, BuildRate uint64
	BuildLeft                        time.Duration
	// Failure is the last error of making copies, or nil if it goes on since. It is retried.
	// memory.ErrStuck: the copies of a segment wait for a block that stays locked; those of other
	// segments are made.
	Failure error
	// Suspects is the number of blocks that were copied although they look locked by no coordinator
	// that was or is. They may be damaged: close the database and run txnode check.
	Suspects int
	// Outages are the last blades that were lost, the oldest first.
	Outages []Outage
}

// maxOutages is how many outages are remembered.
const maxOutages = 64

// Redundancy tells how well the data is copied, which blades are missing, and how far
// their replacement is.
func (db *DB) Redundancy() Redundancy {
	if db.space == nil { // the zero value
		return Redundancy{}
	}
	r := Redundancy{Redundancy: db.space.Redundancy()}
	m := db.copyMetrics()
	r.BuildDone, r.BuildTotal, r.BuildRate, r.BuildLeft = m.Done, m.Total, m.Rate, m.Left
	if p := db.failover.failure.Load(); p != nil {
		r.Failure = *p
	}
	r.Suspects = int(db.failover.suspects.Load())
	db.failover.mu.Lock()
	defer db.failover.mu.Unlock()
	r.Outages = slices.Clone(db.failover.outages)
	return r
}

// Bounds on how patient failover is.
const (
	probes         = 3
	maxFailovers   = 100 // in a row
	probePauseNs   = int64(20_000)
	refusalPauseNs = int64(20_000_000) // at most, while a blade refuses to change its keys
	askPauseNs     = int64(200_000)    // between two looks whether other members have answered, at first
	maxAskPauseNs  = int64(10_000_000) // and at most
	awaitPauseNs   = int64(10_000)
	gatePauseNs    = int64(500_000)       // between two looks whether another process has decided transactions
	lookPauseNs    = int64(50_000_000)    // between two looks whether a blade is back
	restLooks      = 4                    // at least, for which a process leaves copies to others that has no use for the right to build them
	maxRestNs      = int64(3_200_000_000) // at most
	gatePatienceNs = int64(200_000_000)   // with the recovery that decides transactions after the loss of a blade, in one epoch
	lookParts      = 4                    // of a lease term, in which an idle process looks once whether blades answer
	keepSteps      = 8                    // of a copier in a row
	keepTime       = 2 * time.Millisecond // of the goroutine in a row, or half of the time that it waited for its turn: some 10 ms where all processors are at work
	maxKeepTime    = 5 * time.Millisecond
	keeperThread   = controlThread + 1
)

// bladeDown is called on a thread that has met a blade which does not answer. When it
// returns nil, it is worth while to connect again: the blade answers after all, or
// is declared dead and everything is decided.
func (db *DB) bladeDown(c *rdma.Coro, _ error) error {
	f := &db.failover
	noticed := c.Thread().Now()
	if !f.deciding.CompareAndSwap(false, true) {
		for f.deciding.Load() {
			c.Sleep(awaitPauseNs)
		}
		return nil
	}
	defer f.deciding.Store(false)
	defer db.lookForGaps() // the session that declared a blade dead may have died then
	pause := probePauseNs
	for range maxFailovers {
		dead, err := db.probe(c)
		if err == nil {
			dead, err = db.doomed(c, dead)
		}
		if err != nil {
			return err
		}
		if len(dead) == 0 && !db.space.Gated() {
			return nil
		}
		for _, x := range dead {
			x.Noticed = noticed
			err = errors.Join(err, db.declareDead(c, x))
		}
		if len(dead) == 0 { // a session has stopped in the middle, or another blade did not change its keys
			var rep recovery.Report
			if rep, err = recovery.FailOver(c, db.failOptions(), nil); err == nil {
				db.decided(c.Thread().Now(), &rep)
			}
		}
		if err != nil {
			if !again(err) {
				return err
			}
			c.Sleep(pause)
			if db.space.Unrevoked() {
				pause = min(2*pause, refusalPauseNs)
			}
		}
		if errors.Is(err, memory.ErrClaimed) {
			if err := db.decidedByOthers(c); err != nil {
				return err
			}
		}
	}
	return errors.Join(rdma.ErrBladeDown, errors.New("txn: blades come and go"))
}

// decidedByOthers waits while another process decides transactions, for as long as its claim is good.
func (db *DB) decidedByOthers(c *rdma.Coro) error {
	for db.space.Shared() && db.space.Gated() && len(db.space.Expired(c.Thread().Now())) == 0 && !db.failover.ended() {
		c.Sleep(gatePauseNs)
		if err := db.space.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) {
			return err
		}
		db.acknowledge()
	}
	return nil
}

// settle returns when no other process reads by an epoch from before, which it may from a blade that was declared dead because
// nothing is heard of it here: see memory.Claim.Outlasts.
func (db *DB) settle(c *rdma.Coro, claim *memory.Claim, renew func() error) error {
	term := int64(db.opts.LeaseTerm)
	for renewAt := int64(0); ; {
		now := c.Thread().Now()
		if ok, err := claim.Outlasts(); ok || err != nil && !errors.Is(err, memory.ErrAway) { // renew says how long it may be away
			return err
		}
		if err := renew(); err != nil {
			return err
		}
		if !db.fabric.Caps().RealTime && now >= renewAt { // nothing else renews the registration of this process meanwhile
			renewAt = now + term/3
			if err := db.space.Renew(now + term); err != nil {
				return err
			}
		}
		if db.failover.ended() {
			return ErrClosed
		}
		c.Sleep(gatePauseNs)
	}
}

// acknowledge tells a process that waits in settle for this one that it knows the epoch, or one that makes anew what a lost blade had.
func (db *DB) acknowledge() {
	if !db.space.Shared() {
		return
	}
	defer db.space.AcknowledgeLoss() // if that is not done
	if !db.space.Gated() {
		return
	}
	if e := uint32(db.space.View().Epoch); db.failover.acknowledged.Swap(e) != e {
		_ = db.space.Acknowledge() // what fails is done when the leases are renewed
	}
}

// lookForGaps sees to it that missing copies and blades are replaced, also of a blade
// that another process declared dead.
func (db *DB) lookForGaps() {
	f := &db.failover
	e := uint32(db.space.View().Epoch)
	if f.looked.Swap(e) == e {
		return
	}
	db.outagesOfOthers()
	if f.degraded.Load() {
		return
	}
	if unfinished(db.space.Redundancy()) {
		f.awaken()
	}
}

// unfinished reports whether blades are missing, or copies, or some are to be moved, or places are to be cleared.
func unfinished(r memory.Redundancy) bool {
	return r.Dirty > 0 || len(r.Down) > 0 || r.Missing > 0 || r.Building > 0 || len(r.Leaving) > 0 || r.Moving > 0
}

// awaken has what can wait be done.
func (f *failover) awaken() {
	f.degraded.Store(true)
	f.nudge()
}

// nudge has the goroutine look around at once.
func (f *failover) nudge() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// outagesOfOthers notes blades that this process finds declared dead: by another one, or by a change of
// the catalog of its own that it was told had failed.
func (db *DB) outagesOfOthers() {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	v, now := db.space.View(), db.fabric.Now() // under the lock: a view of before Undrain would undo what that has noted
	for b := range v.Blades() {
		was, is := f.down[b], !v.Up(rdma.BladeID(b))
		if f.down[b] = is || was && f.expected > 0; is && !was && !v.Leaving(rdma.BladeID(b)) { // else it was drained
			db.noteOutage(Outage{Blade: b, Noticed: now, Promoted: now, Cause: "it was found declared dead in the catalog"})
		}
	}
}

// expecting has a blade that is found down not noted as an outage until the function is called that it returns: the
// caller notes it, or it is none.
func (db *DB) expecting(b rdma.BladeID) (over func()) {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down[b] = true
	f.expected++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.expected--
		v := db.space.View()
		f.down[b] = true
		for o := range f.down {
			if f.expected > 0 && o != int(b) {
				continue // the end of the other change looks at it
			}
			f.down[o] = f.down[o] && !v.Up(rdma.BladeID(o)) //nolint:gosec // there are MaxBlades
		}
	}
}

// noteOutage adds an outage; the caller holds failover.mu.
func (db *DB) noteOutage(x Outage) {
	f := &db.failover
	db.recoveries.outages.Add(1)
	x.demise = nil
	if f.outages = append(f.outages, x); len(f.outages) > maxOutages {
		f.outages = f.outages[1:]
	}
}

// again reports whether a failover that has failed is to be tried again: another blade
// has died, or a coordinator was recovered or registered meanwhile.
func again(err error) bool {
	for _, e := range []error{rdma.ErrVerb, rdma.ErrBladeDown, memory.ErrNoCoordinator, memory.ErrClaimed, memory.ErrLayout, memory.ErrDown, memory.ErrUnrevoked} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (db *DB) failOptions() recovery.Options {
	o := db.engine.Recovery()
	o.Steal = true
	return o
}

// declareDead declares a blade dead and has all transactions decided. Of the outage it is known
// which blade it is, since when, and why.
func (db *DB) declareDead(c *rdma.Coro, x Outage) error {
	b := rdma.BladeID(x.Blade)
	l := db.space.Layout()
	for i := range l.Segments {
		if p := &l.Segments[i].Placement; p.N > 0 && l.Segments[i].Kind != memory.KindLog && p.Replicas[0].Blade == b {
			x.Primary++
		}
	}
	f := &db.failover
	defer db.expecting(b)()
	o := db.failOptions()
	if x.restarted && l.Irreplaceable(b) {
		as, err := db.space.Unharmed(c, b)
		switch {
		case err != nil: // it is not lost as long as that is so
			return fmt.Errorf("%w: %w", errSpared, err)
		case as != 0:
			x.demise = db.space.Return(b, as, x.demise)
		}
	}
	if !x.silent && !x.spare { // it is gone, for all processes
		o.Settle = nil
	}
	condemned := db.space.Condemned(b)
	rep, err := recovery.FailOver(c, o, func(l *memory.Layout) error {
		lost := l.Redundancy().Lost
		if x.silent && l.Blades[b].State == memory.BladeUp {
			if err := condemned(l); err != nil {
				return err
			}
		}
		err := x.demise(l)
		spare := x.spare || x.silent && l.Epoch != x.found // another process may have taken it in
		if err == nil && spare && l.Redundancy().Lost > lost {
			err = errSpared
		}
		if err == nil {
			x.Promoted = c.Thread().Now()
		}
		return err
	})
	if errors.Is(err, memory.ErrDown) { // another process was first
		x.Promoted = c.Thread().Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		db.noteOutage(x)
		return nil
	}
	if err != nil && rep.Attempts == 0 && db.space.View().Up(b) {
		return err // it has not come to that, or the catalog has not made the change
	}
	now := c.Thread().Now()
	if p := f.copied.Load(); p != nil {
		x.before = p.CopyProgress
	}
	f.mu.Lock()
	if db.space.View().Up(b) { // it was taken in again since, when there was no outage to note it at
		x.Back = now
	}
	db.noteOutage(x)
	f.mu.Unlock()
	if err == nil {
		db.decided(now, &rep)
	}
	f.awaken()
	r := db.space.Redundancy()
	text := "a blade does not answer and was declared dead; its backups have taken over"
	if x.Back != 0 {
		text = "a blade has restarted, and is used on as it is"
	}
	db.opts.Logger.Error(text, zap.Int("blade", x.Blade), zap.String("cause", x.Cause),
		zap.Duration("after", time.Duration(now-x.Noticed)), zap.Int("promoted", x.Primary), zap.Int("copies missing", r.Missing),
		zap.Int("being built", r.Building), zap.Int("segments lost", r.Lost), zap.Int("finished", rep.Finished), zap.Int("undone", len(rep.Aborted)), zap.Error(err))
	return err
}

// decided notes that all transactions are decided: of the blades that were declared dead since they were last, the last one
// has the numbers.
func (db *DB) decided(now int64, rep *recovery.Report) {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	last := -1
	for i := range f.outages {
		if f.outages[i].Decided == 0 {
			f.outages[i].Decided, last = now, i
		}
	}
	if last >= 0 {
		f.outages[last].Finished, f.outages[last].Undone = rep.Finished, len(rep.Aborted)
	}
}

// reconnect takes the queue pairs of a thread out of the error state, and sees to
// blades that do not answer.
func (db *DB) reconnect(c *rdma.Coro) error {
	err := recovery.Reconnect(c, db.space)
	if err == nil {
		db.reached()
	}
	if errors.Is(err, rdma.ErrBladeDown) {
		err = db.bladeDown(c, err)
	}
	return err
}

// withBlades runs fn on the control thread, and again after a verb, or a call to a
// blade, has failed in it: the blade is declared dead, or answers again, or the epoch
// has moved. The caller holds ctlMu.
func (db *DB) withBlades(fn func(c *rdma.Coro) error) error {
	c := db.ctl.Plain()
	for tries := 0; ; tries++ {
		db.space.Begin(c.Thread())
		err := fn(c)
		if err == nil || tries >= maxFailovers || !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrBladeDown) {
			return err
		}
		if errors.Is(err, rdma.ErrBladeDown) {
			if e := db.bladeDown(c, err); e != nil {
				return errors.Join(err, e)
			}
		}
		if e := db.reconnect(c); e != nil {
			return errors.Join(err, e)
		}
	}
}
