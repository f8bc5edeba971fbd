package memory

import (
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
)

// A backup of a shared database is the state at one moment, its cut. The cut is a change of the
// catalog that also declares all coordinators dead ([ClaimOptions].Change): none begins before the
// transactions of all are decided and in place. The entry names the number of the next coordinator,
// and that tells what belongs to the backup:
//
//	version of a coordinator below the number   written before the cut: the image is the backup's
//	any other version                           written after it: the backup has what the image
//	                                            has replaced
//
// Claim: the transactions of coordinators below the number are a set that comes first in a serial
// order, in agreement with real time. Let T be a moment at which all of these coordinators are
// forgotten and none was registered since. What they have committed was in place before T, and
// their keys open no blade any more. Another coordinator is registered by a later revision of the
// catalog. So all points of the first lie before T, and all points of the others behind it.
//
// A session of a coordinator that is not below the number knows the cut: it was registered in a
// layout that has the entry. As long as that is there, a transaction that replaces, or deletes, an
// image of a version below the number keeps that, by a record of its own that it commits beside:
// see occ. So at every moment the image is where it was, or is kept.
//
// The entry is a right, RightBackup, of the process that makes the backup:
//
//	the process dies              the entry goes with its registration (TakeOver): others keep
//	                              nothing any more
//	it was only late              EndCut finds that out, and the backup has failed
//	a transaction cannot keep     BreakCut notes that in the entry, before the transaction
//	                              commits: EndCut says why
//	a process has not followed    and keeps what no backup wants any more: the next backup frees
//	                              that
//	a program that is older       cannot read the catalog while the entry is there
//
// What nothing tells is whether a reader that is late has learnt of the end. It does not matter.

// Cut is a moment of the database, of which a backup is made.
type Cut struct {
	// Number is above those of all coordinators before the cut, and above none of those after it.
	Number uint32
	// Tables are those of the catalog at the cut.
	Tables []layout.Table
}

// cutError says why a backup has failed; nil: it has not.
func cutError(f layout.CutFault) error {
	texts := [...]string{
		layout.CutRoom: "the blades have no room for what transactions replace meanwhile: add a blade, or make " +
			"the backup when fewer transactions write",
		layout.CutLarge: "a transaction has replaced so much that its log area has no room to keep that beside: " +
			"make the backup when there are no such transactions, or take a larger LogArea",
		layout.CutDamage: "a transaction has replaced a record of which no copy is intact: try again",
		layout.CutTable: "the table in which transactions keep what they replace meanwhile cannot be used: check " +
			"the database",
	}
	if f == 0 || int(f) >= len(texts) {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrCut, texts[f])
}

// BeginCut begins a backup in this process. change makes the cut, and fills it: the caller makes it
// by a claim of all coordinators, ClaimOptions.Change. The cut holds when that has returned, and
// all of them are forgotten. EndCut has to be called in every case. ErrShared: another backup is
// being made, or a table is being dropped.
func (s *membership) BeginCut() (cut *Cut, change func(*layout.Layout) error, err error) {
	if !s.opts.Shared {
		return nil, nil, errors.New("memory: a database of one process needs no cut")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acts(layout.RightBackup) {
		return nil, nil, fmt.Errorf("%w: this process makes a backup already: wait until that has ended", ErrShared)
	}
	s.note(layout.RightBackup)
	cut = &Cut{}
	return cut, func(l *layout.Layout) error {
		if l.Process(s.process) == nil { // by a claim this process had to be registered
			return fmt.Errorf("%w: this process was taken for dead: try again", ErrShared)
		}
		i, ok := l.FindRight(layout.RightBackup)
		dropper := l.Holder(layout.RightDrop)
		switch {
		case dropper != 0:
			return fmt.Errorf("%w: process %d drops a table: wait until that has ended, or, if the process has died, "+
				"until its lease has", ErrShared, dropper)
		case ok && l.Rights[i].Process != s.process:
			return fmt.Errorf("%w: process %d makes a backup: wait until that has ended, or, if the process has "+
				"died, until its lease has", ErrShared, l.Rights[i].Process)
		case ok: // it could not be given back
			l.Rights = slices.Delete(l.Rights, i, i+1)
		}
		cut.Number, cut.Tables = l.NextCoordinator, l.Clone().Tables
		l.Rights = slices.Insert(l.Rights, i, layout.Right{Of: layout.RightBackup, Process: s.process, Cut: cut.Number})
		return nil
	}, nil
}

// EndCut ends a backup, and says whether the cut has held until now: ErrCut, and why, if not. After
// another error it is not known, and the entry ends with the next renewal of the registration.
func (s *membership) EndCut(cut *Cut) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.rights, layout.RightBackup)
	}()
	var failed error
	return errors.Join(s.update(func() error {
		i, ok := s.layout.FindRight(layout.RightBackup)
		if !ok || s.layout.Rights[i].Process != s.process || s.layout.Rights[i].Cut != cut.Number {
			failed = fmt.Errorf("%w: others have taken this process for dead meanwhile", ErrCut)
			return nil
		}
		failed = cutError(s.layout.Rights[i].Fault)
		if err := s.dropRight(layout.RightBackup); err != nil {
			return err
		}
		s.register()
		return nil
	}), failed)
}

// BreakCut notes that a transaction could not keep what it replaces, so that it may replace that
// all the same when BreakCut has returned nil: the backup of the cut has failed, or has ended.
func (s *membership) BreakCut(number uint32, why layout.CutFault) error {
	return s.update(func() error {
		i, ok := s.layout.FindRight(layout.RightBackup)
		if !ok || s.layout.Rights[i].Cut != number || s.layout.Rights[i].Fault != 0 {
			return nil
		}
		if err := s.writable(); err != nil {
			return err
		}
		m := s.layout.Rights[i]
		m.Fault = why
		if err := s.commit(layout.EntryOfRight(m)); err != nil {
			return err
		}
		s.layout.Rights[i] = m
		s.register()
		return nil
	})
}

// CutNumber is Cut.Number of the backup that is being made, by any process, as far as this one has
// followed; 0: none, or it has failed. A session whose coordinator is not below that number has
// followed as far as the cut. It takes no lock.
func (s *membership) CutNumber() uint32 { return s.regs.Load().cut }
