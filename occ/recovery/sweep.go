package recovery

import (
	"errors"
	"fmt"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// SweepReport says what a sweep has found.
type SweepReport struct {
	Blocks     int // headers looked at
	Locks      int // of nobody, resolved
	Tombstones int // deleted records of nobody's, unlinked
	Freed      int // blocks that came free
	Slots      int // that led to blocks which nobody has, and were emptied
	Strays     int // free blocks that nobody had, and that are in the pool now
	// Damage is what was found damaged first, and left as it is, nil: nothing.
	Damage error

	taken taken
}

// taken is a set of blocks: those that were somebody's, and not locked, when a sweep looked at
// them. What the sweep frees of them later, it has unlinked before.
type taken [][]uint64 // by segment, a bit for each line

// put says of the block that begins at a whether it is in the set.
func (t *taken) put(l *layout.Layout, a layout.Addr, is bool) {
	seg, i := int(a.Segment()), a.Offset()/record.LineSize
	if seg >= len(*t) {
		*t = append(*t, make(taken, len(l.Segments)-len(*t))...)
	}
	if (*t)[seg] == nil {
		(*t)[seg] = make([]uint64, (l.SegmentSize/record.LineSize+63)/64)
	}
	if is {
		(*t)[seg][i/64] |= 1 << (i % 64)
	} else {
		(*t)[seg][i/64] &^= 1 << (i % 64)
	}
}

// has reports whether the block that begins at a is in the set.
func (t taken) has(a layout.Addr) bool {
	seg, i := int(a.Segment()), a.Offset()/record.LineSize
	return seg < len(t) && int(i/64) < len(t[seg]) && t[seg][i/64]>>(i%64)&1 != 0 && a.Offset()%record.LineSize == 0
}

// Sweep walks over the whole database and brings into order what dead coordinators
// have left behind that their logs do not tell of: half-done changes of the
// indexes, locks of transactions that had not come to their logs, deleted records that
// they had not reclaimed yet, free blocks that they had (memory.ClaimStrays), and, when a
// blade was lost, slots of inserts whose placeholders it had. Transactions
// may run meanwhile. It is idempotent; when it has come to its end, the catalog no
// longer says that the database has to be swept, unless somebody else was at one of the
// locks: he may fail, so the next sweep looks at it again. Nor if an index is damaged: it goes
// on with what is sound, and leaves that one. If it is alone it says so in its report
// (SweepReport.Damage), else with an error, too.
//
// A block goes to the pool beside a damaged index only if no slot of that can lead to it. Slots
// lead to blocks that are free only where a blade was lost with a placeholder (Space.Dangling),
// since a block is placed before it is linked, and unlinked before it is freed: then none
// goes. Nor does one that the damaged table had last, nor one that is not free on a copy.
func Sweep(c *rdma.Coro, o Options) (SweepReport, error) {
	s := NewSweeper(o)
	for {
		done, err := s.Step(c)
		if done && err == nil && !o.Alone {
			err = s.Report.Damage
		}
		if done || err != nil {
			return s.Report, err
		}
	}
}

// SweepIndexes is the part of Sweep that is about indexes. One that is damaged does not keep it
// from the others.
func SweepIndexes(c *rdma.Coro, o Options) error {
	o.Space.Begin(c.Thread())
	if err := o.stands(); err != nil {
		return err
	}
	tables, err := o.Space.Tables()
	if err != nil {
		return err
	}
	s := NewSweeper(o)
	generation, _ := o.Space.Unswept()
	var damage error
	for _, t := range tables {
		switch err := s.index(c, t.ID); {
		case errors.Is(err, layout.ErrCorrupt):
			damage = err
		case err != nil:
			return err
		}
	}
	if damage == nil {
		o.Space.SweptIndexes(generation)
	}
	return damage
}

// Damaged reports whether err, of SweepIndexes, says that the index of a table is damaged.
func Damaged(err error, table uint16) bool {
	var e *race.CorruptError
	return errors.As(err, &e) && e.Table == table
}

// Sweeper is a sweep in small steps. It belongs to one goroutine at a time.
type Sweeper struct {
	Report SweepReport

	o          Options
	begun      bool
	own        bool // strays in segments of this process, and what is in their way
	generation uint64
	tables     []layout.Table
	indexes    map[uint16]index.Finder
	table      int // the next to be recovered
	seg        layout.SegmentID
	block      uint32
	left       bool                 // somebody else was at a lock
	again      bool                 // locks of the next blocks have just been resolved
	free       []memory.FreeBlock   // of the blocks looked at
	found      []memory.FreeBlock   // room for those of one step
	claimed    bool                 // what of these nobody has
	unclaimed  bool                 // it could not be told, since a coordinator is being recovered
	strays     *memory.Strays       // that is it; nil: it cannot be told
	sound      []bool               // of strays, which are free still, as far as they were read again
	linked     map[layout.Addr]bool // free blocks to which slots lead that could not be emptied
	damaged    map[uint16]bool      // tables whose indexes are
	stranded   []layout.Addr        // blocks of records whose moves are to be finished
	scoured    int                  // tables whose slots have been looked at
	scourer    *race.Scourer
}

// DueSweep begins the sweep that this process is to do now, as far as another process does not do
// it for all: see Space.BeginSweep. It is nil if there is none.
func DueSweep(c *rdma.Coro, o Options) *Sweeper {
	due := o.Space.BeginSweep(c.Thread().Now())
	if due == memory.SweepNothing {
		return nil
	}
	s := NewSweeper(o)
	s.own = due == memory.SweepOwn
	return s
}

// NewSweeper begins a sweep of everything.
func NewSweeper(o Options) *Sweeper {
	return &Sweeper{
		o: o, indexes: map[uint16]index.Finder{}, seg: 1, linked: map[layout.Addr]bool{}, damaged: map[uint16]bool{},
	}
}

// Step does the next part of the sweep: an index, or a few hundred blocks or slots. done: that
// was all. After an error it may be tried again; when a change of an index was in the way,
// from the beginning. memory.ErrEnded: the sweep is over (Ended); another sweeper begins anew.
func (s *Sweeper) Step(c *rdma.Coro) (done bool, err error) {
	defer s.o.owe(c, &err)
	if !s.begun {
		s.o.Space.Begin(c.Thread())
	}
	if err := s.o.stands(); err != nil {
		return false, err
	}
	if !s.begun {
		s.generation, _ = s.o.Space.Unswept()
		if s.tables, err = s.o.Space.Tables(); err != nil {
			return false, err
		}
		if s.begun = true; len(s.tables) == 0 {
			s.o.Space.SweptIndexes(s.generation)
		}
	}
	if s.table < len(s.tables) && !s.own {
		if err := s.spare(s.tables[s.table].ID, s.index(c, s.tables[s.table].ID)); err != nil {
			return false, err
		}
		if s.table++; s.table == len(s.tables) && s.Report.Damage == nil {
			s.o.Space.SweptIndexes(s.generation)
		}
		return false, nil
	}
	more, err := s.blocks(c)
	if !more && err == nil {
		err = s.finishStranded(c)
	}
	if !more && err == nil {
		s.claim()
	}
	// Now that locks of nobody's, which may be those of placeholders, are resolved; and
	// before blocks go to the pool that such slots lead to.
	if !more && err == nil && s.o.Space.Dangling() {
		more, err = s.slots(c)
	}
	if !more && err == nil && len(s.damaged) > 0 && s.o.Space.Dangling() {
		s.strays = nil // slots that nobody can look at may lead to them
	}
	if !more && err == nil {
		more, err = s.readAgain(c)
	}
	if errors.Is(err, index.ErrBusy) { // perhaps of somebody who has died since the indexes were recovered
		s.restart()
	}
	if more || err != nil {
		return false, err
	}
	if s.strays != nil {
		n, void := s.strays.Return(s.sound)
		if void {
			return true, nil // somebody else is at it, and says when it is swept
		}
		s.Report.Strays += n
	}
	switch {
	case s.left:
		return true, nil
	case s.own:
		if !s.unclaimed {
			s.o.Space.SweptOwn(s.generation)
		}
		return true, nil
	case s.Report.Damage != nil:
		err = s.o.Space.SweptButDamage(s.generation)
	default:
		err = s.o.Space.Swept(s.generation)
	}
	if s.unclaimed {
		s.o.Space.OweSweep(false)
	}
	return true, err
}

// Ended reports whether the tenure has ended under which the sweep began, so that it goes
// on no more: a sweeper resolves locks in the name of that, and others may take these locks
// for nobody's since.
func (s *Sweeper) Ended() bool { return s.o.stands() != nil }

// Generation is what Space.Unswept said when the sweep began: it is about those who were gone
// then.
func (s *Sweeper) Generation() uint64 { return s.generation }

// Left reports whether something is to be done that somebody else was at.
func (s *Sweeper) Left() bool { return s.left }

// spare notes that the index of a table is damaged, and returns other errors. What is linked in a
// part of an index that is lost, nobody reaches any more, and it is left alone.
func (s *Sweeper) spare(table uint16, err error) error {
	if errors.Is(err, layout.ErrLost) {
		return nil
	}
	if !errors.Is(err, layout.ErrCorrupt) {
		return err
	}
	s.damaged[table] = true
	if s.Report.Damage == nil {
		s.Report.Damage = err
	}
	return nil
}

// claim asks which of the free blocks nobody has, once.
func (s *Sweeper) claim() {
	if s.claimed {
		return
	}
	s.claimed, s.strays = true, s.o.Space.ClaimStrays(s.free)
	s.unclaimed = s.strays == nil && s.o.Space.Shared()
	s.left = s.left || s.strays != nil && s.strays.Resolving
	s.free = nil
}

// readAgain looks at the next of the blocks that nobody had: those that are free on all
// copies, and as they were on the primary, were not in use then. more: there are others.
func (s *Sweeper) readAgain(c *rdma.Coro) (more bool, err error) {
	if s.strays == nil || len(s.sound) == len(s.strays.Blocks) {
		return false, nil
	}
	part := s.strays.Blocks[len(s.sound):]
	part = part[:min(len(part), strayBlocks)]
	t := c.Thread()
	size := len(part) * layout.MaxReplicas * record.LineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return false, fmt.Errorf("recovery: sweeping: %w", err)
	}
	defer t.Free(buf, size)
	at := func(i, k int) uint32 { return buf + uint32((i*layout.MaxReplicas+k)*record.LineSize) }
	v := s.o.Space.ViewOn(c.Thread())
	var b rdma.Batch
	for i, x := range part {
		for k := range v.Copies(x.Addr) {
			b.Read(v.At(x.Addr, k), at(i, k), record.LineSize)
		}
	}
	if err := c.Do(&b); err != nil {
		return false, fmt.Errorf("recovery: sweeping: %w", err)
	}
	var halves []half
	for i, x := range part {
		if s.linked[x.Addr] { // the next sweep, when its slot is empty
			s.left = true
			s.sound = append(s.sound, false)
			continue
		}
		same, numbered, other := false, false, 0 // other: a copy that is not free
		for k := range v.Copies(x.Addr) {
			line := record.Image(t.Bytes(at(i, k), record.LineSize))
			if k == 0 {
				same = soundFree(line, x.Addr) && uint64(line.Version()) == x.Version && !s.damaged[line.Meta().Table()]
				numbered = line.Freed() != memory.FreedByOther // else it gets another number first: see memory.Space
				s.passOver(line)
			} else if !isFree(line) {
				other = k
			}
		}
		if same && other > 0 && len(s.damaged) == 0 {
			halves = append(halves, half{x.Addr, other})
		}
		s.sound = append(s.sound, same && numbered && other == 0)
	}
	if err := s.freeHalves(c, v, halves); err != nil {
		s.sound = s.sound[:len(s.sound)-len(part)]
		return false, err
	}
	return true, nil
}

