package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A change of the catalog is read, compared and applied, again and again until no other process has
// changed the catalog in between. Space.update does so with a function that looks at the layout,
// commits entries, and changes the layout as soon as the catalog has them:
//
//	lock    the function looks at the layout. What it wants of a blade (Provision, Grant) it
//	        assumes.
//	        If it has assumed anything, it does not get beyond commit:
//	unlock  the blades are asked
//	lock    the function begins anew, with what the blades have said
//	        commit: the lock is released while the catalog makes the change, and the turn is not
//	                ErrRevision: the layout is loaded anew, and the function begins anew
//	unlock
//
// So neither a blade nor the catalog is called under the lock, and a catalog that is silent
// holds up those alone that need it: other changes. While a function is in commit, others may
// change under the lock whatever is neither in the layout nor derived from it, such as lists
// of free blocks. A function that may need no change (update.light) first goes without the
// turn, as far as commit.
//
// A change that another process has made impossible is found so by the function, with the error of
// its own. An error that the function has found in a layout that is not the catalog's any more does
// not count. The function changes nothing before commit has returned nil.

// errAgain makes update begin anew.
var errAgain = errors.New("memory: the change is to be tried again")

// update is a change of the catalog that is being made.
//
// Invariant: no entry is committed while len(asks) > 0, or without the turn.
type update struct {
	turn      bool                // it has the turn
	wants     bool                // it needs the turn, and is to be tried again with it
	asks      []func()            // of blades, before the change is tried again
	provided  map[[3]uint64]error // what blades have answered, by blade, offset and length
	keys      *grants             // likewise, of Grant
	unwaiting bool                // it does not wait for an epoch that begins
	epochs    bool                // the caller holds Space.epochs
	followed  bool                // see Follow
}

// update makes a change of the catalog; see above.
func (s *store) update(fn func() error) error { return s.updateAs(&update{turn: true}, fn) }

// updateLight is update for a function that mostly needs no change.
func (s *store) updateLight(fn func() error) error { return s.updateAs(&update{}, fn) }

// lock takes the lock, and before it the turn of a change that has it.
func (s *store) lock(u *update) {
	if u.turn {
		s.turn.Lock()
	}
	s.mu.Lock()
}

func (s *store) unlock(u *update) {
	s.mu.Unlock()
	if u.turn {
		s.turn.Unlock()
	}
}

// takeTurn gives a change the turn, which has begun without. The caller holds the lock, which is
// not held meanwhile.
func (s *store) takeTurn(u *update) {
	s.unlock(u)
	u.turn, u.wants = true, false
	s.lock(u)
}

// called calls the catalog without the lock, which the caller holds, but for an opening.
func (s *store) called(fn func()) {
	if s.view.Load() == nil {
		fn()
		return
	}
	u := s.making
	s.making = nil
	defer func() { s.making = u }()
	s.unlocked(fn)
}

func (s *store) updateAs(u *update, fn func() error) error {
	s.lock(u)
	defer s.unlock(u)
	for {
		if err := s.await(u); err != nil {
			return err
		}
		err := s.try(u, fn)
		if err != nil && !errors.Is(err, errAgain) {
			rev := s.rev
			behind, askErr := s.behind() // it may be so no more
			if askErr != nil {
				return further(err, "and whether that is so still is not known", askErr)
			}
			if behind && !u.turn {
				err, u.wants = errAgain, true
			} else if behind {
				if err = errAgain; s.rev == rev {
					err = s.reload()
				}
				if !errors.Is(err, errAgain) {
					return err
				}
			}
		}
		if !errors.Is(err, errAgain) || len(u.asks) == 0 && s.view.Load() == nil { // Open begins anew
			return err
		}
		if len(u.asks) > 0 {
			s.unlock(u)
			for _, ask := range u.asks {
				ask()
			}
			s.lock(u)
			u.asks = nil
		}
		if u.wants {
			s.takeTurn(u)
		}
	}
}

// behind reports whether another process has changed the catalog since this one has looked. The
// caller holds the lock, which is not held while the catalog is asked.
func (s *store) behind() (is bool, err error) {
	if s.closed != nil || s.doubt != nil || s.view.Load() == nil {
		return false, nil
	}
	rev := s.rev
	s.unlocked(func() { is, err = s.newer(rev) })
	return is, err
}

