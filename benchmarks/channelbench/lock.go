package channelbench

import (
	"context"
	"fmt"

	"txnode/channel"
	"txnode/rdma"
)

// Variants of locks.
const (
	lockTicket = "ours, TicketLock"
	lockMutex  = "ours, Mutex"
	lockLOCO   = "LOCO's ticket lock"
	lockSet    = "test and set"
	lockHanded = "ours, handed over"
)

const (
	transferLocks    = 341
	transferAccounts = 4096
	startMoney       = 1 << 32
)

func locks(c *Config) (all []setup) {
	for _, n := range c.counts(1, 32) {
		for _, v := range []string{lockTicket, lockMutex, lockLOCO, lockSet} {
			all = append(all, setup{Point{Variant: v, X: float64(n), XName: "nodes"}, oneLock})
		}
	}
	return all
}

// critical is a lock with a word under it.
type critical interface {
	lock(ctx context.Context, s *seat) error
	// write sets the word, and gives the lock back when that is visible.
	write(s *seat, to rdma.RemoteAddr, local uint32) error
}

// held is a lock of package channel on the blade of its word: both leave in one doorbell.
type held struct{ l channel.Lock }

func (h held) lock(ctx context.Context, s *seat) error { _, err := h.l.Lock(ctx, s.c); return err }

func (h held) write(s *seat, to rdma.RemoteAddr, local uint32) error {
	s.b.Reset()
	s.b.Write(to, local, 8)
	if err := h.l.StageUnlock(&s.b); err != nil {
		return err
	}
	return s.m.Do(s.c, &s.b)
}

// ticket is LOCO's lock: two words, next and serving. The one that is served may be of any node.
type ticket struct {
	at     rdma.RemoteAddr
	unsafe bool // without the fence
	drawn  uint64
}

func (k *ticket) words() (next, serving rdma.RemoteAddr) {
	next, serving = k.at, k.at
	serving.Off += 8
	return next, serving
}

func (k *ticket) lock(ctx context.Context, s *seat) error {
	next, serving := k.words()
	s.b.Reset()
	i := s.b.FAA(next, 1)
	s.b.Read(serving, s.word(0), 8)
	if err := s.c.Do(&s.b); err != nil {
		return err
	}
	k.drawn = s.b.Result(i)
	for s.c.Thread().Word(s.word(0)) != k.drawn {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := s.read(serving); err != nil {
			return err
		}
	}
	return nil
}

func (k *ticket) write(s *seat, to rdma.RemoteAddr, local uint32) error {
	return k.writeBytes(s, to, local, 8)
}

// writeBytes waits until the WRITE is placed, behind which the READ of no bytes is, and then
// gives the lock back.
func (k *ticket) writeBytes(s *seat, to rdma.RemoteAddr, local, n uint32) error {
	_, serving := k.words()
	s.b.Reset()
	s.b.Write(to, local, n)
	if !k.unsafe {
		s.b.Read(to, s.word(0), 0)
		if err := s.c.Do(&s.b); err != nil {
			return err
		}
		s.b.Reset()
	}
	s.b.FAA(serving, 1)
	return s.c.Do(&s.b)
}

// set is a lock of one word, which is tried until it is free. It lies with its data.
type set struct{ at rdma.RemoteAddr }

