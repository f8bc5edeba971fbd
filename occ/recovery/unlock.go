package recovery

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// holder is the name under which a recoverer holds locks that it has taken over.
func (o *Options) holder() record.TxID {
	return record.MakeTxID(o.By, record.MaxSequence)
}

// Unlocked is what Unlock has found, or made of it.
type Unlocked uint8

// What becomes of a lock.
const (
	UnlockedNot    Unlocked = iota // somebody alive has it
	UnlockedNow                    // nobody has it any more, or had
	UnlockedUnused                 // nobody had it, and the block is free; not since a recovery has freed it
)

// Unlock resolves the lock of the block at a, if it belongs to a transaction that
// nobody will ever finish: its coordinator is not registered, so no log tells of
// it, and it has had no effect. Others may do the same at the same time.
//
// A record, live or free, and a node are unlocked at the version that they have. A block in state
// absent is a placeholder of an insert that did not come to its end, perhaps one
// beside a record of the same key that it had not met yet, or a tombstone that was
// to be used again or to be reclaimed. All of them are reclaimed: the lock is
// taken over, so that there is one who does it, the block unlinked and freed. One without a key
// was to become a node, and nothing leads to it.
//
// An error is that of a verb, or of the index.
func Unlock(c *rdma.Coro, o Options, a layout.Addr) (Unlocked, error) {
	return unlock(c, o, a, 0)
}

// UnlockOwn is Unlock for a session that has become another coordinator, and has the blocks still
// that the transactions of the old one had taken: of these it resolves the locks, too.
func UnlockOwn(c *rdma.Coro, o Options, a layout.Addr) (Unlocked, error) {
	return unlock(c, o, a, o.By)
}

func unlock(c *rdma.Coro, o Options, a layout.Addr, own uint32) (Unlocked, error) {
	u, err := newUnlocker(c, &o, func(table uint16) (index.Finder, error) { return o.open(c, o.Space, table) })
	if err != nil {
		return UnlockedNot, err
	}
	defer u.close()
	u.own = own
	return u.unlock(a)
}

// Unlink takes a block out of the index of a table that was linked for a key by an
// insert which is undone, and whose placeholder died with a blade: the block is free.
// Whoever calls has the block.
func Unlink(c *rdma.Coro, o Options, table uint16, key []byte, a layout.Addr) error {
	u, err := newUnlocker(c, &o, func(table uint16) (index.Finder, error) { return o.open(c, o.Space, table) })
	if err != nil {
		return err
	}
	defer u.close()
	_, err = u.unlink(o.Space.ViewOn(c.Thread()), table, a, key)
	return err
}

// unlocker resolves orphan locks.
type unlocker struct {
	c     *rdma.Coro
	o     *Options
	index func(table uint16) (index.Finder, error)
	batch rdma.Batch
	buf   uint32 // arena: a key's worth of a block, then one of another
	query uint32
	qsize int
	freed int
	table uint16 // whose index was needed last
	// sweeps: deleted records whose coordinators are gone are reclaimed, too.
	sweeps bool
	// own is the coordinator whose session resolves what it had locked under another name; 0: none.
	own uint32
}

const keyRoom = record.LineSize + record.MaxKey

func newUnlocker(c *rdma.Coro, o *Options, ix func(uint16) (index.Finder, error)) (*unlocker, error) {
	at, err := c.Thread().Alloc(keyRoom)
	if err != nil {
		return nil, fmt.Errorf("recovery: buffer for a block: %w", err)
	}
	return &unlocker{c: c, o: o, index: ix, buf: at}, nil
}

func (u *unlocker) close() {
	t := u.c.Thread()
	t.Free(u.buf, keyRoom)
	if u.qsize > 0 {
		t.Free(u.query, u.qsize)
	}
}

func (u *unlocker) do() error {
	err := u.c.Do(&u.batch)
	if err != nil {
		return fmt.Errorf("recovery: resolving a lock: %w", err)
	}
	return nil
}

// cas replaces the guard of a block's primary and reports whether it was old.
func (u *unlocker) cas(v *layout.View, a layout.Addr, old, to record.Guard) (bool, error) {
	g := v.At(a, 0)
	g.Off += record.GuardOff
	u.batch.Reset()
	i := u.batch.CAS(g, uint64(old), uint64(to))
	if err := u.do(); err != nil {
		return false, err
	}
	return u.batch.Result(i) == uint64(old), nil
}

