package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/rdma"
)

// Identity says who joins. Only Name has to be set.
type Identity struct {
	// Name is for messages: several members may have the same.
	Name string
	// Term is how long a member's heartbeat may stand still, in nanoseconds of this observer's
	// clock, before this one declares that member dead; 0: 50 ms. A member beats four times in its
	// own term, so members of one host have about the same.
	Term int64
	// Slots is how many members can have joined at once, the same for all; 0: 64.
	Slots int
}

const (
	defaultTerm  = 50_000_000
	defaultSlots = 64
	maxSlots     = 4096
)

// Member is one participant: a thread that has joined a host. It belongs to that thread, like all
// handles that were opened through it. Coroutines of the thread may share the member, and the
// handles of locks; any other handle is for one coroutine at a time. A thread that stops beating is
// declared dead by the members that wait for it.
type Member struct {
	host Host
	id   MemberID
	t    *rdma.Thread
	term int64
	dead error
	left bool // by Leave

	objects []*object
	table   object // .members
	slots   uint32
	slot    int // in the table, -1: not yet
	beats   uint64
	beaten  int64 // when
	seen    []sighting
	looked  int64 // when the table was read last
	absent  []sighting
	again   rdma.Batch // see redo
	at      []int      // of its requests in the batch that failed
	redoing bool       // a coroutine uses them
	busy    bool       // a coroutine uses the batch of the table
	staged  []*turn    // locks that are given back when a batch is posted
}

// sighting is when a heartbeat was seen to have moved, by this member's clock.
type sighting struct {
	id    MemberID
	beat  uint64
	since int64
}

// The table of members: the header, an A word with the number of the member for each slot, and an
// S word {member 24, count 40} for each.
const tableOff = headerBytes

// Join makes the thread of c a member of the host. It waits for a free slot until ctx ends, or
// until all slots are known to belong to members that are alive: ErrFull. After an error there is
// no member: it has left, or others find it gone.
func Join(ctx context.Context, c *rdma.Coro, host Host, who Identity) (*Member, error) {
	if who.Term == 0 {
		who.Term = defaultTerm
	}
	if who.Slots == 0 {
		who.Slots = defaultSlots
	}
	if who.Term < 0 || who.Slots < 1 || who.Slots > maxSlots {
		return nil, fmt.Errorf("%w: term of %d ns, %d slots: a positive term, and 1 to %d slots are possible",
			ErrTooLarge, who.Term, who.Slots, maxSlots)
	}
	m := &Member{host: host, t: c.Thread(), term: who.Term, slots: uint32(who.Slots), slot: -1}
	var err error
	if m.id, err = host.Enroll(c, who.Name); err != nil {
		return nil, err
	}
	if m.id == 0 || m.id > MaxMember {
		return nil, fmt.Errorf("%w: member number %d: numbers from 1 to %d are possible", ErrTooLarge, m.id, MaxMember)
	}
	m.seen = make([]sighting, who.Slots)
	bytes := tableOff + 16*m.slots
	if err := m.table.open(ctx, c, m, ".members", Spec{Kind: KindMembers, Rows: m.slots, Bytes: bytes}, 16*m.slots+
		64); err != nil {
		return nil, m.giveUp(c, err)
	}
	slot, err := m.table.claim(ctx, c, tableOff, m.slots, nil)
	if err != nil {
		m.table.Close()
		return nil, m.giveUp(c, err)
	}
	m.slot = slot
	m.beaten = m.t.Now() - m.term
	if err := m.Beat(c); err != nil {
		return nil, m.giveUp(c, err)
	}
	return m, nil
}

// giveUp leaves after an error of Join, as far as that is possible, and returns the error.
func (m *Member) giveUp(c *rdma.Coro, err error) error {
	if m.Leave(c) != nil && m.slot >= 0 {
		m.Close()
		_ = m.host.Leave(c) // the slot is that of a member that is gone
	}
	return err
}

// ID is the member's number.
func (m *Member) ID() MemberID { return m.id }

