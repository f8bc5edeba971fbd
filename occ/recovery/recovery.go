package recovery

import (
	"errors"
	"fmt"
	"slices"

	"txnode/index"
	"txnode/index/race"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// OpenIndex opens the index of a table.
type OpenIndex func(c *rdma.Coro, s race.Space, table uint16) (index.Finder, error)

// Options say how to recover. Only Space has to be set.
type Options struct {
	Space *memory.Space
	// Open makes a handle on the index of a table, over the view of a claim. nil: the
	// RACE index whose root the catalog has.
	Open OpenIndex
	// By is the tenure under which this runs: the number of the coordinator on whose thread it
	// does, or of the process, if it has joined (Space.Process); 0: neither. Only one that recovers
	// may have none, as when a database is opened. When the tenure has ended (Space.Stands),
	// nothing of it goes on under these options.
	By uint32
	// Term is how long a claim is good, in nanoseconds of the fabric's clock; 0: until
	// somebody steals it.
	Term int64
	// Steal takes over claims that have not expired.
	Steal bool
	// Fenced: no verb of the coordinators can be on its way, so the epoch stays.
	Fenced bool
	// Change declares a blade dead in the same step: see FailOver.
	Change func(*layout.Layout) error
	// Asked are transactions whose fate somebody wants to know: those that no log
	// tells of get a verdict, too.
	Asked []record.TxID
	// Alone: nobody else uses the database, as when it is being opened. A sweep then
	// finds halves of what was being written when its process was killed, too.
	Alone bool
	// GiveUp lets Power go on when every copy of some records was lost with blades.
	GiveUp bool
	// Durable flushes the log records that decide, wherever they are found, or brought to. What
	// else is written is not durable before a checkpoint.
	Durable bool
	// Checkpoint, with Durable, is called when the transactions of the coordinators
	// are at rest, before their logs are cleared: what the logs of others say may
	// depend on them until a checkpoint has been made. Its error may name others, with a method
	// Dead() []uint32, whom it would have to wait for, and who have died, or wait for this recovery
	// themselves, as By may: they are recovered with them.
	Checkpoint func(c *rdma.Coro, ids []uint32) error
	// Settle, if not nil, is called after the loss of a blade, when everything is decided and
	// before new coordinators may be registered: it returns when no other process can be reading
	// from that blade any more, and calls renew meanwhile.
	Settle func(c *rdma.Coro, claim *memory.Claim, renew func() error) error
	// Damaged, if not nil, is told of a recovery's Report.Damage as soon as that is met: not all
	// who recover others look at the report. A sweep only reports it.
	Damaged func(err error)
	// Recovered, if not nil, is told what a recovery has done that has come to its end and has
	// closed a coordinator at least. It must not keep the report.
	Recovered func(*Report)
}

// Report says what a recovery has done.
type Report struct {
	Coordinators []uint32      // that were closed
	Committed    []record.TxID // transactions that were found to be committed, finished ones of the logs included
	Aborted      []record.TxID // transactions that were undone
	Finished     int           // of Committed, how many were not at rest
	Blocks       int           // that came free
	Attempts     int           // that a changing epoch or a broken queue pair made necessary
	ScanTrips    uint64        // round trips for the reading of logs
	RoundTrips   uint64        // all others
	// Damage is why something was left as it is in a table whose index is damaged, or lost, nil:
	// nothing was.
	Damage error
}

// abandonNs is after what time a recovery that has failed may be begun by others, when there are no
// leases: each moves the epoch, for everybody.
const abandonNs = 100_000_000

// maxAttempts bounds how often Recover starts again because its verbs have failed.
const maxAttempts = 16

// Recover declares coordinators dead and decides and finishes their transactions:
// those that are committed take effect everywhere, the others nowhere; then their
// verdicts are in the catalog, their log areas clear, and they are forgotten. Locks
// that no log tells of are left: see Unlock and Sweep; and so is what they have begun in a table
// whose index is damaged, or lost (Report.Damage): see strand.go.
//
// It is idempotent: when it fails, or whoever runs it dies, it is to be called
// again, by anybody. Coordinators that are not registered are passed over; with one that was
// declared dead together with a blade, all of those are recovered, and with any of them whom
// Options.Checkpoint names. It fails with memory.ErrClaimed while somebody else is at it.
func Recover(c *rdma.Coro, o Options, ids ...uint32) (rep Report, err error) {
	defer o.owe(c, &err)
	o.Space.Begin(c.Thread())
	var claim *memory.Claim
	all := ids // that are to be recovered: with whom they wait for
	defer func() {
		switch now := c.Thread().Now(); {
		case claim == nil:
		case c.Unwinding(): // nobody begins again
			claim.Abandon(now)
		case err == nil:
		case errors.Is(err, index.ErrBusy) && slices.Contains(ids, o.By): // who is in the way may be waiting for o.By
			claim.Abandon(now)
		case o.Term == 0: // it does not expire
			claim.Abandon(now + abandonNs)
		}
	}()
	for fresh := false; ; { // fresh: some of all had not been declared dead before
		var left []uint32
		for _, id := range all {
			if o.Space.Registered(id) {
				left = append(left, id)
			}
		}
		if len(left) == 0 {
			return rep, nil
		}
		t := c.Thread()
		co := memory.ClaimOptions{By: o.By, Now: t.Now(), Steal: o.Steal, Again: claim}
		if o.Term > 0 {
			co.Until = co.Now + o.Term
		}
		// What failed in an attempt before, and is not uncertain, cannot arrive any more.
		co.Stay = (rep.Attempts > 0 || o.Fenced) && !fresh && !t.Uncertain()
		if rep.Attempts == 0 {
			co.Change = o.Change
		}
		next, err := o.Space.Claim(co, left...)
		if errors.Is(err, memory.ErrNoCoordinator) {
			continue
		}
		if errors.Is(err, memory.ErrClaimed) && fresh { // somebody else recovers them, and is waited for
			all, fresh = ids, false
			continue
		}
		if err != nil {
			return rep, fmt.Errorf("recovery: coordinators %v: %w", left, err)
		}
		claim, ids, fresh = next, all, false
		rep.Attempts++
		if !co.Stay {
			t.ClearUncertain()
		}
		if err = Run(c, o, claim, &rep); err == nil {
			for i := range claim.Coordinators {
				rep.Coordinators = append(rep.Coordinators, claim.Coordinators[i].ID)
			}
			if o.Recovered != nil {
				o.Recovered(&rep)
			}
			return rep, nil
		}
		var stalled interface{ Dead() []uint32 }
		if errors.As(err, &stalled) && rep.Attempts < maxAttempts {
			all, fresh = slices.Concat(ids, stalled.Dead()), true
			continue
		}
		if !errors.Is(err, rdma.ErrVerb) && !errors.Is(err, rdma.ErrStaleKey) || rep.Attempts >= maxAttempts {
			return rep, err
		}
		if e := Reconnect(c, o.Space); e != nil {
			return rep, errors.Join(err, e)
		}
	}
}

// FailOver declares a blade dead, by change, and with it all coordinators: locks
// are on primaries alone, so whoever was at work may have lost some. When it
// returns nil, all of their transactions are decided and finished on the blades that
// are left, and whoever is alive may begin again, as a new coordinator. After an
// error it is to be called again, with nil for what has been done already.
func FailOver(c *rdma.Coro, o Options, change func(*layout.Layout) error) (Report, error) {
	o.Change, o.Steal = change, true
	made := change == nil
	if !made {
		o.Change = func(l *layout.Layout) error {
			err := change(l)
			made = err == nil
			return err
		}
	}
	for {
		cs, err := o.Space.Coordinators()
		if err != nil {
			return Report{}, err
		}
		if len(cs) == 0 {
			if o.Change == nil {
				return Report{}, nil
			}
			err := o.Space.AdvanceEpoch(func(l *layout.Layout) error {
				// another process has registered it meanwhile: it may have locks, which are to be
				// decided
				if len(l.Coordinators) > 0 {
					return errBegun
				}
				return o.Change(l)
			})
			if errors.Is(err, errBegun) {
				continue
			}
			return Report{}, err
		}
		ids := make([]uint32, len(cs))
		for i := range cs {
			ids[i] = cs[i].ID
		}
		rep, err := Recover(c, o, ids...)
		if err == nil && !made {
			continue // all of them were closed meanwhile
		}
		if errors.Is(err, layout.ErrLayout) && o.Change != nil && len(rep.Coordinators) == 0 {
			if now, e := o.Space.Coordinators(); e == nil && len(now) != len(cs) {
				continue // somebody has begun meanwhile
			}
		}
		return rep, err
	}
}

// errBegun: a coordinator was registered since FailOver has looked.
var errBegun = errors.New("recovery: a coordinator has begun meanwhile")

// Reconnect takes the queue pairs of a thread to all blades that are up out of the error state, but
// for blades that this process is cut off (memory.Space.CutOff), which the thread does without from
// then on. It waits, if need be, until what the thread's other coroutines have under way has
// failed. A thread of no session begins anew under the registration of this process
// (memory.Space.Begin). rdma.ErrBladeDown: a blade does not answer, has restarted, or refuses to
// change its keys (memory.Space.Refusal).
func Reconnect(c *rdma.Coro, s *memory.Space) error {
	const tries = 200
	if err := s.Follow(); err != nil { // the keys may be stale because another process has changed the epoch
		return fmt.Errorf("recovery: connecting again: %w", err)
	}
	l, without := s.Layout(), s.Without()
	c.Thread().Bar(without)
	for b := range l.Blades {
		if l.Blades[b].State == layout.BladeDown || without&rdma.BladeBit(rdma.BladeID(b)) != 0 {
			continue
		}
		if s.Restarted(rdma.BladeID(b)) {
			return fmt.Errorf("recovery: connecting again: blade %d has restarted: %w", b, rdma.ErrBladeDown)
		}
		if err := s.Refusal(rdma.BladeID(b), c.Thread().Now()); err != nil {
			return fmt.Errorf("recovery: connecting again: %w: %w", rdma.ErrBladeDown, err)
		}
		for i := 0; ; i++ {
			err := c.Thread().Reconnect(rdma.BladeID(b))
			if err == nil {
				break
			}
			if i == tries || errors.Is(err, rdma.ErrSilent) { // which has taken as long as the fabric waits for a blade
				return fmt.Errorf("recovery: connecting again: %w", err)
			}
			c.Sleep(10_000)
		}
	}
	if c.Thread().Failed() {
		s.CompareAgain()
		c.Thread().ClearFailed()
	}
	s.Begin(c.Thread())
	// Else a fence asks for WRITEs of before by keys that have ended.
	s.ViewOn(c.Thread()).Rekey(c.Thread())
	return nil
}

// Run is Recover for who has the claim already. What it finds is added to rep.
func Run(c *rdma.Coro, o Options, claim *memory.Claim, rep *Report) error {
	claim.View().Rekey(c.Thread())
	r := &run{c: c, t: c.Thread(), o: &o, claim: claim, v: claim.View(), rep: rep, tables: map[uint16]index.Finder{}}
	renewAt := r.t.Now() + o.Term/2
	r.renewAt = &renewAt
	var counters rdma.Counters
	was := c.Count
	c.Count = &counters
	defer func() { c.Count = was; was.Add(&counters) }()
	if err := r.open(); err != nil {
		return err
	}
	defer r.close()
	if err := r.scan(); err != nil {
		return err
	}
	scan := counters.RoundTrips
	rep.ScanTrips += scan
	defer func() { rep.RoundTrips += counters.RoundTrips - scan }()
	steps := []func() error{r.inspect, r.decide, r.replicateLogs, r.persist, r.finish, r.checkpoint, r.clear}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if claim.Promoted && o.Settle != nil {
		if err := o.Settle(c, claim, r.renew); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	if err := claim.Forget(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	rep.Committed, rep.Aborted = append(rep.Committed, r.committed...), append(rep.Aborted, r.aborted...)
	rep.Finished += r.finished
	rep.Blocks += r.blocks
	return nil
}

// run is one attempt.
type run struct {
	c     *rdma.Coro
	t     *rdma.Thread
	o     *Options
	claim *memory.Claim
	v     *layout.View
	rep   *Report

	batch  rdma.Batch
	buf    uint32 // arena: scratch
	size   uint32
	query  uint32 // arena: buffer of lookups
	qsize  int
	tables map[uint16]index.Finder

	txs        []*tx              // in the order of their ids
	marks      map[uint32]uint64  // the largest number of a coordinator's marks
	successors map[image]bool     // after the loss of a blade: images that were locked by somebody later
	dirty      []dirty            // parts of the log areas that are not clear
	written    []memory.LogArea   // that records were brought to
	lines      map[areaOn]lineSet // of log areas that have a record; nil: nobody has asked

	renewAt *int64 // when to extend the claim: one for all lanes

	committed, aborted []record.TxID
	finished           int
	blocks             int // that have come free: the sweep finds them
}

// Scratch memory of more than fewScratch leaves restSize of the arena, for indexes, and for
// others on the thread: all that it buys is fewer round trips.
const (
	maxScratch = 1 << 20
	fewScratch = 64 << 10
	minScratch = clearUnit
	restSize   = 256 << 10
)

// open gets the memory of the attempt.
func (r *run) open() error {
	for size := maxScratch; ; size /= 2 {
		at, err := r.t.Alloc(size)
		if err == nil && size > fewScratch {
			var rest uint32
			if rest, err = r.t.Alloc(restSize); err == nil {
				r.t.Free(rest, restSize)
			} else {
				r.t.Free(at, size)
			}
		}
		if err == nil {
			r.buf, r.size = at, uint32(size)
			return nil
		}
		if size == minScratch {
			return fmt.Errorf("recovery: scratch memory: %w; raise Arena, or run fewer Coroutines on a thread", err)
		}
	}
}

func (r *run) close() {
	// What has failed on a queue pair may still be outstanding on another.
	_ = r.c.Drain(&r.batch)
	r.t.Free(r.buf, int(r.size))
	r.closeQuery()
}

// closeQuery gives the buffer of lookups back.
func (r *run) closeQuery() {
	_ = r.c.Drain(&r.batch)
	if r.qsize > 0 {
		r.t.Free(r.query, r.qsize)
		r.qsize = 0
	}
}

// do posts the batch and waits.
func (r *run) do() error {
	if r.batch.Len() == 0 {
		return nil
	}
	if err := r.renew(); err != nil {
		return err
	}
	err := r.c.Do(&r.batch)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	r.batch.Reset()
	return nil
}

// renew extends the claim when half of its term is over.
func (r *run) renew() error {
	now := r.t.Now()
	if r.o.Term == 0 || now < *r.renewAt {
		return nil
	}
	*r.renewAt = now + r.o.Term/2
	if err := r.claim.Renew(now + r.o.Term); err != nil {
		return fmt.Errorf("recovery: extending a claim: %w", err)
	}
	return nil
}

// fence makes what was written visible to whoever comes by another queue pair.
func (r *run) fence() error {
	if err := r.c.Fence(rdma.FenceThread, 0, &r.batch); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	r.batch.Reset()
	return nil
}

// fetch is a READ to be done.
type fetch struct {
	at  rdma.RemoteAddr
	n   uint32
	out []byte

	into *fetch // of which it is the second READ
}

// read does the READs of a list, as many at once as the scratch memory holds.
func (r *run) read(list []*fetch) error {
	for len(list) > 0 {
		n, used := 0, uint32(0)
		r.batch.Reset()
		for n < len(list) && (n == 0 || used+list[n].n <= r.size) {
			f := list[n]
			if f.out == nil {
				f.out = make([]byte, f.n)
			}
			k := min(f.n, r.size)
			r.batch.Read(f.at, r.buf+used, k)
			used += (k + 7) &^ 7
			n++
		}
		if err := r.do(); err != nil {
			return err
		}
		used = 0
		for _, f := range list[:n] {
			k := min(f.n, r.size)
			copy(f.out, r.t.Bytes(r.buf+used, k))
			used += (k + 7) &^ 7
			for at := k; at < f.n; { // larger than the scratch memory
				k := min(f.n-at, r.size)
				a := f.at
				a.Off += uint64(at)
				r.batch.Read(a, r.buf, k)
				if err := r.do(); err != nil {
					return err
				}
				copy(f.out[at:], r.t.Bytes(r.buf, k))
				at += k
			}
		}
		list = list[n:]
	}
	return nil
}

// write appends the WRITE of p to a; flush ends what it begins. Pieces of one call
// arrive in order.
func (r *run) write(w *uint32, a rdma.RemoteAddr, p []byte) error {
	for len(p) > 0 {
		if *w == r.size {
			if err := r.flush(w); err != nil {
				return err
			}
		}
		k := min(uint32(len(p)), r.size-*w)
		copy(r.t.Bytes(r.buf+*w, k), p)
		r.batch.Write(a, r.buf+*w, k)
		*w = min(*w+(k+7)&^7, r.size)
		a.Off += uint64(k)
		p = p[k:]
	}
	return nil
}

// flush posts what was appended, and waits.
func (r *run) flush(w *uint32) error {
	*w = 0
	return r.do()
}

// index returns the handle on a table's index.
func (r *run) index(table uint16) (index.Finder, error) {
	if ix := r.tables[table]; ix != nil {
		return ix, nil
	}
	ix, err := r.o.open(r.c, r.claim, table)
	if err != nil {
		return nil, fmt.Errorf("recovery: index of table %d: %w", table, err)
	}
	if x, ok := ix.(*race.Index); ok && r.claim.Promoted {
		x.SetVacant(r.vacant)
	}
	r.tables[table] = ix
	return ix, nil
}

// vacant tells which blocks nobody has after the loss of a blade, while the run, which
// is alone then, decides: one that a log names may have lost its placeholder, and
// will have an image before long.
func (r *run) vacant(c *rdma.Coro, blocks []layout.Addr) ([]bool, error) {
	gone, err := vacant(c, r.v, r.o.Space.Single() && !r.claim.Promoted, blocks, func(id uint32) bool {
		return r.o.Space.Registered(id) && !slices.ContainsFunc(r.claim.Coordinators, func(x memory.Coordinator) bool {
			return x.ID == id
		})
	})
	for _, x := range r.txs {
		for i := range x.entries {
			e := &x.entries[i]
			for k, a := range blocks {
				if err == nil && x.state != toUndo && (a == e.Addr || a == e.From) {
					gone[k] = false
				}
			}
		}
	}
	return gone, err
}

// open makes a handle on the index of a table.
func (o *Options) open(c *rdma.Coro, s race.Space, table uint16) (index.Finder, error) {
	if o.Open != nil {
		return o.Open(c, s, table)
	}
	ts, err := o.Space.Tables()
	if err != nil {
		return nil, err
	}
	if table == 0 || int(table) > len(ts) || ts[table-1].Root == 0 {
		return nil, fmt.Errorf("%w: %d", memory.ErrNoTable, table)
	}
	if ts[table-1].InBlocks() {
		return tree.Open(s, &ts[table-1], tree.Options{})
	}
	ix, err := race.Open(c, s, ts[table-1].Root, table)
	if err != nil {
		return nil, err
	}
	ix.SetOwner(o.owner(s.View()))
	ix.SetStall(stallNs)
	ix.SetVacant(Vacant(o.Space))
	ix.SetSpoilt(Spoilt(o.Space))
	return ix, nil
}

// stallNs is how long recovery waits for another's change of an index before it asks
// whether he is dead: much longer than one takes, and much shorter than
// transactions wait.
const stallNs = 20_000_000

// owner is the number under which the recoverer takes locks in an index.
func (o *Options) owner(v *layout.View) uint64 {
	if o.By != 0 {
		return uint64(o.By)
	}
	return anonymous | uint64(v.Epoch)
}

// anonymous marks owners of locks that are no coordinators: recoverers, of which
// only one at a time is at work on an index. The rest is the epoch, and 0 if he has
// given up.
const anonymous = race.Nobody

// LeftOver reports whether nobody finishes a change of an index whose lock names an
// owner that is no coordinator: a recoverer in an epoch before the current one, whose
// verbs fail, or one of this epoch that has stopped in the middle, or somebody who has
// given up. Nor does anybody if there can be no such owner: the word is damaged.
func LeftOver(owner uint64, s *memory.Space) bool {
	return owner&anonymous == 0 || layout.Epoch(owner&^anonymous) < s.View().Epoch || !s.RecoversIndex()
}

// deadOwner tells which locks in an index may be broken, by the one that has the right to recover
// it: those that another recoverer has left in the name of a process are among them.
func (o *Options) deadOwner(owner uint64) bool {
	if owner >= layout.MaxCoordinators || o.Space.IsProcess(uint32(owner)) {
		return true
	}
	return owner != uint64(o.By) && !o.Space.Registered(uint32(owner))
}

// stands says why nothing goes on under these options: the tenure has ended under which it began.
func (o *Options) stands() error {
	if err := o.Space.Stands(o.By); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// owe has this process sweep everything when it has failed under its own number: it may have left
// locks in that name, of which it alone knows that they are left over.
func (o *Options) owe(c *rdma.Coro, err *error) {
	if (c.Unwinding() || *err != nil && !errors.Is(*err, memory.ErrClaimed)) && o.By != 0 && o.Space.IsProcess(o.By) {
		o.Space.OweSweep(true)
	}
}

// left reports whether the lock of a block is what this process has left that failed while it
// resolved the block. The caller has the right to resolve it.
func (o *Options) left(g record.Guard) bool {
	return g.Held() && g.Owner() == o.holder() && o.Space.IsProcess(o.By)
}