// newer reports whether the catalog has a later revision; an error if it does not say. The caller
// does not hold the lock.
func (s *store) newer(rev layout.Revision) (bool, error) {
	now, err := s.cat.Revision()
	if err == nil {
		err = layout.Behind(s.cat.Name(), now, rev)
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return false, s.unheard(s.distrust(err))
	}
	return now > rev, nil
}

// unheard is the error of a catalog that was asked for its revision.
func (s *store) unheard(err error) error {
	if errors.Is(err, ErrAway) || errors.Is(err, ErrClosed) || errors.Is(err, layout.ErrForeign) {
		return fmt.Errorf("memory: asking the catalog %s: %w", s.cat.Name(), err)
	}
	return fmt.Errorf("memory: asking the catalog %s: %w: %w", s.cat.Name(), ErrAway, err)
}

// try calls fn as the change that is being made. The caller holds the lock.
func (s *store) try(u *update, fn func() error) error {
	s.making = u
	defer func() { s.making = nil }()
	return fn()
}

// unlocked calls fn without the lock, which the caller holds.
func (s *store) unlocked(fn func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	fn()
}

// await returns when the epoch of the catalog has begun in this process, or why it could not be
// begun on a blade. The caller holds the lock, which is not held meanwhile.
func (s *store) await(u *update) (err error) {
	for s.beginning() && !u.unwaiting && s.closed == nil && err == nil {
		func() {
			s.unlock(u)
			defer s.lock(u)
			if !u.epochs {
				s.epochs.Lock()
				defer s.epochs.Unlock()
			}
			err = s.above.begin(nil)
		}()
	}
	return err
}

// beginning reports whether the epoch of the catalog has not begun in this process. The
// caller holds the lock.
func (s *store) beginning() bool {
	v := s.view.Load()
	return v != nil && v.Epoch != s.layout.Epoch
}

// settled calls fn under the lock, when the epoch of the catalog has begun in this process.
func (s *store) settled(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.await(&update{}) // the session that meets the blade is told by its verbs
	fn()
}

// provision makes sure that a part of a blade's region has memory, as rdma.Fabric.Provision does.
// Within a change it returns what the blade has answered, or nil, and has the blade asked before
// anything is committed. The caller holds the lock, or is the only one.
func (s *store) provision(b rdma.BladeID, off, n uint64) error {
	u := s.making
	if u == nil {
		return s.fabric.Provision(b, off, n)
	}
	k := [3]uint64{uint64(b), off, n}
	if err, ok := u.provided[k]; ok {
		return err
	}
	u.asks = append(u.asks, func() {
		if u.provided == nil {
			u.provided = map[[3]uint64]error{}
		}
		u.provided[k] = s.fabric.Provision(b, off, n)
	})
	return nil
}

// doubt is a change of the catalog that has failed, and the question what has become of it, too.
type doubt struct {
	changes []layout.Entry
	rev     layout.Revision // that they were to change
	err     error
}

// commit makes changes of the catalog durable; the caller holds the lock and changes the
// layout accordingly when nil is returned. errAgain: nothing was changed, and the layout is
// another one, or blades have to be asked before. If the catalog fails, it is asked what
// became of the changes, so that memory and catalog agree; if it does not answer that either,
// before anything else is changed.
func (s *store) commit(changes ...layout.Entry) error {
	if s.making != nil && len(s.making.asks) > 0 || s.turnless() {
		return errAgain
	}
	if err := s.agree(); err != nil {
		return err
	}
	rev, err := s.apply(s.rev, changes)
	if err == nil {
		s.rev = rev
		return nil
	}
	err = fmt.Errorf("memory: catalog %s: %w", s.cat.Name(), err)
	if errors.Is(err, ErrRevision) {
		return s.reload()
	}
	if errors.Is(err, layout.ErrForeign) { // it was not made
		return s.distrust(err)
	}
	s.doubt = &doubt{slices.Clone(changes), s.rev, err}
	made, _, askErr := s.ask()
	if askErr != nil {
		err = further(err, "and then", askErr)
		s.doubt.err = err
	}
	if made {
		return nil
	}
	return err
}

// turnless reports whether a change has got as far as it can without the turn, and notes that it
// needs that. The caller holds the lock.
func (s *store) turnless() bool {
	u := s.making
	if u == nil || u.turn {
		return false
	}
	u.wants = true
	return true
}