// Thread is the thread that the member belongs to.
func (m *Member) Thread() *rdma.Thread { return m.t }

// Beat tells the others that this member is alive, if a quarter of its term has passed since it
// last did: 1 WRITE then, nothing otherwise. Waits of this package beat. A thread that does
// anything else for longer calls Beat.
func (m *Member) Beat(c *rdma.Coro) error {
	now := m.t.Now()
	if m.slot < 0 || now-m.beaten < m.term/4 || m.busy {
		return nil
	}
	o := &m.table
	if err := o.ready(); err != nil {
		return err
	}
	m.busy = true
	defer m.idle()
	m.beats++
	local := o.buf + 16*m.slots
	m.t.PutWord(local, uint64(m.id)<<(64-memberBits)|m.beats)
	o.b.Reset()
	o.stageWrite(&o.b, tableOff+8*m.slots+8*uint32(m.slot), local, 8)
	if err := m.Do(c, &o.b); err != nil {
		return err
	}
	m.beaten = now
	return nil
}

func (m *Member) idle() { m.busy = false }

// Leave gives the member's slot back, and its number. Close all handles before. Locks that are held
// stay held until another member finds that this one is gone. If it fails, it can be called again.
func (m *Member) Leave(c *rdma.Coro) error {
	if m.slot >= 0 {
		if err := m.table.release(c, tableOff+8*uint32(m.slot)); err != nil {
			return err
		}
		m.slot = -1
		m.table.Close()
	}
	if m.left {
		return nil
	}
	if err := m.host.Leave(c); err != nil {
		return err
	}
	m.left, m.dead = true, fmt.Errorf("member %d: it has left: %w", m.id, ErrFenced)
	return nil
}

// Close gives back the buffers of a member that is dead, or that others are to find so. Close
// all handles before.
func (m *Member) Close() {
	m.slot = -1
	m.table.Close()
}

// look reads the heartbeats of all members, if an eighth of the term has passed since they were
// read. 1 READ then.
func (m *Member) look(c *rdma.Coro) error {
	now := m.t.Now()
	if m.looked != 0 && now-m.looked < m.term/8 {
		return nil
	}
	o := &m.table
	if err := o.ready(); err != nil {
		return err
	}
	if m.busy {
		return nil // what is known is not up to date: later
	}
	m.busy = true
	defer m.idle()
	o.b.Reset()
	o.b.Read(o.addr(tableOff), o.buf, 16*m.slots)
	if err := m.Do(c, &o.b); err != nil {
		return err
	}
	now = m.t.Now()
	m.looked = now
	for i := range m.seen {
		id := MemberID(m.t.Word(o.buf + 8*uint32(i)))
		beat := m.t.Word(o.buf + 8*m.slots + 8*uint32(i))
		if MemberID(beat>>(64-memberBits)) != id {
			beat = 0 // of the slot's last owner: this one has not beaten yet
		}
		if s := &m.seen[i]; s.id != id || s.beat != beat {
			*s = sighting{id, beat, now}
		}
	}
	return nil
}

// expired reports whether a member has shown no sign of life for a term, as far as this member has
// looked. A member without a slot is asked for the first time when its term begins.
func (m *Member) expired(id MemberID) bool {
	now := m.t.Now()
	for i := range m.seen {
		if m.seen[i].id == id {
			return m.overdue(m.seen[i].since, now)
		}
	}
	for i := range m.absent {
		if m.absent[i].id == id {
			return m.overdue(m.absent[i].since, now)
		}
	}
	m.absent = append(m.absent, sighting{id: id, since: now})
	return false
}

// overdue adds an eighth to the term, because clocks do not run alike.
func (m *Member) overdue(since, now int64) bool {
	return m.looked-since > m.term+m.term/8 && now-since > m.term+m.term/8
}