func (u *unlocker) unlock(a layout.Addr) (Unlocked, error) {
	v := u.o.Space.ViewOn(u.c.Thread())
	if !v.Contains(a, record.LineSize) {
		return UnlockedNow, nil
	}
	// From here on nobody else resolves it: what is read now stays so.
	r := u.o.Space.BeginResolve(a, u.o.By)
	if r == nil {
		return UnlockedNot, nil
	}
	free := uint32(0) // in whose name the block was freed
	defer func() { r.End(free != 0, free) }()
	img, err := u.read(v, a)
	if err != nil {
		return UnlockedNot, err
	}
	g := img.Guard()
	dead := u.sweeps && abandoned(u.o.Space, img)
	switch {
	case dead:
	case !g.Held() && img.Meta().State() == record.Free && img.Version().Seq() <= record.MaxSequence:
		return UnlockedUnused, nil
	case !g.Held():
		return UnlockedNow, nil
	case u.o.Space.Registered(g.Owner().Coordinator()) && !u.o.left(g):
		return UnlockedNot, nil
	}
	if isStranded(img) {
		u.table = img.Meta().Table()
		return UnlockedNot, strandedError(a)
	}
	half := halfFree(img, a) || renumbered(img)
	if half {
		if half, err = u.freeElsewhere(v, a); err != nil {
			return UnlockedNot, err
		}
		if img, err = u.read(v, a); err != nil {
			return UnlockedNot, err
		}
	}
	keep, err := u.linked(v, a, img)
	if err != nil {
		return UnlockedNot, err
	}
	if keep || img.Meta().State() != record.Absent && !half {
		was := img.Unlocked()
		u.table = img.Meta().Table()
		if is, err := u.strandedElsewhere(v, a); err != nil {
			return UnlockedNot, err
		} else if is {
			return UnlockedNot, strandedError(a)
		}
		return u.now(u.cas(v, a, g, was))
	}
	// A free block that a dead one had locked may have been read while somebody was writing
	// a placeholder to it, whose guard had not arrived: he has it still, or has written
	// another guard since.
	if !dead && (u.o.Space.Taken(a, u.own) || !u.o.Space.Owns(a) && u.beingTaken(a, img)) {
		return UnlockedNot, nil
	}
	mine := g
	switch {
	case u.o.By != 0: // others may be at it
		mine = record.HeldBy(u.o.holder())
	case dead:
		mine = record.HeldBy(img.Version()) // as if that one had begun to reclaim it
	}
	if mine != g || !u.o.Alone {
		if ok, err := u.cas(v, a, g, mine); !ok || err != nil {
			return UnlockedNot, err
		}
	}
	if dead { // now nobody changes it
		was := img.Version()
		if img, err = u.read(v, a); err != nil {
			return UnlockedNot, err
		}
		// If it was a free block, somebody was writing a placeholder to it, and the line was read
		// when one word of that had arrived, and another not: the lock was overwritten, or will be.
		_, damage := img.Check(a)
		if damage != nil || img.Version() != was || img.Guard() != mine {
			return u.now(u.cas(v, a, mine, g))
		}
		img.SetGuard(record.HeldBy(img.Version()))
	}
	name := img.Guard().Owner().Coordinator()
	if begun, err := u.reclaim(v, a, img); err != nil {
		// Nobody takes it over from somebody alive: it is left to whoever comes next, as it
		// was found, but with a lock if no slot may lead there any more: who knows the block
		// from before would use it again. If that fails, too, the session is broken, and
		// another one by then.
		if dead && begun {
			g = record.HeldBy(img.Version())
		}
		if mine != g {
			if _, e := u.cas(v, a, mine, g); e != nil {
				err = e
			}
		}
		return UnlockedNot, err
	}
	free = name
	return UnlockedNow, nil
}

// beingTaken reports whether a session may be writing a placeholder to a block, of a segment of
// another process, which alone knows that.
func (u *unlocker) beingTaken(a layout.Addr, img record.Image) bool {
	_, damage := img.Check(a)
	return damage != nil || u.o.Space.Registered(img.Version().Coordinator())
}

// linked reports whether a block is that of a deleted record of an ordered table, to which a node
// leads: it stays what it is, and a transaction unlinks it. One to which none leads was to be
// linked by a commit that did not come.
func (u *unlocker) linked(v *layout.View, a layout.Addr, img record.Image) (bool, error) {
	m := img.Meta()
	if _, err := img.Check(a); err != nil || m.State() != record.Absent || m.KeyLen() == 0 ||
		!u.o.Space.TableInBlocks(m.Table()) {
		return false, nil //nolint:nilerr // it is looked at as other blocks are
	}
	u.table = m.Table()
	key := bytes.Clone(img.Key())
	ix, err := u.index(u.table)
	if err != nil {
		return false, fmt.Errorf("recovery: index of table %d: %w", u.table, err)
	}
	q, err := u.lookup(ix, v, u.table, key)
	if err != nil {
		return false, fmt.Errorf("recovery: looking up in the index of table %d: %w", u.table, err)
	}
	return leadsTo(q, a), nil
}

