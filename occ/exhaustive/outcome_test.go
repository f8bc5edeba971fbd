package exhaustive

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"txnode/memory/layout"
	"txnode/occ"
)

// expect finds out what there may be, after each attempt that had effect.
func (s *stops) expect() {
	now := maps.Clone(s.contents)
	for _, o := range s.ops {
		if o.what == opGone {
			delete(now, o.key)
		}
	}
	s.states = []string{printed(now)}
	for rest := s.ops; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(o op) bool { return o.what == opNext })
		one := rest
		if rest = nil; n >= 0 {
			one, rest = one[:n], one[n+1:]
		}
		if len(one) == 1 && one[0].what == opRest {
			continue
		}
		after := maps.Clone(now)
		for _, o := range one {
			switch {
			case o.what == opPut, o.what == opEdit, o.what == opLate, o.what == opInsert && now[o.key] == "":
				after[o.key] = o.value
			case o.what == opDelete:
				delete(after, o.key)
			case o.what == opRoll, o.what == opInsert:
				after = maps.Clone(now)
			}
		}
		now = after
		s.states = append(s.states, printed(now))
	}
}

// meant reports whether an attempt ended as it does undisturbed.
func meant(err error) bool {
	return err == nil || errors.Is(err, errRolled) || errors.Is(err, errExists)
}

// asMeant is how many attempts did, up to the first that did not.
func asMeant(told []error) (n int) {
	for n < len(told) && meant(told[n]) {
		n++
	}
	return n
}

// check holds what is there against what the victim was told in its attempts: an
// attempt that has failed, and whose outcome is not unknown, had no effect, nor has
// any after it, since its coordinator does not go on.
func (s *stops) check(told []error) error {
	found, err := s.sound(s.keys)
	if err == nil {
		err = errors.Join(s.spare(), s.owned())
	}
	if err != nil {
		return err
	}
	n := asMeant(told)
	open := n == len(told) || errors.Is(told[n], occ.ErrOutcomeUnknown)
	if found == s.states[n] || open && n+1 < len(s.states) && found == s.states[n+1] {
		return s.verdict(n, found)
	}
	return fmt.Errorf("there is %s\nafter %d attempts (told %v) that lead to\n%s",
		found, n, told, strings.Join(s.states, "\n"))
}

// verdict holds what the catalog says of the victim's attempts against what they were
// told, and, of the one that was under way after n others, against what is there.
func (s *stops) verdict(n int, content string) error {
	v, ok := s.space.Verdict(s.victim.session.Coordinator())
	if !ok {
		return errors.New("there is no verdict on the coordinator")
	}
	for i, id := range s.victim.ids {
		o := v.Of(id.Seq())
		switch {
		case i+1 >= len(s.states) || s.states[i] == s.states[i+1]: // without effect, so it makes no difference
		case i < n && o == layout.OutcomeAborted:
			return fmt.Errorf("attempt %d was told that it has committed, and the verdict on it is %v", i, o)
		case i != n:
		case content == s.states[i] && o == layout.OutcomeCommitted,
			content == s.states[i+1] && o != layout.OutcomeCommitted:
			return fmt.Errorf("the verdict on attempt %d is %v, but there is %s", i, o, content)
		case o == layout.OutcomeUnknown:
			return fmt.Errorf("attempt %d is undecided, and the catalog does not say how it ended", i)
		}
	}
	return nil
}
