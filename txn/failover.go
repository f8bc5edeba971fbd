package txn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"txnode/memory"
	"txnode/occ/recovery"
	"txnode/rdma"
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
	copied   atomic.Pointer[memory.CopyProgress]
	suspects atomic.Int32          // that were told of
	failure  atomic.Pointer[error] // what the last step of what can wait has failed with
	looked   atomic.Uint32         // the epoch in which it was looked whether anything is missing
	lookAt   int64                 // when to look next whether a blade is back
	copying  bool                  // this process has the right to take in blades and to build copies
	gated    memory.Epoch          // in which it was seen last that transactions wait to be decided
	gatedAt  int64                 // since when
	reclaim  bool                  // places that copies have left are to be cleared

	mu      sync.Mutex
	outages []Outage
	silence [memory.MaxBlades]silence
	down    [memory.MaxBlades]bool // it is known of a blade, or about to be: see outagesOfOthers
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

	before memory.CopyProgress // what was built and copied for others
	silent bool                // nothing is heard of the blade, not even that it is gone: rdma.ErrSilent
	spare  bool                // it is not declared dead if the last copy of a segment would be lost with it
}

// silence is since when nothing is heard of a blade, and when it was declared dead for that. 0: it is heard of, or was not.
type silence struct{ from, declared int64 }

// Redundancy is how well the data is copied just now.
type Redundancy struct {
	memory.Redundancy
	// Building is how far the copies are that are being built, in bytes looked at.
	BuildDone, BuildTotal uint64
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
	if p := db.failover.copied.Load(); p != nil && r.Redundancy.Building > 0 {
		r.BuildDone, r.BuildTotal = p.Done, p.Total
	}
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
	silentTerms    = 10  // lease terms, before silent blades are declared dead although data is lost with them
	maxFailovers   = 100 // in a row
	probePauseNs   = int64(20_000)
	refusalPauseNs = int64(20_000_000) // at most, while a blade refuses to change its keys
	awaitPauseNs   = int64(10_000)
	gatePauseNs    = int64(500_000)       // between two looks whether another process has decided transactions
	lookPauseNs    = int64(50_000_000)    // between two looks whether a blade is back
	gatePatienceNs = int64(200_000_000)   // with the recovery that decides transactions after the loss of a blade, in one epoch
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
			dead, err = db.doomed(c.Thread().Now(), dead)
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
	}
	return nil
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

// unfinished reports whether blades are missing, or copies, or some are to be moved.
func unfinished(r memory.Redundancy) bool {
	return len(r.Down) > 0 || r.Missing > 0 || r.Building > 0 || len(r.Leaving) > 0 || r.Moving > 0
}