// known reports whether there has been a coordinator, and is none any more.
func (s *Sweeper) known(id uint32) bool {
	return id > 0 && id < s.o.Space.Layout().NextCoordinator && !s.o.Space.Registered(id)
}

// isFree reports whether the first line of a block says that it is free, and unlocked.
func isFree(line record.Image) bool {
	return line.Meta().State() == record.Free && (line.Stable() || line.Version() == 0 && line.Guard() == 0)
}

// soundFree is isFree of a line whose checksum matches: else it may be that of a record, and
// damaged, which is to be repaired from another copy, and given to nobody.
func soundFree(line record.Image, a layout.Addr) bool {
	if !isFree(line) {
		return false
	}
	_, damage := line.Check(a)
	return damage == nil
}

// strayBlocks is how many blocks are read again at once.
const strayBlocks = 64

// restart begins the sweep anew: indexes first, without what dead coordinators have left
// behind in them since.
func (s *Sweeper) restart() {
	done, damaged, own := s.Report, s.damaged, s.own
	*s = *NewSweeper(s.o)
	s.Report, s.damaged, s.own = done, damaged, own
}

// slots looks at the next slots. more: there are others.
func (s *Sweeper) slots(c *rdma.Coro) (more bool, err error) {
	for ; s.scoured < len(s.tables); s.scoured++ {
		table := s.tables[s.scoured].ID
		if s.scourer == nil {
			ix, err := s.open(c, table)
			if errors.Is(err, memory.ErrNoTable) || errors.Is(err, layout.ErrLost) {
				continue
			}
			if err != nil {
				if err := s.spare(table, fmt.Errorf("recovery: index of table %d: %w", table, err)); err != nil {
					return false, err
				}
				continue
			}
			r, ok := ix.(*race.Index)
			if !ok {
				continue
			}
			s.scourer = r.Scour(s.Report.taken.has)
		}
		done := false
		err := s.o.alone(c, table, s.indexes[table], func() (err error) {
			done, err = s.scourer.Step(c)
			return err
		})
		if err != nil {
			if err := s.spare(table, fmt.Errorf("recovery: index of table %d: %w", table, err)); err != nil {
				return false, err
			}
			done = true
		}
		if !done {
			return true, nil
		}
		s.Report.Slots += s.scourer.Emptied
		for a, is := range s.scourer.Left {
			s.linked[a] = s.linked[a] || is
		}
		s.scourer = nil
	}
	return false, nil
}

