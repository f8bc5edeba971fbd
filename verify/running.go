package verify

import (
	"context"
	"errors"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
)

// How often a database that is in use is looked at, at most, and how long it is left alone in
// between, at first. The pause doubles.
const (
	runningPasses = 6
	runningPause  = 100 * time.Millisecond
	// runningMoves is during how many passes in a row the epoch may move.
	runningMoves = 20
)

// ErrMoving says that the epoch has moved again and again while the database was checked, so that
// it could not be read to its end.
var ErrMoving = errors.New("verify: the epoch has moved in each pass over the database: check it when no blade is " +
	"lost and no copies move")

// errMoved: the epoch has moved during this pass.
var errMoved = errors.New("verify: the epoch has moved")

// CheckRunning checks a database that processes have open, and change meanwhile. attach attaches
// to it as it is then, and returns what undoes that; it is called before each pass over the
// database, of which there are several if the first one finds anything. What is read while it
// changes may look wrong, since a check takes no locks. So a finding counts, and is reported, if
// every pass has found the same: the same kind at the same place, with the same words and
// numbers. A transaction that is under way, an epoch that begins, a segment that moves, or a slot
// whose record was inserted later, is seen once. What no transaction touches is the same each
// time, and damage is that.
//
// A pass in which the epoch moves does not count, and is made again; ErrMoving: it never comes to
// its end.
//
// Locks of coordinators that the catalog calls alive are in order, whatever Options.Alive says.
// Nothing is repaired: Options.Repair must be false. The numbers of the summary are those of
// the last pass, and its findings those that count. Options.Progress and Options.Free are
// called in each pass.
//
// Two limits: damage of a record that changes all the time may not be found here, but it is met,
// and repaired, by the transactions that read it; and a place that is seen in the same half of the
// same change in all passes is a finding.
func CheckRunning(ctx context.Context, attach func(context.Context) (*Database, func() error, error),
	o Options) (sum Summary, err error) {
	if o.Repair {
		return sum, errors.New("verify: a database that processes have open cannot be repaired: o.Repair is set")
	}
	var found map[sameness]Finding
	var order []sameness
	for pass, moves := 0, 0; pass < runningPasses; {
		if pass+moves > 0 {
			select {
			case <-ctx.Done():
				return unconfirmed(sum), ctx.Err()
			case <-time.After(runningPause << max(pass-1, 0)):
			}
		}
		var now map[sameness]Finding
		sum, now, err = checkOnce(ctx, attach, o, &order, pass == 0)
		if errors.Is(err, errMoved) {
			if moves++; moves == runningMoves {
				return unconfirmed(sum), ErrMoving
			}
			continue
		}
		if err != nil {
			return unconfirmed(sum), err
		}
		pass, moves = pass+1, 0
		for p := range found {
			if _, again := now[p]; !again {
				delete(found, p)
			}
		}
		if found == nil {
			found = now
		}
		if len(found) == 0 {
			break
		}
	}
	sum = unconfirmed(sum)
	for _, p := range order {
		f, ok := found[p]
		if !ok {
			continue
		}
		sum.Findings++
		sum.ByKind[f.Kind]++
		if f.Unfinished {
			sum.Unfinished++
		}
		if o.Report != nil {
			if err := o.Report(f); err != nil {
				return sum, err
			}
		}
	}
	return sum, nil
}

// unconfirmed is a summary without the findings of one pass.
func unconfirmed(sum Summary) Summary {
	sum.Findings, sum.Unfinished, sum.ByKind = 0, 0, map[Kind]uint64{}
	return sum
}

// sameness is what makes a finding the same as one of another pass. Segments may move to other
// blades in between.
type sameness struct {
	kind  Kind
	table uint16
	addr  layout.Addr
	copy  int
	at    rdma.RemoteAddr // if it has no address
	what  string
}

func sameOf(f *Finding) sameness {
	p := sameness{kind: f.Kind, table: f.Table, addr: f.Addr, copy: f.Copy, what: f.What}
	if f.Addr == 0 {
		p.at = rdma.RemoteAddr{Blade: f.Blade, Off: f.Off}
	}
	return p
}

// checkOnce makes one pass. It appends to order what it finds, if told to.
func checkOnce(ctx context.Context, attach func(context.Context) (*Database, func() error, error), o Options,
	order *[]sameness, note bool) (sum Summary, found map[sameness]Finding, err error) {
	d, detach, err := attach(ctx)
	if err != nil {
		return sum, nil, err
	}
	defer func() { err = errors.Join(err, detach()) }()
	alive := map[uint32]bool{}
	for i := range d.l.Coordinators {
		if c := &d.l.Coordinators[i]; !c.Recovering {
			alive[c.ID] = true
		}
	}
	found = map[sameness]Finding{}
	if note {
		*order = (*order)[:0] // those of a pass that did not count
	}
	o.Alive = func(coordinator uint32) bool { return alive[coordinator] }
	o.Report = func(f Finding) error {
		if d.stale {
			return errMoved
		}
		p := sameOf(&f)
		if _, twice := found[p]; !twice && note {
			*order = append(*order, p)
		}
		found[p] = f
		return nil
	}
	if sum, err = d.Check(ctx, o); err == nil && d.stale {
		err = errMoved
	}
	return sum, found, err
}
