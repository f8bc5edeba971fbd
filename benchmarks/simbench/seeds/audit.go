package seeds

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"txnode/memory"
	"txnode/rdma"
	"txnode/verify"
)

// mostFindings is how many findings a violation shows.
const mostFindings = 8

// audit walks a database that was closed, as txnode check does: no lock is left,
// every image is intact, all replicas are equal, every block in use is one that a
// slot points to, no log has anything to be done. And every block that is free was
// given back to space, so that somebody can have it. A space that is nil is not asked:
// one that was opened after a crash finds free blocks by their headers, so that what
// the walk calls free it can have, too. open: it was not closed, and there are coordinators.
func audit(f rdma.Fabric, cat memory.Catalog, space *memory.Space, open bool) (l *memory.Layout, sum verify.Summary, err error) {
	if l, err = memory.LoadLayout(cat); err != nil {
		return l, sum, err
	}
	d, err := verify.Attach(f, l)
	if err != nil {
		return l, sum, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	var found []string
	findings := 0
	sum, err = d.Check(context.Background(), verify.Options{Report: func(x verify.Finding) error {
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
		return l, sum, fmt.Errorf("the walk over the blades has %d findings:\n\t\t%s", findings, strings.Join(found, "\n\t\t"))
	}
	if sum.Coordinators > 0 && !open {
		return l, sum, fmt.Errorf("%d coordinators are registered after all were closed", sum.Coordinators)
	}
	if space == nil {
		return l, sum, nil
	}
	free := uint64(0)
	for class := range memory.Class(memory.NumClasses) {
		n, unseen := space.FreeBlocks(class)
		free += n + unseen
	}
	if free != sum.Free {
		err = fmt.Errorf("%d blocks are free on the blades, the allocator knows %d", sum.Free, free)
	}
	return l, sum, err
}

// aboutExtent tells the trace of a split that nobody has finished: the memory of the
// new sub-table stays allocated, on all copies or on some, when its client dies before
// the index leads to it, until the database is opened again.
func aboutExtent(l *memory.Layout, x *verify.Finding) bool {
	switch x.Kind {
	case verify.KindOrphan:
		return strings.Contains(x.What, "no index uses the extent")
	case verify.KindReplica:
		seg := int(x.Addr.Segment())
		return seg < len(l.Segments) && l.Segments[seg].Kind == memory.KindIndex && x.Addr.Offset() < memory.ExtentTable(l.SegmentSize)
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
		f.Settle()
		if _, _, err := audit(f, b.world.catalog, nil, true); err != nil {
			return fmt.Errorf("before the database was closed: %w", err)
		}
	}
	if b.survive || b.faults != nil && b.seed%reopenEvery == 0 {
		f.StopAll()
		if err := b.openDB(); err != nil {
			return err
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
	if b.faults != nil {
		space = nil
	}
	l, sum, err := audit(f, b.world.catalog, space, false)
	if err != nil {
		return err
	}
	b.cover(l, &sum)
	return nil
}

// reopenEvery is in how many runs in which everybody was killed the database is opened
// a second time.
const reopenEvery = 8
