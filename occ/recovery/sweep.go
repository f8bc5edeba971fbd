package recovery

import (
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// SweepReport says what a sweep has found.
type SweepReport struct {
	Blocks int // headers looked at
	Locks  int // that no client had, resolved
	Freed  int // blocks that came free
	Strays int // free blocks that no client had, and that are in the pool now
	// Damage is the first damage that was found and left as it is, nil: there was none.
	Damage error
}

// Sweep walks over the whole database and brings into order what dead coordinators
// have left behind that their logs do not tell of: locks of transactions that had not come to their
// logs, and free blocks that they had (memory.ClaimStrays). Transactions
// may run meanwhile. It is idempotent; when it has come to its end, the catalog no
// longer says that the database has to be swept, unless another client was at one of the
// locks: that client may fail, so the next sweep looks at it again. If an index is damaged, a lock
// stays that cannot be resolved without it, and the sweep goes on. If it is alone it says so in its
// report (SweepReport.Damage), else with an error, too.
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

// Sweeper is a sweep in small steps. It belongs to one goroutine at a time.
type Sweeper struct {
	Report SweepReport

	o          Options
	begun      bool
	own        bool // strays in segments of this process, and what is in their way
	generation uint64
	seg        layout.SegmentID
	block      uint32
	left       bool               // another client was at a lock
	again      bool               // locks of the next blocks have just been resolved
	free       []memory.FreeBlock // of the blocks looked at
	found      []memory.FreeBlock // room for those of one step
	claimed    bool               // those of them that no client has
	unclaimed  bool               // it could not be told, since a coordinator is being recovered
	strays     *memory.Strays     // that is it; nil: it cannot be told
	sound      []bool             // of strays, which are free still, as far as they were read again
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
func NewSweeper(o Options) *Sweeper { return &Sweeper{o: o, seg: 1} }

// Step does the next part of the sweep, a few hundred blocks. done: that was all. After an error it
// may be tried again. memory.ErrEnded: the sweep is over (Ended); another sweeper begins anew.
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
		s.begun = true
	}
	more, err := s.blocks(c)
	if !more && err == nil {
		s.claim()
		more, err = s.readAgain(c)
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

// spare notes that an index is damaged, and returns other errors. What is linked in a part of an
// index that is lost, no client reaches any more, and it is left alone.
func (s *Sweeper) spare(err error) error {
	if errors.Is(err, layout.ErrCorrupt) && s.Report.Damage == nil {
		s.Report.Damage = err
	}
	if Beyond(err) {
		return nil
	}
	return err
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
		line := record.Image(t.Bytes(at(i, 0), record.LineSize))
		s.passOver(line)
		same := soundFree(line, x.Addr) && uint64(line.Version()) == x.Version
		other := 0 // a copy that is not free
		for k := 1; k < v.Copies(x.Addr); k++ {
			if !isFree(t.Bytes(at(i, k), record.LineSize)) {
				other = k
			}
		}
		if same && other > 0 {
			halves = append(halves, half{x.Addr, other})
		}
		numbered := line.Freed() != memory.FreedByOther // else it gets another number first: see memory.Space
		s.sound = append(s.sound, same && numbered && other == 0)
	}
	if err := s.freeHalves(c, v, halves); err != nil {
		s.sound = s.sound[:len(s.sound)-len(part)]
		return false, err
	}
	return true, nil
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
	x, err := s.look(c, size, stride, n)
	if err == nil && len(x.torn) > 0 && s.o.Alone {
		err = s.clearTorn(c, x.torn, l.Segments[s.seg].Class)
	}
	if err == nil && s.o.Alone {
		err = s.freeCopies(c, size, stride, x)
	}
	if err != nil {
		return false, err
	}
	if n = x.n; len(x.held) > 0 {
		if err := s.resolve(c, x.held); err != nil {
			return false, err
		}
		if !s.again { // some of them may be free now
			s.again = true
			return true, nil
		}
	}
	s.again = false
	if !s.o.Alone { // else all of them are found when a session wants one
		s.free = append(s.free, s.o.Space.Sift(x.free)...)
	}
	s.block += n
	s.Report.Blocks += int(n)
	return true, nil
}

// seen is what a look at the next n blocks has found.
type seen struct {
	n    uint32
	held []layout.Addr      // locked by a transaction of no client
	torn []layout.Addr      // what may be halves of reservations
	free []memory.FreeBlock // free and unlocked
}

// maxResolved is how many locks a step resolves at most.
const maxResolved = 32

// look reads the headers of the next n blocks, and goes only so far as it finds no more
// locks than a step resolves.
func (s *Sweeper) look(c *rdma.Coro, size, stride, n uint32) (x seen, err error) {
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
	for ; x.n < n && len(x.held) < maxResolved; x.n++ {
		a, line := first+layout.Addr(x.n*size), record.Image(p[x.n*stride:x.n*stride+record.LineSize])
		g := line.Guard()
		switch {
		case g.Held():
			if !s.o.Space.Registered(g.Owner().Coordinator()) || s.o.left(g) {
				x.held = append(x.held, a)
			} else {
				s.left = s.left || s.o.Space.IsProcess(g.Owner().Coordinator()) // which may have failed there
				s.passOver(line)
			}
		case soundFree(line, a):
			x.free = append(x.free, memory.FreeBlock{Addr: a, Version: uint64(line.Version())})
		case torn(line):
			x.torn = append(x.torn, a)
		}
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
func (s *Sweeper) resolve(c *rdma.Coro, held []layout.Addr) error {
	u, err := newUnlocker(c, &s.o)
	if err != nil {
		return err
	}
	defer u.close()
	for _, a := range held {
		done, damage := u.unlock(a)
		if err := s.spare(damage); err != nil {
			return err
		}
		switch {
		case damage != nil:
		case done == UnlockedNot:
			s.left = s.left || s.again // it was in the way twice
		default:
			s.Report.Locks++
		}
	}
	s.Report.Freed += u.freed
	return nil
}