// index brings an index into order.
func (s *Sweeper) index(c *rdma.Coro, table uint16) error {
	ix, err := s.open(c, table)
	if errors.Is(err, memory.ErrNoTable) || errors.Is(err, layout.ErrLost) {
		return nil // it has no index yet, or none any more
	}
	if err != nil {
		return fmt.Errorf("recovery: index of table %d: %w", table, err)
	}
	if m, ok := ix.(resyncer); ok {
		if err := s.o.alone(c, table, ix, func() error { return m.Recover(c, s.o.deadOwner) }); err != nil &&
			!errors.Is(err, layout.ErrLost) {
			return fmt.Errorf("recovery: index of table %d: %w", table, err)
		}
	}
	return nil
}

// alone runs fn, which changes what others have left in the index of a table, when nobody else does
// the like. A process that dies with that right keeps it until another process ends its
// registration. Maintenance does that; but where workers do the maintenance, all of them may be
// waiting like this one.
func (o *Options) alone(c *rdma.Coro, table uint16, ix any, fn func() error) error {
	for since := c.Thread().Now(); !o.Space.AcquireRight(uint32(table)); c.Sleep(mendPoll) {
		now := c.Thread().Now()
		if now-since <= stallNs {
			continue
		}
		if n, err := o.Space.TakeOver(now); n == 0 || err != nil {
			return fmt.Errorf("somebody else recovers it: %w", errors.Join(index.ErrBusy, err))
		}
		since = now
	}
	defer o.Space.ReleaseRight(uint32(table))
	if r, ok := ix.(*race.Index); ok && o.By == 0 {
		r.SetOwner(o.owner(o.Space.View())) // the epoch may have moved since it was opened
	}
	return o.Space.Hold(c.Thread(), uint32(table), fn)
}

