package memory

import (
	"errors"
	"fmt"

	"txnode/rdma"
)

// An epoch has a key of its own on every blade that takes part: the blade chooses it, and the
// catalog names it. A process that changes the epoch has each blade grant a key, writes the
// keys to the catalog together with whatever else the epoch changes, and has each blade revoke
// the keys before. Only then has the epoch begun: until then verbs of the epoch before take
// effect. A process that finds an epoch in the catalog revokes, too, before it goes on, because
// the one that made it may have died in between.
//
//	died before the catalog was changed   the keys that were granted open the blades; no process has them
//	died before a blade revoked           Open revokes
//	lost the race for the catalog         as if it had died before
//	late, and revokes by an older epoch   changes nothing: the blade has keys in the order of epochs
//	a blade has restarted in between      its incarnation says so: it is to be declared dead
//
// See rdma.Fabric.Grant.

// grant has the blades that take part in l grant keys for its epoch, and notes them in l. A
// blade that does not, or that has restarted since the incarnation that l knows, has none. Such
// blades are the error. No blade is asked twice, and none is waited for.
func (s *Space) grant(l *Layout) error {
	before := s.fabric.Blades()
	errs := make([]error, len(l.Blades))
	for i, info := range before {
		b := &l.Blades[i]
		if b.Key = 0; b.State == BladeDown {
			continue
		}
		if restarted(b, info) {
			errs[i] = s.keyError(info.ID, rdma.ErrBladeDown, "granting an access key: it has restarted")
			continue
		}
		k, err := s.fabric.Grant(info.ID)
		if err != nil {
			errs[i] = s.keyError(info.ID, err, "granting an access key")
			continue
		}
		b.Key, b.Incarnation = k, info.Incarnation
	}
	// A key of a blade that has restarted before it granted it would open what has lost its
	// memory.
	for i, info := range s.fabric.Blades() {
		if b := &l.Blades[i]; b.Key != 0 && restarted(b, info) {
			b.Key = 0
			errs[i] = s.keyError(info.ID, rdma.ErrBladeDown, "granting an access key: it has restarted")
		}
	}
	return errors.Join(errs...)
}

// begin begins the epoch of the layout, which is that of the catalog: it ends the keys of those
// before. granted is what has gone wrong with its own keys. If a blade does not know its key any
// more, and has not restarted, the blade was asked for more keys than it holds since: the epoch is
// changed again. The caller holds the lock, or is the only one.
func (s *Space) begin(granted error) error {
	for tries := 0; ; tries++ {
		err := errors.Join(granted, s.revoke())
		if !errors.Is(err, rdma.ErrStaleKey) || tries == 3 || s.layout.Epoch == maxEpoch {
			return err
		}
		l := s.layout.clone()
		l.Epoch++
		granted = s.grant(l)
		if e := s.commit(difference(s.layout.entries(), l.entries())...); e != nil {
			return errors.Join(err, e)
		}
		s.layout = l
	}
}

// revoke ends the keys of earlier epochs than that of the layout.
func (s *Space) revoke() error {
	var errs []error
	for i := range s.layout.Blades {
		b, id := &s.layout.Blades[i], rdma.BladeID(i)
		if b.State == BladeDown || b.Key == 0 {
			continue
		}
		switch err := s.fabric.Revoke(id, b.Key); {
		case errors.Is(err, rdma.ErrStaleKey) && restarted(b, s.fabric.Blades()[i]):
			errs = append(errs, s.keyError(id, rdma.ErrBladeDown, "ending the access keys of earlier epochs: it has restarted"))
		case err != nil:
			errs = append(errs, s.keyError(id, err, "ending the access keys of earlier epochs"))
		}
	}
	return errors.Join(errs...)
}

func (s *Space) keyError(b rdma.BladeID, err error, what string) error {
	return &BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: what}
}

// restarted reports whether a blade is in another incarnation than the catalog says.
func restarted(b *Blade, info rdma.BladeInfo) bool {
	return b.Incarnation != 0 && info.Incarnation != b.Incarnation
}

// Restarted reports whether a blade that is up has stopped and come back since it
// has granted its key: what it had not placed is lost, or all that it had, so it has
// to be declared dead, whether it answers or not. Before any use of it, its old key
// opens nothing.
func (s *Space) Restarted(b rdma.BladeID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	blades := s.fabric.Blades()
	return int(b) < len(blades) && s.layout.Blades[b].State == BladeUp && restarted(&s.layout.Blades[b], blades[b])
}

// known reports whether the layout has a key of every blade that takes part, and no blade has
// begun anew since.
func (l *Layout) known(infos []rdma.BladeInfo) bool {
	for i := range l.Blades {
		if b := &l.Blades[i]; b.State == BladeUp && (b.Key == 0 || b.Incarnation != infos[i].Incarnation) {
			return false
		}
	}
	return true
}

// meet takes blades as they are, whatever incarnation they were in before: no other process
// has the database open.
func (l *Layout) meet(infos []rdma.BladeInfo) {
	for i := range l.Blades {
		if b := &l.Blades[i]; b.State == BladeUp {
			b.Incarnation = infos[i].Incarnation
		}
	}
}

// keysToRead finds the keys of a space that changes nothing. Beside others, those are the keys
// of the catalog, provided that their epoch has begun and is not over: the oldest that open the
// blades. With blades of its own, which have not been in use since they began anew, the space
// has them grant keys that only this process knows.
func (s *Space) keysToRead(infos []rdma.BladeInfo) error {
	l := s.layout
	beside := false
	for i := range l.Blades {
		beside = beside || l.Blades[i].State == BladeUp && l.Blades[i].Incarnation == infos[i].Incarnation
	}
	if !beside {
		l.meet(infos)
		return s.grant(l)
	}
	var errs []error
	for i := range l.Blades {
		b, info := &l.Blades[i], infos[i]
		switch {
		case b.State == BladeDown:
		case restarted(b, info):
			errs = append(errs, s.keyError(info.ID, rdma.ErrStaleKey, "it has restarted, which the process that has the database open is about to notice: try again, or, if there is none, open the database once for writing"))
		case b.Key != info.Key:
			errs = append(errs, s.keyError(info.ID, rdma.ErrStaleKey, fmt.Sprintf("the catalog %s says that the epoch is %d, and its access key is of another one: the process that has the database open is about to change the epoch: try again, or, if there is none, open the database once for writing", s.cat.Name(), l.Epoch)))
		}
	}
	return errors.Join(errs...)
}