// halfFree reports whether a block's line, whose guard is held, says that the block is free in its
// first words, and not in the others: its owner was killed in the middle of the WRITE that frees
// it, after it had been unlinked. Where it says in the same word that there are a key or a value it
// is a record, whose state is damaged, perhaps on all copies.
func halfFree(line record.Image, a layout.Addr) bool {
	_, err := line.Check(a)
	m := line.Meta()
	return m.State() == record.Free && err != nil && m.KeyLen()|m.ValueLen() == 0
}

// renumbered reports whether a block is free, and locked in the name of a recoverer, as one whose
// number was being changed (memory.Space), or that was being freed: a copy may have half of a line.
func renumbered(line record.Image) bool {
	return line.Meta().State() == record.Free && line.Lock().Seq() >= record.MaxSequence
}

// freeElsewhere reports whether the backups of a block are free, as they are when its primary is
// being freed, which comes last. Else the primary is damaged, and its record is on a copy.
func (u *unlocker) freeElsewhere(v *layout.View, a layout.Addr) (bool, error) {
	for k := 1; k < v.Copies(a); k++ {
		img, err := u.readCopy(v, a, k)
		if err != nil || img.Meta().State() != record.Free {
			return false, err
		}
	}
	return true, nil
}

// strandedElsewhere reports whether a copy of a block is that of a record whose move is to be
// finished: then the lock, or the state, on the primary is damaged. Who finishes the move gets
// to the primary last.
func (u *unlocker) strandedElsewhere(v *layout.View, a layout.Addr) (bool, error) {
	u.batch.Reset()
	n := v.Copies(a)
	if n < 2 {
		return false, nil
	}
	for k := 1; k < n; k++ {
		u.batch.Read(v.At(a, k), u.buf+uint32(k-1)*record.LineSize, record.LineSize)
	}
	if err := u.do(); err != nil {
		return false, err
	}
	for k := 1; k < n; k++ {
		if isStranded(u.c.Thread().Bytes(u.buf+uint32(k-1)*record.LineSize, record.LineSize)) {
			return true, nil
		}
	}
	return false, nil
}

// abandoned reports whether an image is that of a deleted record whose coordinator is
// gone, so that nobody will reclaim its block: it is on no session's list, or on that of
// one who finds that it has changed. It may be unlinked already, by somebody who was about
// to free it and had its lock on a blade that was lost. As long as it is undecided what was
// under way when a blade was lost, none is: a transaction may have been inserting over it. When
// that is decided, another sweep is due.
func abandoned(s *memory.Space, img record.Image) bool {
	if s.FailoverPending() {
		return false
	}
	return img.Meta().State() == record.Absent && img.Stable() && !s.Registered(img.Version().Coordinator()) &&
		!s.TableInBlocks(img.Meta().Table()) // a transaction that meets it unlinks it
}

func (u *unlocker) now(ok bool, err error) (Unlocked, error) {
	if !ok || err != nil {
		return UnlockedNot, err
	}
	return UnlockedNow, nil
}

// read reads a block of the primary as far as its key may reach.
func (u *unlocker) read(v *layout.View, a layout.Addr) (record.Image, error) {
	return u.readCopy(v, a, 0)
}

// readCopy is read for any copy.
func (u *unlocker) readCopy(v *layout.View, a layout.Addr, k int) (record.Image, error) {
	t := u.c.Thread()
	n := uint32(record.LineSize)
	for {
		u.batch.Reset()
		u.batch.Read(v.At(a, k), u.buf, n)
		if err := u.do(); err != nil {
			return nil, err
		}
		img := record.Image(t.Bytes(u.buf, n))
		m := img.Meta()
		end := uint32(record.KeyAt(m.KeyLen()) + m.KeyLen())
		if n > record.LineSize || record.KeyAt(m.KeyLen()) == record.KeyOff || m.KeyLen() > record.MaxKey ||
			!v.Contains(a, end) {
			return img, nil
		}
		n = (end + 7) &^ 7
	}
}

// reclaim unlinks a block in state absent, or half free, whose lock is ours, and frees it. begun:
// it may be unlinked, whatever the error says.
func (u *unlocker) reclaim(v *layout.View, a layout.Addr, img record.Image) (begun bool, err error) {
	// else it was being written, or has no key, and was never linked
	if _, err := img.Check(a); err == nil && img.Meta().KeyLen() > 0 {
		if begun, err := u.unlink(v, img.Meta().Table(), a, img.Key()); err != nil {
			return begun, err
		}
	}
	u.batch.Reset()
	u.putFree(a, img)
	// Backups first: the primary holds the lock.
	for k := v.Written(a) - 1; k >= 0; k-- {
		record.AppendFree(&u.batch, v.At(a, k), u.buf, k > 0 || u.c.Thread().Caps().OrderedLine)
		if k == 1 {
			if err := u.place(); err != nil {
				return true, err
			}
		}
	}
	if err := u.place(); err != nil {
		return true, err
	}
	u.freed++
	return true, nil
}

