package seeds

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/txn"
	"txnode/verify"
)

// mostFindings is how many findings a violation shows.
const mostFindings = 8

// audit walks a database that was closed, as txnode check does: no lock is left,
// every image is intact, all replicas are equal, every block in use is one that a
// slot points to, no log has anything to be done. And every block that is free is in a
// pool of space, or a coordinator that is registered has it: none is lost, and none is
// there twice. open: it was not closed, and there are coordinators.
func audit(f rdma.Fabric, cat layout.Catalog, space *memory.Space, open bool) (l *layout.Layout,
	sum verify.Summary, err error) {
	if l, err = layout.LoadLayout(cat); err != nil {
		return l, sum, err
	}
	d, err := verify.Attach(f, l)
	if err != nil {
		return l, sum, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	var found []string
	findings := 0
	var free []memory.FreeBlock
	note := func(a layout.Addr, version uint64) { free = append(free, memory.FreeBlock{Addr: a, Version: version}) }
	sum, err = d.Check(context.Background(),
		verify.Options{Free: note, Indexes: txn.CatalogIndexes, Report: func(x verify.Finding) error {
			if open && aboutExtent(l, &x) {
				return nil
			}
			if findings++; len(found) < mostFindings {
				found = append(found, x.String())
			}
			return nil
		}})
	if err != nil {
		return l, sum, err
	}
	if findings > 0 {
		return l, sum, fmt.Errorf("the walk over the blades has %d findings:\n\t\t%s",
			findings, strings.Join(found, "\n\t\t"))
	}
	if sum.Coordinators > 0 && !open {
		return l, sum, fmt.Errorf("%d coordinators are registered after all were closed", sum.Coordinators)
	}
	if space == nil { // its handle was given up
		return l, sum, nil
	}
	return l, sum, owned(space, free)
}

// owned demands that all free blocks are where somebody can have them, once.
func owned(space *memory.Space, free []memory.FreeBlock) error {
	nobodys, twice := space.Unowned(free)
	switch {
	case len(twice) > 0:
		return fmt.Errorf("%d blocks are there to be had twice, one of them %v", len(twice), twice[0])
	case len(nobodys) > 0:
		x := nobodys[0]
		return fmt.Errorf("%d of %d free blocks are nobody's, one of them %v, version %v",
			len(nobodys), len(free), x.Addr, record.TxID(x.Version))
	}
	return nil
}

// aboutExtent tells the trace of a split that nobody has finished: the memory of the
// new sub-table stays allocated, on all copies or on some, when its client dies before
// the index leads to it, until the database is opened again.
func aboutExtent(l *layout.Layout, x *verify.Finding) bool {
	switch x.Kind {
	case verify.KindOrphan:
		return strings.Contains(x.What, "no index uses the extent")
	case verify.KindReplica:
		seg := int(x.Addr.Segment())
		return seg < len(l.Segments) && l.Segments[seg].Kind == layout.KindIndex &&
			x.Addr.Offset() < memory.ExtentTable(l.SegmentSize)
	}
	return false
}

// close ends the database and audits what it leaves. Where others have recovered the
// dead, nothing of them may be left before: it is then opened once more, since
// workers whose threads were stopped keep a handle from being closed. Every outcome is
// what it was.
func (b *bench) close() error {
	f := b.world.fabric
	if b.survive {
		space := b.db.Space()
		if b.processes > 1 {
			space = nil // it knows what others have freed when it looks for that
		}
		f.Settle()
		if _, _, err := audit(f, &b.world.catalog, space, true); err != nil {
			return fmt.Errorf("before the database was closed: %w", err)
		}
	}
	if b.processes > 1 {
		if err := b.leave(); err != nil {
			return err
		}
	}
	if b.survive || b.processes > 1 || b.faults != nil && b.seed%reopenEvery == 0 {
		f.StopAll()
		if err := b.openDB(); err != nil {
			return err
		}
		if !b.db.Space().First() {
			return errors.New("the database was closed, and a process that opens it is not the first one")
		}
		if err := b.ledger.again(b.db); err != nil {
			return err
		}
	}
	space := b.db.Space()
	if err := b.db.Close(context.Background()); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	f.Settle()
	l, sum, err := audit(f, &b.world.catalog, space, false)
	if err != nil {
		return err
	}
	b.cover(l, &sum)
	return nil
}

// leave has the last of several processes close the database. If there were faults, that process is
// killed before, and another one opens the database beside it and recovers it.
func (b *bench) leave() error {
	f := b.world.fabric
	if b.faults != nil {
		f.StopAll()
		if err := b.openDB(); err != nil {
			return err
		}
		if err := b.converge(); err != nil {
			return err
		}
		if err := b.ledger.again(b.db); err != nil {
			return err
		}
	}
	if err := b.db.Close(context.Background()); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	f.Settle()
	_, sum, err := audit(f, &b.world.catalog, nil, true) // extents that nothing leads to stay until it is opened
	if err == nil && sum.Coordinators > 0 {
		err = fmt.Errorf("%d coordinators are registered", sum.Coordinators)
	}
	if err != nil {
		return fmt.Errorf("after the last process has closed the database: %w", err)
	}
	return nil
}

// reopenEvery is in how many runs in which everybody was killed the database is opened
// a second time.
const reopenEvery = 8
