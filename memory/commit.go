package memory

import (
	"errors"
	"fmt"
	"slices"
)

// doubt is a change of the catalog that has failed, and the question what has become of it, too.
type doubt struct {
	changes []Entry
	rev     Revision // that they were to change
	err     error
}

// commit makes changes of the catalog durable; the caller holds the lock and
// changes the layout accordingly when nil is returned. If the catalog fails, it
// is asked what became of the changes, so that memory and catalog agree; if it does not
// answer that either, before anything else is changed.
func (s *Space) commit(changes ...Entry) error {
	if err := s.agree(); err != nil {
		return err
	}
	rev, err := s.cat.Apply(s.rev, changes)
	if err == nil {
		s.rev = rev
		return nil
	}
	err = fmt.Errorf("memory: catalog %s: %w", s.cat.Name(), err)
	if errors.Is(err, ErrRevision) {
		s.closed = err
		return err
	}
	s.doubt = &doubt{slices.Clone(changes), s.rev, err}
	made, askErr := s.ask()
	if askErr != nil {
		err = further(err, "and then", askErr)
		s.doubt.err = err
	}
	if made {
		return nil
	}
	return err
}

// agree has the catalog say what the layout says, if a change of it is in doubt: whoever wanted
// that was told that it has failed, so if it was made all the same, it is taken back. The caller
// holds the lock.
func (s *Space) agree() error {
	d := s.doubt
	if d == nil {
		return nil
	}
	for tries := 0; ; tries++ {
		made, err := s.ask()
		if err == nil && !made {
			return nil
		}
		if err == nil {
			var rev Revision
			if rev, err = s.cat.Apply(s.rev, as(s.layout.entries(), d.changes)); err == nil {
				s.rev = rev
				return nil
			}
			s.doubt = d
		}
		// Another revision: an earlier attempt to take it back was late.
		if !errors.Is(err, ErrRevision) || s.closed != nil || tries > 0 {
			return further(d.err, "and later", err)
		}
	}
}

// further adds to err what came after it, if that is not the same error again.
func further(err error, when string, next error) error {
	if errors.Is(err, next) {
		return err
	}
	return fmt.Errorf("%w; %s: %w", err, when, next)
}

// ask asks the catalog whether the change in doubt was made, which then is none any more. If it
// was not, it never will be: the entries that it is about are written again as they are, so should
// it arrive late, the catalog has another revision.
func (s *Space) ask() (made bool, err error) {
	d := s.doubt
	for range 2 {
		entries, rev, err := s.cat.Load()
		if err != nil {
			return false, err
		}
		made = applied(entries, d.changes) && rev != d.rev // or they change nothing
		if !s.ours(entries, d.changes, made) {
			break
		}
		s.rev = rev
		if !made {
			if rev, err = s.cat.Apply(rev, as(entries, d.changes)); errors.Is(err, ErrRevision) {
				continue // it has just arrived
			}
			if err != nil {
				return false, err
			}
			s.rev = rev
		}
		s.doubt = nil
		return made, nil
	}
	s.closed = fmt.Errorf("%w; and then: %w", d.err, ErrRevision)
	return false, ErrRevision
}

// ours reports whether entries are what the layout says, or that with the changes if they were
// made: else another process has changed the catalog meanwhile.
func (s *Space) ours(entries, changes []Entry, made bool) bool {
	made = made || s.view.Load() == nil // while it is being opened, the layout comes before the catalog
	for _, e := range difference(entries, s.layout.entries()) {
		if !made || !slices.ContainsFunc(changes, func(c Entry) bool { return c.Key == e.Key }) {
			return false
		}
	}
	return true
}

// as returns the entries that changes are about: as they are.
func as(entries, changes []Entry) []Entry {
	out := make([]Entry, len(changes))
	for i, c := range changes {
		out[i].Key = c.Key
		if k := slices.IndexFunc(entries, func(e Entry) bool { return e.Key == c.Key }); k >= 0 {
			out[i].Value = entries[k].Value
		}
	}
	return out
}

// applied reports whether all changes are in effect.
func applied(entries, changes []Entry) bool {
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