// awaken has what can wait be done.
func (f *failover) awaken() {
	f.degraded.Store(true)
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
	demise := db.space.Demise(b)
	rep, err := recovery.FailOver(c, db.failOptions(), func(l *memory.Layout) error {
		lost := l.Redundancy().Lost
		err := demise(l)
		if err == nil && x.spare && l.Redundancy().Lost > lost {
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
		f.declared(x)
		db.noteOutage(x)
		return nil
	}
	if err != nil && rep.Attempts == 0 && db.space.View().Up(b) {
		return err // it has not come to that, or the catalog has not made the change
	}
	now := c.Thread().Now()
	if p := f.copied.Load(); p != nil {
		x.before = *p
	}
	f.mu.Lock()
	if db.space.View().Up(b) { // it was taken in again since, when there was no outage to note it at
		x.Back = now
	}
	f.declared(x)
	db.noteOutage(x)
	f.mu.Unlock()
	if err == nil {
		db.decided(now, &rep)
	}
	f.awaken()
	r := db.space.Redundancy()
	db.opts.Logger.Error("a blade does not answer and was declared dead; its backups have taken over", zap.Int("blade", x.Blade), zap.String("cause", x.Cause),
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

// probe lists the blades that do not answer, though they should.
func (db *DB) probe(c *rdma.Coro) ([]Outage, error) {
	var dead []Outage
	if err := db.space.Follow(); err != nil && !errors.Is(err, rdma.ErrBladeDown) { // another process may have seen to it
		return nil, err
	}
	db.lookForGaps()
	v := db.space.Current()
	for b := range rdma.BladeID(v.Blades()) {
		if !v.Up(b) {
			continue
		}
		silent, err := db.silence(c, b)
		if err != nil {
			return nil, err
		}
		if silent != nil {
			dead = append(dead, Outage{Blade: int(b), Cause: silent.Error(), silent: errors.Is(silent, rdma.ErrSilent), spare: errors.Is(silent, errRefuses)})
		}
	}
	return dead, nil
}

// doomed are those of blades that do not answer which are to be declared dead. That a blade is gone or has restarted is
// certain. That nothing is heard of it is what this process finds, and the way there may be down: it may serve others. So
// silent blades are not declared dead if nothing is heard of any blade. Nor are they for silentTerms lease terms if the last
// copy of a segment would be lost, or if one of them was declared dead for its silence and taken in again by another process,
// which has heard of it. If no blade is doomed then, the error is ErrCutOff.
func (db *DB) doomed(now int64, dead []Outage) ([]Outage, error) {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	patience := int64(db.opts.LeaseTerm)
	if patience <= 0 {
		patience = int64(DefaultLeaseTerm)
	}
	patience *= silentTerms
	l, up := db.space.Layout(), 0
	for b := range l.Blades {
		if l.Blades[b].State == memory.BladeUp {
			up++
		}
	}
	var gone []Outage
	var silent []int
	for _, x := range dead {
		if x.silent {
			silent = append(silent, x.Blade)
			continue
		}
		gone, l = append(gone, x), l.Without(rdma.BladeID(x.Blade)) //nolint:gosec // there are MaxBlades
	}
	for b := range f.silence {
		if !slices.Contains(silent, b) {
			f.silence[b].from = 0
		}
	}
	recent, serves, lost := false, false, l.Redundancy().Lost
	for _, b := range silent {
		s := &f.silence[b]
		if s.from == 0 {
			s.from = now
		}
		recent = recent || now-s.from < patience
		serves = serves || s.declared != 0 && now-s.declared < patience
		l = l.Without(rdma.BladeID(b)) //nolint:gosec // there are MaxBlades
	}
	switch {
	case len(silent) == 0:
		return dead, nil
	case len(silent) < up && !serves && !(recent && l.Redundancy().Lost > lost):
		for i := range dead {
			dead[i].spare = dead[i].spare || dead[i].silent && recent // another process may have declared one dead meanwhile
		}
		slices.SortStableFunc(dead, func(a, b Outage) int { return cmp.Compare(order(a), order(b)) })
		return dead, nil
	case len(gone) > 0:
		return gone, nil
	}
	return nil, fmt.Errorf("nothing is heard of blades %v (%s): %w", silent, dead[len(dead)-1].Cause, ErrCutOff)
}

// reached notes that all blades that are up have been reached.
func (db *DB) reached() {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	for b := range f.silence {
		f.silence[b].from = 0
	}
}

// order is in which order blades are declared dead: those that are gone for certain first.
func order(x Outage) int {
	if x.spare {
		return 1
	}
	return 0
}

// declared notes that a blade was declared dead, perhaps for its silence. An attempt to declare it dead that has failed does not count: the
// next one would find that the blade serves others. The caller holds failover.mu.
func (f *failover) declared(x Outage) {
	if x.silent {
		f.silence[x.Blade].declared = x.Promoted
	}
}

// heard notes that this process has heard of a blade itself, and taken it in: if it falls silent again, that is another silence.
func (db *DB) heard(b rdma.BladeID) {
	f := &db.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silence[b] = silence{}
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

// errRefuses is why a blade counts as dead that executes verbs.
var errRefuses = errors.New("the blade does not change its access keys")

// errSpared is why a blade is not declared dead: what is there can be read, or may be soon.
var errSpared = fmt.Errorf("txn: the last copy of a segment would be lost with it: %w", memory.ErrLayout)

// errRestarted is why a blade counts as dead that would answer.
var errRestarted = errors.New("the blade has restarted, and has not kept what it was told")

// silence asks a blade, several times if need be, and says why it is dead, nil if it answers. One
// that has been restarted since it was last given a key has not kept what it was told: it counts
// as dead. So does one that executes verbs and has refused for long to change its keys.
func (db *DB) silence(c *rdma.Coro, b rdma.BladeID) (silent, err error) {
	t := c.Thread()
	buf, err := t.Alloc(8)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, 8)
	var batch rdma.Batch
	for try := 0; ; try++ {
		if db.space.Restarted(b) {
			return errRestarted, nil // it would answer, but not for what it had
		}
		if err = t.Reconnect(b); err == nil {
			batch.Reset()
			batch.Read(rdma.RemoteAddr{Blade: b, Key: db.space.Current().Key(b)}, buf, 8)
			err = c.Do(&batch)
		}
		switch {
		case err == nil, errors.Is(err, rdma.ErrStaleKey): // the epoch moves on: it is alive
			if refuses := db.space.Refusal(b, t.Now()); refuses != nil {
				return fmt.Errorf("%w: %w", errRefuses, refuses), nil
			}
			return nil, t.Reconnect(b)
		case errors.Is(err, rdma.ErrBladeDown) && try >= probes:
			return err, nil
		case try >= 100*probes: // what others have under way on the thread does not end
			return nil, err
		}
		c.Sleep(probePauseNs)
	}
}

// startFailover starts the goroutine that looks after what can wait.
func (db *DB) startFailover() error {
	f := &db.failover
	f.kick = make(chan struct{}, 1)
	f.copier = db.space.NewCopier()
	r := db.space.Redundancy()
	f.degraded.Store(unfinished(r))
	for _, b := range r.Down {
		f.down[b] = true
	}
	if !db.fabric.Caps().RealTime || db.space.ReadOnly() {
		return nil
	}
	var err error
	if f.thread, err = rdma.NewThread(db.fabric, rdma.ThreadOptions{Index: keeperThread, Techniques: *db.opts.Techniques, Arena: 4 << 20}); err != nil {
		return err
	}
	f.stop = make(chan struct{})
	f.done.Go(func() {
		wait := time.NewTimer(0)
		defer wait.Stop()
		due := time.Now()
		for {
			select {
			case <-f.stop:
				return
			case <-f.kick:
			case <-wait.C:
			}
			if !f.degraded.Load() {
				wait.Reset(time.Hour) // or until the kick
				due = time.Now().Add(time.Hour)
				continue
			}
			from := time.Now()
			waited := max(from.Sub(due), 0)
			turn := max(keepTime, min(waited/2, maxKeepTime))
			busy, err := db.keep(f.thread.Plain(), stint{steps: keepSteps})
			for busy && err == nil && time.Since(from) < turn {
				busy, err = db.keep(f.thread.Plain(), stint{steps: keepSteps})
			}
			if err != nil {
				db.opts.Logger.Warn("replacing what a lost blade had has failed, and will be tried again", errField(err))
			}
			pause := max(time.Since(from)-waited, 0) // half of a processor at most
			if !busy || err != nil {
				pause = max(pause, 10*time.Millisecond)
			}
			wait.Reset(pause)
			due = time.Now().Add(pause)
		}
	})
	return nil
}

// stopFailover waits until the goroutine has ended: see end.
func (db *DB) stopFailover() error {
	f := &db.failover
	if f.stop == nil {
		return nil
	}
	f.done.Wait()
	return f.thread.Close()
}

// end has the goroutine end.
func (f *failover) end() {
	if f.stop != nil {
		close(f.stop)
	}
}

// ended reports whether the goroutine is to end: a large blade takes long to be cleared, and
// Close does not wait for that.
func (f *failover) ended() bool {
	select {
	case <-f.stop: // nil: there is none
		return true
	default:
		return false
	}
}

// keep does some steps of what can wait: it takes in blades that are back, and builds
// copies. busy: there is more to be done at once.
func (db *DB) keep(c *rdma.Coro, x stint) (busy bool, err error) {
	f := &db.failover
	db.lookForGaps()
	if !f.degraded.Load() || !f.keeping.CompareAndSwap(false, true) {
		return false, nil
	}
	defer f.keeping.Store(false)
	if f.copying && !db.space.HasMend(memory.MendCopies) { // others have taken this process for dead
		db.space.EndMend(memory.MendCopies)
		f.copying = false
	}
	looked := false
	var full error // the disk of a blade that could have copies; nothing else is kept up by it
	defer func() {
		stuck := f.copier.Stuck(c.Thread().Now())
		if p := f.failure.Load(); stuck != nil && (p == nil || !errors.Is(*p, memory.ErrStuck)) {
			db.opts.Logger.Warn("a copy waits for a lock, and goes on waiting", errField(stuck))
		}
		if failure := errors.Join(err, full, stuck); failure != nil {
			f.failure.Store(&failure)
		} else if looked {
			f.failure.Store(nil)
		}
	}()
	defer func() {
		if err == nil || !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrBladeDown) {
			return
		}
		if errors.Is(err, rdma.ErrStaleKey) {
			err = nil // the epoch has moved: once more
		}
		err = errors.Join(err, db.reconnect(c))
	}()
	if now := c.Thread().Now(); now >= f.lookAt {
		f.lookAt, looked = now+lookPauseNs, true
		err := db.copyHere()
		if err == nil && f.copying {
			err = db.welcome(c)
		}
		if f.copying && db.space.CanBuild() > 0 {
			_, e := db.space.Build()
			if errors.Is(e, rdma.ErrNoMemory) {
				e, full = nil, e
			}
			err = errors.Join(err, e)
		}
		if err == nil && f.copying {
			err = db.move(c)
		}
		if err != nil {
			return false, err
		}
	}
	if err := db.decide(c); err != nil {
		return false, err
	}
	if _, unswept := db.space.Unswept(); (unswept || db.space.Loose()) && f.stop != nil {
		// Soon, since half-done changes of an index are in the way of others.
		db.ctlMu.Lock()
		more, err := db.maintainOn(c, db.engine.Recovery(), &db.maintenance.sweeper, stint{steps: sweepPart})
		db.ctlMu.Unlock()
		switch {
		case errors.Is(err, rdma.ErrVerb):
			return true, err
		case err != nil: // it is tried again by and by; copies can be built meanwhile
			db.opts.Logger.Warn("sweeping after the loss of a blade has failed, and will be tried again", errField(err))
		case more:
			return true, nil
		}
	}
	if !f.copying {
		db.wholeAgain()
		return false, nil
	}
	finished := f.copier.Progress().Finished
	for i := 0; x.goOn(c, i); i++ {
		idle, err := f.copier.Step(c)
		p := f.copier.Progress()
		f.copied.Store(&p)
		db.suspect()
		if err != nil {
			return true, err
		}
		if idle || p.Finished > finished { // perhaps the last ones
			db.wholeAgain()
			return p.Finished > finished, nil
		}
	}
	return true, nil
}

// copyHere gets this process the right to take in blades and to build copies, or notes that another one has it.
func (db *DB) copyHere() error {
	f := &db.failover
	if f.copying {
		return nil
	}
	if err := db.space.Follow(); err != nil { // what others have copied meanwhile
		return err
	}
	f.copying = db.space.BeginMend(memory.MendCopies)
	return nil
}

// suspect tells of blocks that were copied though they look locked.
func (db *DB) suspect() {
	f := &db.failover
	all := f.copier.Suspects()
	for _, a := range all[f.suspects.Load():] {
		db.opts.Logger.Error("a block looks locked by nobody who ever was, or is, and was copied all the same; perhaps it is damaged: the database, closed, can be checked",
			zap.Stringer("block", a))
	}
	f.suspects.Store(int32(len(all))) //nolint:gosec // a thousand at most
}

// decide decides the transactions that were under way when a blade was lost, if the session that
// declared it dead has stopped in the middle. The next transaction would do the same, but there
// may be none, and copies have to wait.
func (db *DB) decide(c *rdma.Coro) error {
	f := &db.failover
	if f.stop == nil || !db.space.Gated() {
		return nil // workers see to it themselves, before they can do anything else
	}
	if e, now := db.space.View().Epoch, c.Thread().Now(); e != f.gated {
		f.gated, f.gatedAt = e, now
		return nil
	} else if now-f.gatedAt < gatePatienceNs {
		return nil
	}
	f.gated = 0
	return db.bladeDown(c, nil)
}

// welcome takes blades in again that answer. One that cannot be does not keep out the others.
func (db *DB) welcome(c *rdma.Coro) (err error) {
	for _, b := range db.space.Redundancy().Down {
		if c.Thread().Reconnect(b) != nil {
			continue
		}
		if e := db.space.Admit(c, b, db.failover.ended); e != nil {
			if !errors.Is(e, rdma.ErrBladeDown) {
				err = errors.Join(err, e)
			}
			continue
		}
		if !db.space.View().Up(b) { // the database is being closed
			continue
		}
		db.heard(b)
		db.failover.note(func(x *Outage) {
			if x.Blade == int(b) && x.Back == 0 {
				x.Back = c.Thread().Now()
			}
		})
		db.opts.Logger.Info("a blade is back and was taken in again", zap.Int("blade", int(b)))
	}
	return err
}

// wholeAgain notes that nothing is being built, and whether anything is missing.
func (db *DB) wholeAgain() {
	r := db.space.Redundancy()
	if r.Missing > 0 {
		return
	}
	f := &db.failover
	p := f.copier.Progress()
	news := false
	now := db.fabric.Now()
	db.failover.note(func(x *Outage) {
		if x.Decided == 0 { // by a recovery of coordinators
			x.Decided = now
		}
		if x.Whole == 0 {
			x.Whole, x.Built, x.Copied = now, p.Finished-x.before.Finished, p.Copied-x.before.Copied
			news = true
		}
	})
	if news {
		db.opts.Logger.Info("every segment has all of its copies again", zap.Int("segments", r.Segments), zap.Int("built", p.Finished))
	}
	if _, unswept := db.space.Unswept(); !unfinished(r) && !f.reclaim && !unswept && !db.space.Loose() {
		db.failover.failure.Store(nil) // whatever it was, it is over
		if db.failover.copying {
			db.space.EndMend(memory.MendCopies)
			db.failover.copying = false
		}
		db.failover.degraded.Store(false)
		if unfinished(db.space.Redundancy()) { // another one has died meanwhile
			db.failover.degraded.Store(true)
		}
	}
}

// note changes what is known of the outages.
func (f *failover) note(change func(x *Outage)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.outages {
		change(&f.outages[i])
	}
}