// apply is Catalog.Apply. The caller holds the lock and has the turn; the lock is not held
// meanwhile.
func (s *store) apply(rev layout.Revision, changes []layout.Entry) (now layout.Revision, err error) {
	s.called(func() { now, err = s.cat.Apply(rev, changes) })
	return now, err
}

// agree settles a change of the catalog that is in doubt: the caller that wanted it was told that
// it has failed, so if it was made all the same, it is taken back. What other processes may have
// gone on from is not: an epoch, and in a shared database verdicts, tables, and whatever there is
// when they have changed the catalog since. They may even have made the same change, such as a
// verdict on the same coordinators. Then it is errAgain. The caller holds the lock.
func (s *store) agree() error {
	d := s.doubt
	if d == nil {
		return nil
	}
	if s.turnless() {
		return errAgain
	}
	for tries := 0; ; tries++ {
		made, rev, err := s.ask()
		if err == nil && !made {
			return nil
		}
		if err == nil {
			was, alone := as(s.layout.Entries(), d.changes), rev == s.rev
			if moves(was, d.changes) || s.opts.Shared && (!alone || layout.BuiltOn(d.changes)) {
				had := s.layout.Coordinators
				if err := s.reload(); !errors.Is(err, errAgain) {
					s.doubt = d
					return further(d.err, "and later", err)
				}
				s.above.abandonUnknown(had)
				return errAgain
			}
			if rev, err = s.apply(rev, was); err == nil {
				if alone {
					s.rev = rev
				}
				return nil
			}
			s.doubt = d
		}
		// Another revision: an earlier attempt to take it back was late, or others
		// change the catalog.
		if !errors.Is(err, ErrRevision) || tries == maxAsks {
			return further(d.err, "and later", err)
		}
	}
}

// maxAsks bounds how often in a row others change the catalog while it is asked what has
// become of a change.
const maxAsks = 100

// further adds to err what came after it, if that is not the same error again.
func further(err error, when string, next error) error {
	if errors.Is(err, next) {
		return err
	}
	return fmt.Errorf("%w; %s: %w", err, when, next)
}

// ask asks the catalog whether the change in doubt was made, which then is in doubt no more; and at
// which revision the catalog is. If it was not made, it never will be: at the revision that it is
// for the entries are written again as they are, so should it arrive late, the catalog has another
// one. If other processes have changed the catalog meanwhile, Space.rev stays behind, and the next
// commit loads what they have changed. A change of which they have changed a part since counts as
// not made: it is there when the layout is loaded.
func (s *store) ask() (made bool, rev layout.Revision, err error) {
	d := s.doubt
	for range maxAsks {
		var entries []layout.Entry
		if entries, rev, err = s.load(); err != nil {
			return false, 0, err
		}
		made = applied(entries, d.changes) && rev != d.rev // or they change nothing
		if rev == d.rev {
			if rev, err = s.apply(rev, as(entries, d.changes)); errors.Is(err, ErrRevision) {
				continue // it has just arrived, or others have changed something
			}
			if err != nil {
				return false, 0, err
			}
			s.rev = rev
		} else if s.ours(entries, d.changes, made) {
			s.rev = rev
		}
		s.doubt = nil
		return made, rev, nil
	}
	return false, 0, ErrRevision
}

// ours reports whether entries are what the layout says, or that with the changes if they were
// made: else another process has changed the catalog meanwhile.
func (s *store) ours(entries, changes []layout.Entry, made bool) bool {
	made = made || s.view.Load() == nil // while it is being opened, the layout comes before the catalog
	for _, e := range layout.Difference(layout.OwnEntries(entries), s.layout.Entries()) {
		if !made || !slices.ContainsFunc(changes, func(c layout.Entry) bool { return c.Key == e.Key }) {
			return false
		}
	}
	return true
}

// moves reports whether changes begin another epoch than was.
func moves(was, changes []layout.Entry) bool { return layout.EpochIn(was) != layout.EpochIn(changes) }

// as returns the entries that changes are about: as they are.
func as(entries, changes []layout.Entry) []layout.Entry {
	out := make([]layout.Entry, len(changes))
	for i, c := range changes {
		out[i].Key = c.Key
		if k := slices.IndexFunc(entries, func(e layout.Entry) bool { return e.Key == c.Key }); k >= 0 {
			out[i].Value = entries[k].Value
		}
	}
	return out
}