// mendPoll is how often it is looked whether another one has come to his end, in
// nanoseconds.
const mendPoll = 10_000

// open returns the handle on a table's index.
func (s *Sweeper) open(c *rdma.Coro, table uint16) (index.Finder, error) {
	if ix := s.indexes[table]; ix != nil {
		return ix, nil
	}
	ix, err := s.o.open(c, s.o.Space, table)
	if err == nil {
		s.indexes[table] = ix
	}
	return ix, err
}

var _ resyncer = (*race.Index)(nil)

// sweepBytes is how many bytes of blocks a step reads at most, and sweepBlocks how
// many blocks.
const (
	sweepBytes  = 64 << 10
	sweepBlocks = 256
	// spanBlock is the largest block of which neighbours are read with one READ.
	spanBlock = 256
)

// blocks looks at the next blocks. more: there are others.
func (s *Sweeper) blocks(c *rdma.Coro) (more bool, err error) {
	l := s.o.Space.Layout()
	for int(s.seg) < len(l.Segments) {
		g := &l.Segments[s.seg]
		skip := s.own && !s.o.Space.Owns(layout.MakeAddr(s.seg, 0))
		if g.Kind == layout.KindBlocks && g.Placement.N > 0 && !skip && s.block < l.Backed(s.seg)/g.Class.Size() {
			break
		}
		s.seg, s.block = s.seg+1, 0
	}
	if int(s.seg) >= len(l.Segments) {
		return false, nil
	}
	size := l.Segments[s.seg].Class.Size()
	n := min(l.Backed(s.seg)/size-s.block, sweepBlocks)
	stride := uint32(record.LineSize)
	if size <= spanBlock {
		stride = size
		n = min(n, sweepBytes/size)
	}
	x, err := s.look(c, l, size, stride, n)
	if err == nil && len(x.halves) > 0 && s.o.Alone {
		err = s.clearTorn(c, x.halves, l.Segments[s.seg].Class)
	}
	if err == nil && s.o.Alone {
		err = s.freeCopies(c, size, stride, x)
	}
	if err != nil {
		return false, err
	}
	if n = x.n; len(x.held)+len(x.deleted) > 0 {
		if err := s.resolve(c, x.held, &s.Report.Locks); err != nil {
			return false, err
		}
		if err := s.resolve(c, x.deleted, &s.Report.Tombstones); err != nil {
			return false, err
		}
		if !s.again { // some of them may be free now
			s.again = true
			return true, nil
		}
	}
	s.again = false
	s.stranded = append(s.stranded, x.stranded...)
	if !s.o.Alone { // else all of them are found when somebody wants one
		s.free = append(s.free, s.o.Space.Sift(x.free)...)
	}
	s.block += n
	s.Report.Blocks += int(n)
	return true, nil
}