// putFree puts the line of a block that is freed, whose image is given, into the buffer, in the
// name of the dead one that held it.
func (u *unlocker) putFree(a layout.Addr, img record.Image) {
	m, coordinator := img.Meta(), img.Lock().Coordinator()
	class, ok := u.o.Space.ClassAt(a) // of a torn header nothing is sure
	if !ok {
		class = m.Class()
	}
	record.Image(u.c.Thread().Bytes(u.buf, record.LineSize)).PutFree(a, lastVersion(coordinator), m.Table(), class,
		u.o.Space.CountFree(a))
}

// unlinked reports whether a copy of a block that is free on the primary is what somebody
// has left who was freeing it: a record that no slot leads to any more, deleted if nobody else
// is at work. Where one does, or there is a value, it is the primary that is damaged.
func (u *unlocker) unlinked(v *layout.View, a layout.Addr, img record.Image) (bool, error) {
	m := img.Meta()
	live := m.State() == record.Live // its value need not have been read
	if live && u.o.Alone || m.State() == record.Node {
		return false, nil // a commit that frees a node begins with the backups: the primary is damaged
	}
	if _, damage := img.Check(a); damage != nil && !live || m.KeyLen() == 0 || !keyed(img) {
		return true, nil // it was being written, and is not linked any more
	}
	u.table = m.Table()
	ix, err := u.index(m.Table())
	if errors.Is(err, memory.ErrNoTable) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("recovery: index of table %d: %w", m.Table(), err)
	}
	q, err := u.lookup(ix, v, m.Table(), img.Key())
	if err != nil {
		return false, fmt.Errorf("recovery: looking up in the index of table %d: %w", m.Table(), err)
	}
	return !leadsTo(q, a), nil
}

// place posts what was appended, and waits until it is visible.
func (u *unlocker) place() error {
	if err := u.do(); err != nil {
		return err
	}
	if err := u.c.Fence(rdma.FenceThread, 0, &u.batch); err != nil {
		return fmt.Errorf("recovery: resolving a lock: %w", err)
	}
	u.batch.Reset()
	return nil
}

// unlink takes a block out of its table's index, on every copy. begun: a slot may be empty on some,
// whatever the error says.
func (u *unlocker) unlink(v *layout.View, table uint16, a layout.Addr, key []byte) (begun bool, err error) {
	u.table = table
	ix, err := u.index(table)
	if errors.Is(err, memory.ErrNoTable) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("recovery: index of table %d: %w", table, err)
	}
	q, err := u.lookup(ix, v, table, key)
	if err != nil {
		return false, fmt.Errorf("recovery: looking up in the index of table %d: %w", table, err)
	}
	if m, ok := ix.(resyncer); ok {
		if _, err := m.Resync(u.c, q, 0, a); err != nil {
			return false, fmt.Errorf("recovery: the slot of an insert into table %d: %w", table, err)
		}
	}
	s, ok := ix.(index.Slots)
	switch {
	case ok:
		err = s.Remove(u.c, q, a)
	case leadsTo(q, a):
		err = errLinked
	}
	if err != nil && !errors.Is(err, index.ErrChanged) {
		return true, fmt.Errorf("recovery: unlinking an insert from table %d: %w", table, err)
	}
	return true, nil
}

// errLinked is why a block of an ordered table is not unlinked.
var errLinked = errors.New("a node of the index leads to it, and nodes change by commits alone")

// lookup looks up a key. The query is good until the next lookup.
func (u *unlocker) lookup(ix index.Finder, v *layout.View, table uint16, key []byte) (*index.Query, error) {
	t := u.c.Thread()
	if need := ix.BufferSize() + record.LineSize; u.qsize < need {
		if u.qsize > 0 {
			t.Free(u.query, u.qsize)
			u.qsize = 0
		}
		at, err := t.Alloc(need)
		if err != nil {
			return nil, fmt.Errorf("buffer of a lookup: %w", err)
		}
		u.query, u.qsize = at, need
	}
	q := &index.Query{
		Key: key, Hash: record.Hash(table, key),
		Local: (u.query + record.LineSize - 1) &^ (record.LineSize - 1), View: v,
	}
	for range maxLookups {
		u.batch.Reset()
		ix.Search(&u.batch, q)
		if err := u.do(); err != nil {
			return nil, err
		}
		again, err := ix.Resolve(u.c, q)
		if err != nil || !again {
			return q, err
		}
	}
	return nil, index.ErrBusy
}