// suspect looks at the heartbeats and fences a member that has expired. true: none of its verbs
// takes effect any more, and what is read from now on is final.
func (m *Member) suspect(c *rdma.Coro, id MemberID) (bool, error) {
	if id == m.id || id == 0 {
		return false, nil
	}
	if err := m.look(c); err != nil {
		return false, err
	}
	if !m.expired(id) {
		return false, nil
	}
	if err := m.fenceOff(c, id); err != nil {
		return false, err
	}
	return true, m.refresh(c)
}

// fenceOff fences a member, or moves the epoch, unless this one is dead.
func (m *Member) fenceOff(c *rdma.Coro, id MemberID) error { return m.living(m.host.Fence(c, id)) }

// living notes that this member was fenced, if err says so.
func (m *Member) living(err error) error {
	if errors.Is(err, ErrFenced) {
		m.dead = fmt.Errorf("member %d: %w", m.id, err)
		return m.dead
	}
	return err
}

// refresh brings the member's view to the present epoch.
func (m *Member) refresh(c *rdma.Coro) error {
	if err := m.living(m.host.Refresh(c)); err != nil {
		return err
	}
	return m.viewed()
}

// viewed notes what a new view says of keys and objects. A member that holds a lock which is gone
// is dead: another member may hold the lock by now, and what this one has still to post under it
// would be posted with the new keys.
func (m *Member) viewed() error {
	for _, o := range m.objects {
		m.t.Rekeyed(o.place.Blade, m.host.Key(o.place.Blade))
		if o.gone == nil {
			if err := m.host.Valid(o.name, o.place); err != nil {
				o.gone = fmt.Errorf("channel: %v %q, incarnation %d: %w", o.spec.Kind, o.name, o.place.Incarnation, err)
				if m.dead == nil && o.holds != nil && o.holds() {
					m.dead = fmt.Errorf("member %d: it holds %v %q, incarnation %d, which is gone, and others may "+
						"hold by now: %w", m.id, o.spec.Kind, o.name, o.place.Incarnation, ErrFenced)
				}
			}
		}
	}
	return m.dead
}

// Do posts what was appended to b and waits: one doorbell per blade, one round trip. It is what the
// methods of objects use, and what posts a batch that was filled by their Stage methods.
//
// Requests that fail because the epoch has moved are posted again, in their order, until all have
// been executed. A request without an answer is decided first, by moving the epoch; then READs and
// WRITEs are posted again, and an atomic ends Do with ErrUncertain: it has taken effect once or not
// at all, and the requests of its blade behind it have not been executed.
//
// ErrIncarnation: a request was for an object that is gone. ErrFenced: this member is dead.
func (m *Member) Do(c *rdma.Coro, b *rdma.Batch) error {
	if c.Do(b) != nil {
		if err := m.redo(c, b); err != nil {
			return err
		}
	}
	if changed, err := m.host.Confirm(c); changed || err != nil {
		if err := m.counts(b, err); err != nil {
			return err
		}
	}
	if len(m.staged) > 0 {
		return m.posted(c, b)
	}
	return nil
}