// seen is what a look at the next n blocks has found.
type seen struct {
	n       uint32
	held    []layout.Addr      // locked by nobody's transaction
	deleted []layout.Addr      // deleted records of nobody's
	halves  []layout.Addr      // what may be halves of placeholders
	free    []memory.FreeBlock // free and unlocked
	// stranded are blocks of records whose moves are to be finished.
	stranded []layout.Addr
}

// maxResolved is how many locks a step resolves at most.
const maxResolved = 32

// look reads the headers of the next n blocks, and goes only so far as it finds no more
// locks than a step resolves.
func (s *Sweeper) look(c *rdma.Coro, l *layout.Layout, size, stride, n uint32) (x seen, err error) {
	t := c.Thread()
	buf, err := t.Alloc(int(n * stride))
	if err != nil {
		return x, fmt.Errorf("recovery: sweeping: %w", err)
	}
	defer t.Free(buf, int(n*stride))
	v := s.o.Space.ViewOn(c.Thread())
	first := layout.MakeAddr(s.seg, s.block*size)
	if !v.Contains(first, n*size) {
		return seen{n: n}, nil
	}
	if err := readHeads(c, v, buf, first, 0, size, stride, n); err != nil {
		return x, err
	}
	p := t.Bytes(buf, n*stride)
	x.free = s.found[:0]
	for ; x.n < n && len(x.held)+len(x.deleted) < maxResolved; x.n++ {
		a, line := first+layout.Addr(x.n*size), record.Image(p[x.n*stride:x.n*stride+record.LineSize])
		g := line.Guard()
		has := false
		switch {
		case g.Held():
			if isStranded(line) {
				x.stranded = append(x.stranded, a)
			} else if !s.o.Space.Registered(g.Owner().Coordinator()) || s.o.left(g) {
				x.held = append(x.held, a)
			} else {
				s.left = s.left || s.o.Space.IsProcess(g.Owner().Coordinator()) // which may have failed there
				s.passOver(line)
			}
		case soundFree(line, a):
			x.free = append(x.free, memory.FreeBlock{Addr: a, Version: uint64(line.Version())})
		case abandoned(s.o.Space, line):
			x.deleted = append(x.deleted, a)
		case torn(line):
			x.halves = append(x.halves, a)
		default: // nor is a node a stray by itself: a walk over its index says whether something leads there
			has = line.Meta().State() != record.Free
		}
		s.Report.taken.put(l, a, has)
	}
	s.found = x.free
	return x, nil
}