func (k *set) lock(ctx context.Context, s *seat) error {
	for {
		s.b.Reset()
		i := s.b.CAS(k.at, 0, uint64(s.n)+1)
		if err := s.c.Do(&s.b); err != nil {
			return err
		}
		if s.b.Result(i) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (k *set) write(s *seat, to rdma.RemoteAddr, local uint32) error {
	s.b.Reset()
	s.b.Write(to, local, 8)
	s.b.CAS(k.at, uint64(s.n)+1, 0)
	return s.c.Do(&s.b)
}

// openLock makes lock i of a variant for a seat: those of package channel by name, the others at 16
// bytes each of the raw memory, from off on.
func (w *world) openLock(variant string, s *seat, i int, off uint64) (critical, int, error) {
	blades := int(w.blades())
	name := fmt.Sprintf("l%04d", i)
	switch variant {
	case lockTicket, lockHanded:
		l, err := channel.OpenTicketLock(s.ctx(), s.c, s.m.Scope("locks"), name)
		if err != nil {
			return nil, 0, err
		}
		if variant == lockHanded {
			return passed{held{l}}, int(l.Place().Blade), nil
		}
		return held{l}, int(l.Place().Blade), nil
	case lockMutex:
		l, err := channel.OpenMutex(s.ctx(), s.c, s.m.Scope("locks"), name)
		if err != nil {
			return nil, 0, err
		}
		return held{l}, int(l.Place().Blade), nil
	case lockLOCO:
		return &ticket{at: w.raw(i%blades, off+uint64(16*(i/blades)))}, i % blades, nil
	}
	return &set{at: w.raw(i%blades, off+uint64(16*(i/blades)))}, i % blades, nil
}

// handOvers are points of a few nodes, with more and more coroutines on each.
func handOvers(*Config) (all []setup) {
	for n := 1; n <= 8; n *= 2 {
		for _, v := range []string{lockHanded, lockTicket, lockLOCO} {
			all = append(all, setup{Point{Variant: v, X: float64(n), XName: "coroutines"}, handOver})
		}
	}
	return all
}

// passed is a lock whose handle the coroutines of a node share. Its holder waits for its WRITE.
type passed struct{ held }

func (h passed) write(s *seat, to rdma.RemoteAddr, local uint32) error {
	s.b.Reset()
	s.b.Write(to, local, 8)
	if err := s.m.Do(s.c, &s.b); err != nil {
		return err
	}
	return h.l.Unlock(s.c)
}

const handOverNodes = 4

// handOver counts in a word under one lock, a thread a node.
func handOver(ctx context.Context, c *Config, p *Point) error {
	return countUnder(ctx, c, p, shape{nodes: handOverNodes, threads: 1, window: int(p.X), blades: 2, raw: 4096})
}

// oneLock does, with a coroutine a thread.
func oneLock(ctx context.Context, c *Config, p *Point) error {
	return countUnder(ctx, c, p, shape{nodes: int(p.X), threads: 1, window: 1, blades: 2, raw: 4096})
}

func countUnder(ctx context.Context, c *Config, p *Point, x shape) error {
	w, err := c.simulated(x)
	if err != nil {
		return err
	}
	all, at := make([]critical, len(w.seats)), 0
	for i, s := range w.seats {
		if first := i - i%x.window; p.Variant == lockHanded && i != first {
			s.m, all[i] = w.seats[first].m, all[first]
			continue
		}
		if all[i], at, err = w.openLock(p.Variant, s, 0, 64); err != nil {
			return w.uncounted(err)
		}
	}
	counted := uint64(0)
	word := w.raw(at, 0)
	err = w.measure(ctx, p, c.Duration.Nanoseconds(), 0, func(ctx context.Context, s *seat) error {
		l := all[s.n]
		if err := l.lock(ctx, s); err != nil {
			return err
		}
		x, err := s.read(word)
		if err != nil {
			return err
		}
		if x != counted {
			return fmt.Errorf("%w: the word is %d after %d changes", errWrong, x, counted)
		}
		counted++
		s.c.Thread().PutWord(s.word(1), x+1)
		return l.write(s, word, s.word(1))
	})
	return w.uncounted(err)
}

func transfers(c *Config) (all []setup) {
	for _, n := range c.counts(1, 16) {
		for _, v := range []string{lockTicket, lockLOCO, lockSet} {
			all = append(all, setup{Point{Variant: v, X: float64(n), XName: "nodes"}, transfer})
		}
	}
	return all
}

// transfer moves money between two accounts under the locks of both, which are taken in order.
// Accounts are words over all blades.
func transfer(ctx context.Context, c *Config, p *Point) error {
	const blades, arena = 4, 1 << 20
	accounts := uint64(8 * transferAccounts / blades)
	w, err := c.simulated(shape{
		nodes: int(p.X), threads: c.Threads, window: 1, blades: blades, raw: accounts + 16*transferLocks, arena: arena,
	})
	if err != nil {
		return err
	}
	account := func(a int) rdma.RemoteAddr { return w.raw(a%blades, uint64(8*(a/blades))) }
	all := make([][]critical, len(w.seats))
	for i, s := range w.seats {
		for j := range transferLocks {
			l, _, err := w.openLock(p.Variant, s, j, accounts)
			if err != nil {
				return w.uncounted(err)
			}
			all[i] = append(all[i], l)
		}
	}
	first := w.seats[0]
	for a := range transferAccounts {
		first.c.Thread().PutWord(first.word(0), startMoney)
		first.b.Reset()
		first.b.Write(account(a), first.word(0), 8)
		if err := first.c.Do(&first.b); err != nil {
			return w.uncounted(err)
		}
	}
	err = w.measure(ctx, p, c.Duration.Nanoseconds(), 0, func(ctx context.Context, s *seat) error {
		t := s.c.Thread()
		from, to := int(t.Rand()%transferAccounts), int(t.Rand()%transferAccounts)
		if from%transferLocks == to%transferLocks {
			to = (to + 1) % transferAccounts
		}
		a, b := min(from%transferLocks, to%transferLocks), max(from%transferLocks, to%transferLocks)
		return move(ctx, s, all[s.n][a], all[s.n][b], account(from), account(to))
	})
	if err != nil {
		return w.uncounted(err)
	}
	sum := uint64(0)
	for a := range transferAccounts {
		x, err := w.seats[0].plain().read(account(a))
		if err != nil {
			return w.uncounted(err)
		}
		sum += x
	}
	if sum != transferAccounts*startMoney {
		err = fmt.Errorf("%w: accounts have %d, and had %d", errWrong, sum, uint64(transferAccounts*startMoney))
	}
	return w.uncounted(err)
}

// plain is the seat outside of its coroutine.
func (s *seat) plain() *seat {
	s.c = s.c.Thread().Plain()
	return s
}

// move moves one unit under two locks.
func move(ctx context.Context, s *seat, one, two critical, from, to rdma.RemoteAddr) error {
	if err := one.lock(ctx, s); err != nil {
		return err
	}
	if err := two.lock(ctx, s); err != nil {
		return err
	}
	s.b.Reset()
	s.b.Read(from, s.word(2), 8)
	s.b.Read(to, s.word(3), 8)
	if err := s.c.Do(&s.b); err != nil {
		return err
	}
	t := s.c.Thread()
	t.PutWord(s.word(2), t.Word(s.word(2))-1)
	t.PutWord(s.word(3), t.Word(s.word(3))+1)
	// Accounts lie on other blades than their locks: a fence is needed before either is given back.
	s.b.Reset()
	s.b.Write(from, s.word(2), 8)
	s.b.Write(to, s.word(3), 8)
	s.b.Read(from, s.word(0), 0)
	s.b.Read(to, s.word(0), 0)
	if err := s.c.Do(&s.b); err != nil {
		return err
	}
	s.b.Reset()
	for _, l := range []critical{one, two} {
		if err := stageFree(s, l); err != nil {
			return err
		}
	}
	return s.m.Do(s.c, &s.b)
}

// stageFree appends giving a lock back.
func stageFree(s *seat, l critical) error {
	switch l := l.(type) {
	case held:
		return l.l.StageUnlock(&s.b)
	case *ticket:
		_, serving := l.words()
		s.b.FAA(serving, 1)
	case *set:
		s.b.CAS(l.at, uint64(s.n)+1, 0)
	}
	return nil
}