func (m *Member) redo(c *rdma.Coro, b *rdma.Batch) error {
	for m.redoing {
		c.Sleep(minPause)
	}
	m.redoing = true
	defer func() { m.redoing = false }()
	for range 64 {
		uncertain, unsure, err := m.failures(b)
		if err != nil {
			return err
		}
		if uncertain {
			if err := m.fenceOff(c, 0); err != nil {
				return err
			}
		}
		if err := m.refresh(c); err != nil {
			return err
		}
		if err := m.reconnect(c, b); err != nil {
			return err
		}
		if unsure != nil {
			return fmt.Errorf("%w: %w", ErrUncertain, unsure)
		}
		r := &m.again
		r.Reset()
		m.at = m.at[:0]
		for i := range b.Len() {
			w := b.WR(i)
			if w.Status == rdma.StatusOK {
				continue
			}
			if err := m.within(w); err != nil {
				return err
			}
			x := r.Extend(1)
			x[0] = *w
			x[0].Key, x[0].Status = m.host.Key(w.Blade), rdma.StatusOK
			r.Count(w.Op, 1, uint64(w.Len), rdma.BladeBit(w.Blade))
			m.at = append(m.at, i)
		}
		err = c.Do(r)
		for j, i := range m.at {
			b.WR(i).Status, b.WR(i).Result = r.WR(j).Status, r.WR(j).Result
		}
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("channel: member %d: 64 attempts to post over a new epoch have failed: %w", m.id, b.Err())
}

// failures sorts what has failed of a batch: is a request uncertain, is an atomic, and is there a
// failure that will not go away?
func (m *Member) failures(b *rdma.Batch) (uncertain bool, atomic, err error) {
	for i := range b.Len() {
		w := b.WR(i)
		switch w.Status {
		case rdma.StatusOK, rdma.StatusFlushed, rdma.StatusKey, rdma.StatusNoBlade:
		case rdma.StatusTimeout, rdma.StatusInternal:
			uncertain = true
			if w.Op != rdma.OpRead && w.Op != rdma.OpWrite && w.Op != rdma.OpFlush {
				atomic = &rdma.VerbError{Op: w.Op, Blade: w.Blade, Off: w.Off, Len: w.Len, Status: w.Status}
			}
		default:
			return false, nil, &rdma.VerbError{Op: w.Op, Blade: w.Blade, Off: w.Off, Len: w.Len, Status: w.Status}
		}
	}
	return uncertain, atomic, nil
}

// reconnect takes the queue pairs on which requests have failed out of the error state. Requests of
// the thread's other coroutines may be outstanding there for a while.
func (m *Member) reconnect(c *rdma.Coro, b *rdma.Batch) error {
	var done uint64
	for i := range b.Len() {
		w := b.WR(i)
		if w.Status == rdma.StatusOK || done&rdma.BladeBit(w.Blade) != 0 {
			continue
		}
		err := m.t.Reconnect(w.Blade)
		for n := 0; err != nil && n < 16; n++ {
			c.Sleep(minPause << min(n, 8))
			err = m.t.Reconnect(w.Blade)
		}
		if err != nil {
			return err
		}
		done |= rdma.BladeBit(w.Blade)
	}
	return nil
}

// counts returns why what a batch has done does not count, behind Host.Confirm and its error: a
// blade that was declared dead may execute requests.
func (m *Member) counts(b *rdma.Batch, err error) error {
	if err := m.living(err); err != nil {
		return err
	}
	if err := m.viewed(); err != nil {
		return err
	}
	for i := range b.Len() {
		if err := m.within(b.WR(i)); err != nil {
			return err
		}
	}
	return nil
}

// within says whether a request is for an object that is gone.
func (m *Member) within(w *rdma.WR) error {
	for _, o := range m.objects {
		if o.gone != nil && o.place.Blade == w.Blade && w.Off >= o.place.Off && w.Off < o.place.Off+
			uint64(o.spec.Bytes) {
			return o.gone
		}
	}
	return nil
}

// Pauses of a wait, in nanoseconds.
const (
	minPause = 1_000
	maxPause = 1_000_000
)

// wait is a wait for other members: it ends with ctx, beats, and sleeps a little longer each time.
type wait struct {
	ctx   context.Context
	m     *Member
	pause int64
}

func (w *wait) next(c *rdma.Coro) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if err := w.m.Beat(c); err != nil {
		return err
	}
	w.sleep(c)
	return nil
}

func (w *wait) sleep(c *rdma.Coro) {
	m := w.m
	if w.pause == 0 {
		w.pause = minPause
	}
	c.Sleep(w.pause + int64(m.t.Rand()%uint64(w.pause)))
	w.pause = max(minPause, min(2*w.pause, maxPause, m.term/16))
}

func word(b []byte, off uint32) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// fence makes what the thread has written, on any blade, visible to all.
func (m *Member) fence(c *rdma.Coro, b *rdma.Batch) error {
	if err := c.Fence(rdma.FenceThread, 0, b); err != nil {
		return m.redo(c, b)
	}
	return nil
}