// passOver notes that another sweep is due if a block is free, and locked: somebody who is looking
// for a key has met it, and unlocks it when he has read it. It may be nobody's then.
func (s *Sweeper) passOver(line record.Image) {
	s.left = s.left || line.Guard().Held() && line.Meta().State() == record.Free && !s.o.Alone
}

// readHeads reads the first lines of n blocks of a copy, stride bytes of each.
func readHeads(c *rdma.Coro, v *layout.View, buf uint32, first layout.Addr, k int, size, stride, n uint32) error {
	var b rdma.Batch
	if stride == size {
		b.Read(v.At(first, k), buf, n*size)
	} else {
		for i := range n {
			b.Read(v.At(first+layout.Addr(i*size), k), buf+i*stride, stride)
		}
	}
	if err := c.Do(&b); err != nil {
		return fmt.Errorf("recovery: sweeping: %w", err)
	}
	return nil
}

// resolve unlocks blocks, and counts them.
func (s *Sweeper) resolve(c *rdma.Coro, held []layout.Addr, count *int) error {
	if len(held) == 0 {
		return nil
	}
	u, err := newUnlocker(c, &s.o, func(table uint16) (index.Finder, error) { return s.open(c, table) })
	if err != nil {
		return err
	}
	defer u.close()
	u.sweeps = true
	for _, a := range held {
		ok, damage := u.unlock(a)
		if errors.Is(damage, index.ErrBusy) && s.damaged[u.table] {
			continue // a slot that is not on all copies, where nobody makes them equal, as they are damaged
		}
		if err := s.spare(u.table, damage); err != nil {
			return err
		}
		switch {
		case damage != nil:
		case ok == UnlockedNot:
			s.left = s.left || s.again // it was in the way twice
		default:
			*count++
		}
	}
	s.Report.Freed += u.freed
	return nil
}
