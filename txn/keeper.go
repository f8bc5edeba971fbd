package txn

import (
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/rdma"
)

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
	if f.thread, err = rdma.NewThread(db.fabric, rdma.ThreadOptions{Index: keeperThread, Techniques: *db.opts.Techniques, Arena: keeperArena}); err != nil {
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
			db.lookAtAll(f.thread.Plain())
			if !f.degraded.Load() {
				pause := tellPause // or until the kick
				if db.opts.GiveBack > 0 {
					pause = min(pause, max(db.opts.GiveBack/givePart, time.Millisecond))
				}
				if db.space.Shared() && db.fabric.Caps().Remote {
					pause = min(pause, time.Duration(db.term()/lookParts))
				}
				wait.Reset(pause)
				due = time.Now().Add(pause)
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

// keeperArena is the arena of the goroutine's thread, in bytes.
const keeperArena = 4 << 20

// tellPause is how long blades may not know of the latest revision of the catalog.
const tellPause = time.Second

// tell has the blades remember the revision of the catalog.
func (db *DB) tell(c *rdma.Coro) {
	err := db.space.Tell(c)
	if errors.Is(err, rdma.ErrVerb) || errors.Is(err, rdma.ErrBladeDown) { // the next round tells them
		err = db.reconnect(c)
	}
	if err != nil {
		db.opts.Logger.Warn("the blades cannot be told where the catalog is, which will be tried again", errField(err))
	}
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
	db.lookForRoom(c.Thread().Now())
	if !f.degraded.Load() || !f.keeping.CompareAndSwap(false, true) {
		return false, nil
	}
	defer f.keeping.Store(false)
	db.space.Begin(c.Thread())
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
		if err == nil || !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrStaleKey) && !errors.Is(err, rdma.ErrBladeDown) {
			return
		}
		if errors.Is(err, rdma.ErrStaleKey) {
			err = nil // the epoch has moved: once more
		}
		err = errors.Join(err, db.reconnect(c))
	}()
	if now := c.Thread().Now(); now >= f.lookAt {
		f.lookAt, looked = now+lookPauseNs, true
		err := db.copyHere(c)
		epoch := db.space.View().Epoch
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
		db.copyElsewhere(now, epoch)
	}
	if err := db.decide(c); err != nil {
		return false, err
	}
	if err := db.giveBack(c); err != nil {
		return false, err
	}
	sweeping := false
	if _, unswept := db.space.Unswept(); (unswept || db.space.Loose()) && f.stop != nil {
		// Soon, since half-done changes of an index are in the way of others; and in turns with copies, since a sweep of much
		// data takes long, and another loss meanwhile is that of data.
		db.ctlMu.Lock()
		more, err := db.maintainOn(c, db.engine.Recovery(), &db.maintenance.sweeper, stint{sweepPart, c.Thread().Now() + int64(keepTime)})
		db.ctlMu.Unlock()
		sweeping = more
		switch {
		case errors.Is(err, rdma.ErrVerb):
			return true, err
		case err != nil: // it is tried again by and by; copies can be built meanwhile
			db.opts.Logger.Warn("sweeping after the loss of a blade has failed, and will be tried again", errField(err))
		}
	}
	if !f.copying {
		db.copied(c.Thread().Now(), false)
		db.wholeAgain()
		return sweeping, nil
	}
	finished := f.copier.Progress().Finished
	for i := 0; x.goOn(c, i); i++ {
		var idle bool
		err := db.space.Hold(c.Thread(), memory.MendCopies, func() (err error) {
			idle, err = f.copier.Step(c)
			return err
		})
		p := f.copier.Progress()
		db.copied(c.Thread().Now(), !idle)
		db.suspect()
		if err != nil {
			return true, err
		}
		if idle || p.Finished > finished { // perhaps the last ones
			db.copied(c.Thread().Now(), db.space.Redundancy().Building > 0)
			db.wholeAgain()
			return sweeping || p.Finished > finished, nil
		}
	}
	return true, nil
}

// copyHere gets this process the right to take in blades and to build copies, or notes that another one has it. A process that
// has no use for it does not get it: blades are down that it hears nothing of, and others may hear of them.
func (db *DB) copyHere(c *rdma.Coro) error {
	f, s := &db.failover, db.space
	if f.copying {
		return nil
	}
	if err := s.Follow(); err != nil { // what others have copied meanwhile
		return err
	}
	if s.Shared() {
		useless := s.View().Epoch == f.useless && c.Thread().Now() < f.usefulAt
		if useless || s.MendElsewhere(memory.MendCopies) || !s.CanMend() && !db.answers(c) {
			return nil
		}
	}
	f.copying = s.BeginMend(memory.MendCopies)
	return nil
}

// answers reports whether a blade answers that is down.
func (db *DB) answers(c *rdma.Coro) bool {
	return slices.ContainsFunc(db.space.Redundancy().Down, func(b rdma.BladeID) bool { return c.Thread().Reconnect(b) == nil })
}

// copyElsewhere gives back the right of copyHere if this process has found nothing to do in an epoch, or could not do it: no blade was
// taken in, no copy is being built. Others get it meanwhile. All its verbs have been answered, but those to blades that are down, by a key
// of its own.
func (db *DB) copyElsewhere(now int64, epoch memory.Epoch) {
	f, s := &db.failover, db.space
	switch {
	case !f.copying || !s.Shared():
		return
	case s.Gated() || s.View().Epoch != epoch || s.Redundancy().Building > 0:
		f.rest = 0
		return
	}
	f.copying = false
	s.EndMend(memory.MendCopies)
	f.rest = min(max(2*f.rest, restLooks*lookPauseNs), maxRestNs)
	f.useless, f.usefulAt = epoch, now+f.rest
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
	if f.stop == nil && !db.tended() || !db.space.Gated() {
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
	if _, unswept := db.space.Unswept(); !unfinished(r) && !unswept && !db.space.Loose() {
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
