package race

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
)

// CorruptError says what is wrong where. It is an index.ErrCorrupt.
type CorruptError struct {
	Table uint16
	Addr  layout.Addr // of the damaged word or line
	Err   error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("index: index of table %d is damaged at %v: %v; check the database, restore it from a copy",
		e.Table, e.Addr, e.Err)
}

// Is matches index.ErrCorrupt, and layout.ErrCorrupt.
func (e *CorruptError) Is(target error) bool {
	return target == index.ErrCorrupt || target == layout.ErrCorrupt
}

// Unwrap returns what is wrong.
func (e *CorruptError) Unwrap() error { return e.Err }

// BusyError says whose change does not finish. It is an index.ErrBusy.
type BusyError struct {
	Table uint16
	Addr  layout.Addr // of the lock or slot that was waited for
	Owner uint64      // who holds the lock, as set by SetOwner; 0: not known
	What  string
}

func (e *BusyError) Error() string {
	who := "another client"
	if e.Owner != 0 {
		who = fmt.Sprintf("client %d", e.Owner)
	}
	return fmt.Sprintf("index: index of table %d: %s at %v, begun by %s, does not finish; try again, or recover the "+
		"index if the client is dead", e.Table, e.What, e.Addr, who)
}

// Is matches index.ErrBusy.
func (e *BusyError) Is(target error) bool { return target == index.ErrBusy }

// noExtent is the error of an allocation that failed: an index.ErrFull when there
// is no room.
func noExtent(what string, table uint16, err error) error {
	if errors.Is(err, memory.ErrNoSpace) || errors.Is(err, memory.ErrTooLarge) {
		return fmt.Errorf("index: %s for table %d: %w: %w", what, table, index.ErrFull, err)
	}
	return fmt.Errorf("index: %s for table %d: %w", what, table, err)
}

// lost returns why an address cannot be reached whose segment has no copy left, else nil.
func (ix *Index) lost(a layout.Addr) error {
	if s, ok := ix.space.(interface{ LostError(a layout.Addr) error }); ok {
		if err := s.LostError(a); err != nil {
			return fmt.Errorf("index: index of table %d: %w", ix.geo.Table, err)
		}
	}
	return nil
}

// outside is what is wrong when a view does not have address to, which word a names:
// nothing that is damaged if its segment is lost, or newer than the view.
func (ix *Index) outside(v *layout.View, a, to layout.Addr, format string, args ...any) error {
	if s, ok := ix.space.(interface {
		Missing(v *layout.View, a layout.Addr) error
	}); ok {
		if err := s.Missing(v, to); err != nil {
			return fmt.Errorf("index: index of table %d: %w", ix.geo.Table, err)
		}
	}
	return ix.corrupt(a, format, args...)
}

func (ix *Index) corrupt(a layout.Addr, format string, args ...any) error {
	if err := ix.lost(a); err != nil {
		return err
	}
	return &CorruptError{Table: ix.geo.Table, Addr: a, Err: fmt.Errorf(format, args...)}
}
