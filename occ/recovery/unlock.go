package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

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
	UnlockedNot    Unlocked = iota // a live client has it
	UnlockedNow                    // no client has it any more, or had
	UnlockedUnused                 // no client had it, and the block is free; not since a recovery has freed it
)

// Unlock resolves the lock of the block at a, if it belongs to a transaction that
// nobody will ever finish: its coordinator is not registered, so no log tells of
// it, and it has had no effect. Others may do the same at the same time.
//
// A record, live, deleted or free, and a node are unlocked at the version that they have. A block in
// state absent to which no node leads was reserved by a commit that did not come to its log, for a
// record, or for a node if it has no key. The recoverer takes its lock over, and frees it.
//
// An error is that of a verb, or of the index: see Beyond.
func Unlock(c *rdma.Coro, o Options, a layout.Addr) (Unlocked, error) {
	return unlock(c, o, a, 0)
}

// UnlockOwn is Unlock for a session that has become another coordinator, and has the blocks still
// that the transactions of the old one had taken: of these it resolves the locks, too.
func UnlockOwn(c *rdma.Coro, o Options, a layout.Addr) (Unlocked, error) {
	return unlock(c, o, a, o.By)
}

func unlock(c *rdma.Coro, o Options, a layout.Addr, own uint32) (Unlocked, error) {
	u, err := newUnlocker(c, &o)
	if err != nil {
		return UnlockedNot, err
	}
	defer u.close()
	u.own = own
	return u.unlock(a)
}

// Beyond reports whether an error of Unlock says that the index is damaged, or lost: what is left
// of the block is the sweep's, when it is repaired.
func Beyond(err error) bool {
	return errors.Is(err, layout.ErrCorrupt) || errors.Is(err, layout.ErrLost)
}

// unlocker resolves orphan locks.
type unlocker struct {
	c     *rdma.Coro
	o     *Options
	batch rdma.Batch
	buf   uint32 // arena: a key's worth of a block
	freed int
	// indexes are handles on indexes that were needed, by table.
	indexes map[uint16]finder
	// own is the coordinator whose session resolves what it had locked under another name; 0: none.
	own uint32
}

// finder is an index that lists the blocks that may hold a key.
type finder interface {
	Blocks(c *rdma.Coro, key []byte) ([]index.Candidate, error)
}

const keyRoom = record.LineSize + record.MaxKey

func newUnlocker(c *rdma.Coro, o *Options) (*unlocker, error) {
	at, err := c.Thread().Alloc(keyRoom)
	if err != nil {
		return nil, fmt.Errorf("recovery: buffer for a block: %w", err)
	}
	return &unlocker{c: c, o: o, buf: at, indexes: map[uint16]finder{}}, nil
}

func (u *unlocker) close() {
	u.c.Thread().Free(u.buf, keyRoom)
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
	switch {
	case !g.Held() && img.Meta().State() == record.Free && img.Version().Seq() <= record.MaxSequence:
		return UnlockedUnused, nil
	case !g.Held():
		return UnlockedNow, nil
	case u.o.Space.Registered(g.Owner().Coordinator()) && !u.o.left(g):
		return UnlockedNot, nil
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
	keep := img.Meta().State() != record.Absent && !half
	if !keep {
		if keep, err = u.linked(a, img); err != nil {
			return UnlockedNot, err
		}
	}
	if keep {
		return u.now(u.cas(v, a, g, img.Unlocked()))
	}
	// A session that has the block may be writing a reservation to it, whose guard has not arrived:
	// it has overwritten the lock, or will.
	if u.o.Space.Taken(a, u.own) || !u.o.Space.Owns(a) && u.beingTaken(a, img) {
		return UnlockedNot, nil
	}
	mine := g
	if u.o.By != 0 { // others may be at it
		mine = record.HeldBy(u.o.holder())
	}
	if mine != g || !u.o.Alone {
		if ok, err := u.cas(v, a, g, mine); !ok || err != nil {
			return UnlockedNot, err
		}
	}
	name := g.Owner().Coordinator()
	if err := u.free(v, a, img, name); err != nil {
		// The block is left to the next one, as it was found. If that fails, too, the session is
		// broken, and another one by then.
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

// beingTaken reports whether a session may be writing a reservation to a block, of a segment of
// another process, which alone knows that.
func (u *unlocker) beingTaken(a layout.Addr, img record.Image) bool {
	_, damage := img.Check(a)
	return damage != nil || u.o.Space.Registered(img.Version().Coordinator())
}

// linked reports whether a node leads to a block: that of a deleted record stays what it is, and a
// transaction unlinks it. If no node leads to it, a commit that did not come was to link it.
func (u *unlocker) linked(a layout.Addr, img record.Image) (bool, error) {
	m := img.Meta()
	if _, err := img.Check(a); err != nil || m.State() != record.Absent || m.KeyLen() == 0 {
		return false, nil //nolint:nilerr // a line that is half of one is no record's
	}
	table, key := m.Table(), bytes.Clone(img.Key())
	if u.indexes[table] == nil {
		ix, err := u.o.open(table)
		if errors.Is(err, memory.ErrNoTable) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("recovery: index of table %d: %w", table, err)
		}
		u.indexes[table] = ix
	}
	blocks, err := u.indexes[table].Blocks(u.c, key)
	if err != nil {
		return false, fmt.Errorf("recovery: looking up in the index of table %d: %w", table, err)
	}
	return slices.ContainsFunc(blocks, func(x index.Candidate) bool { return x.Addr == a }), nil
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

// free frees a block in state absent, or half free, in the name of the dead coordinator that had
// it. Its lock is ours.
func (u *unlocker) free(v *layout.View, a layout.Addr, img record.Image, by uint32) error {
	class, ok := u.o.Space.ClassAt(a) // of a torn header nothing is sure
	m := img.Meta()
	if !ok {
		class = m.Class()
	}
	line := record.Image(u.c.Thread().Bytes(u.buf, record.LineSize))
	line.PutFree(a, lastVersion(by), m.Table(), class, u.o.Space.CountFree(a))
	u.batch.Reset()
	// Backups first: the primary holds the lock.
	for k := v.Written(a) - 1; k >= 0; k-- {
		record.AppendFree(&u.batch, v.At(a, k), u.buf, k > 0 || u.c.Thread().Caps().OrderedLine)
		if k == 1 {
			if err := u.place(); err != nil {
				return err
			}
		}
	}
	if err := u.place(); err != nil {
		return err
	}
	u.freed++
	return nil
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