// applied reports whether all changes are in effect.
func applied(entries, changes []layout.Entry) bool {
	have := make(map[string]string, len(entries))
	for _, e := range entries {
		have[e.Key] = string(e.Value)
	}
	for _, e := range changes {
		if v, ok := have[e.Key]; ok != (e.Value != nil) || v != string(e.Value) {
			return false
		}
	}
	return true
}

// Await waits until the catalog has another revision than this process knows, by a change of any
// process, and follows. It returns the error of ctx when that ends before, and that of the catalog.
func (s *store) Await(ctx context.Context) error {
	s.mu.Lock()
	rev := s.rev
	s.mu.Unlock()
	if _, err := s.cat.Await(ctx, rev); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.distrust(err)
	}
	return s.Follow()
}

// Follow takes over what other processes have changed in the catalog, if it has another revision
// than this process knows: coordinators, segments, blades. It begins an epoch that another process
// has made, and publishes the view. It does not wait for a change. Without one it costs a question
// to the catalog. When it returns nil, this process knows all that was changed before the call. An
// error that matches ErrAway: the catalog has not answered, and what other processes have changed
// is not known. Safe for concurrent use.
func (s *store) Follow() error {
	s.mu.Lock()
	err, rev, settled := s.closed, s.rev, s.doubt == nil && !s.beginning()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if settled {
		if newer, err := s.newer(rev); err != nil || !newer {
			return err
		}
	}
	return s.update(func() error {
		if s.closed != nil {
			return s.closed
		}
		if s.making.followed {
			return nil
		}
		s.making.followed = true
		if err := s.agree(); err != nil {
			return err
		}
		return s.reload()
	})
}

// reload loads the layout from the catalog, which other processes have changed. It returns
// errAgain when it has done so: what the caller has found in the layout before counts no more. The
// caller holds the lock.
func (s *store) reload() error {
	if s.view.Load() == nil {
		return errAgain // Open begins anew
	}
	if s.turnless() {
		return errAgain
	}
	entries, rev, err := s.load()
	if err != nil {
		return err
	}
	l, err := layout.Decode(s.cat.Name(), entries)
	if err != nil {
		return err
	}
	if old := s.layout; l == nil || l.Geometry != old.Geometry || len(l.Blades) != len(old.Blades) ||
		l.Epoch < old.Epoch {
		s.closed = fmt.Errorf("%w: catalog %s was exchanged for that of another database, or for an old copy",
			layout.ErrForeign, s.cat.Name())
		return s.closed
	}
	s.above.replace(l, rev)
	return errAgain
}

// replace makes the layout that of the catalog, and derives from the difference what the catalog
// does not say itself. If the epoch has moved, the new one has not begun in this process: see
// await. The caller holds the lock.
func (s *Space) replace(l *layout.Layout, rev layout.Revision) {
	old := s.layout
	s.layout, s.rev = l, rev
	s.notice(old)
	s.countCompany(old, l)
	s.raiseFrees()
	gone, promoted := l.Departed(old)
	skipped := l.Epoch > old.Epoch+1
	lost := lostLocks(old, l) || skipped && !l.Outlived(old)
	s.disinherit(old)
	defer s.inherit(old)
	if gone || lost || l.Unswept && !old.Unswept {
		s.sweeps++
		s.halfDone.Store(true)
	}
	s.owing = s.owing || lost || promoted || s.orphaned(old)
	if !l.Unswept { // another process has come to the end of its sweep, of all that are gone
		s.halfDone.Store(lost || s.failing)
		s.withheld, s.waits.holder = false, 0
	}
	if promoted || lost {
		s.losses++
		s.dangling = true // another process may have come to the end of its sweep
	}
	s.dangling = s.dangling || l.Dangling
	for id := range s.abandoned {
		was, now := old.Coordinator(id), l.Coordinator(id)
		if was == nil || now == nil || *was != *now {
			delete(s.abandoned, id) // another process has claimed it, or closed it
		}
	}
	for id := range s.claimed {
		if l.Coordinator(id) == nil {
			delete(s.claimed, id)
		}
	}
	if !s.beginning() {
		s.derive()
		return
	}
	for b := range s.scrubbed {
		if skipped || l.Blades[b].State == layout.BladeUp { // another process may have had it up meanwhile
			delete(s.scrubbed, b)
		}
	}
	s.skipped = s.skipped || skipped
	s.register()
}
