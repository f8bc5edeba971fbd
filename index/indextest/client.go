package indextest

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Errors of a Client.
var (
	ErrExists   = errors.New("indextest: the key has a record")
	ErrNotFound = errors.New("indextest: the key has no record")
	ErrLocked   = errors.New("indextest: the record is locked")
	// ErrUnclear: a block that a slot points to is never intact.
	ErrUnclear = errors.New("indextest: block is damaged")
)

// maxBlock is the largest block that a client writes, in bytes.
const maxBlock = 4096

// Client does single-key operations on a table whose index is Index, as a
// transaction would. It belongs to one coroutine.
type Client struct {
	Index index.Slots
	Table uint16
	C     *rdma.Coro
	// Query of the last operation, resolved by it.
	Query index.Query

	m      Blocks
	batch  rdma.Batch
	local  uint32
	size   int
	vbuf   uint32
	block  uint32
	id     uint32
	seq    uint64
	before func(*Client) // called between writing a block and linking it
}

// Blocks is where a client gets its record blocks.
type Blocks interface {
	View() *layout.View
	AllocBlock(c *rdma.Coro, class layout.Class) (layout.Addr, error)
	FreeBlock(a layout.Addr, class layout.Class)
}

// NewClient makes a client on a coroutine. Close it before the coroutine ends.
func (m *Memory) NewClient(c *rdma.Coro, ix index.Slots, table uint16) (*Client, error) {
	return NewClient(c, m, m.clients.Add(1), ix, table)
}

// NewClient makes a client with blocks from elsewhere; the coordinator is that of
// the versions that it writes.
func NewClient(c *rdma.Coro, m Blocks, coordinator uint32, ix index.Slots, table uint16) (*Client, error) {
	k := &Client{Index: ix, Table: table, C: c, m: m, id: coordinator}
	k.size = (ix.BufferSize() + 63) &^ 63
	at, err := c.Thread().Alloc(2*k.size + maxBlock)
	if err != nil {
		return nil, err
	}
	k.local, k.vbuf, k.block = at, at+uint32(k.size), at+uint32(2*k.size)
	return k, nil
}

// Close gives back the client's buffers.
func (k *Client) Close() { k.C.Thread().Free(k.local, 2*k.size+maxBlock) }

func (k *Client) coro() *rdma.Coro { return k.C }

func (k *Client) absent(key []byte) (bool, error) {
	a, _, err := k.Find(key)
	return a == 0, err
}

func (k *Client) nextID() record.TxID {
	k.seq++
	return record.MakeTxID(k.id, k.seq)
}

// newQuery makes a query with a buffer.
func (k *Client) newQuery(key []byte, local uint32) index.Query {
	return index.Query{Key: key, Hash: record.Hash(k.Table, key), Local: local, View: k.m.View()}
}

// Reuse gives the query another key, and leaves its view.
func (k *Client) Reuse(key []byte) {
	q := &k.Query
	q.Key, q.Hash, q.Local = key, record.Hash(k.Table, key), k.local
}

// Resolve looks the key up in the index.
func (k *Client) Resolve(key []byte) error {
	k.Reuse(key)
	q := &k.Query
	q.View = k.m.View()
	for {
		k.batch.Reset()
		k.Index.Search(&k.batch, q)
		if err := k.C.Do(&k.batch); err != nil {
			return err
		}
		if again, err := k.Index.Resolve(k.C, q); err != nil || !again {
			return err
		}
	}
}

// Unchanged repeats the lookup's READs and compares.
func (k *Client) Unchanged() (bool, error) {
	k.batch.Reset()
	k.Index.Validate(&k.batch, &k.Query, k.vbuf)
	if err := k.C.Do(&k.batch); err != nil {
		return false, err
	}
	return k.Index.Unchanged(&k.Query, k.vbuf), nil
}

// Find looks for the block of a key: its address, zero when the key is absent,
// and its image, which is valid until the next call. While somebody tries in vain
// to insert a key that has a record, there are two blocks of the key: a record
// counts more than a block without a value.
//
// That no candidate holds a value of the key is certain only when the lookup has
// been validated, with the versions of the candidates: a block that was freed may
// be used again at once, and the key may have moved.
func (k *Client) Find(key []byte) (layout.Addr, record.Image, error) {
	for range maxUnclear {
		if err := k.Resolve(key); err != nil {
			return 0, nil, err
		}
		pending, unclear := -1, false
		for i, b := range k.Query.Candidates {
			img, err := k.readBlock(b)
			if err != nil {
				return 0, nil, err
			}
			k.Query.Candidates[i].Version = img.Version()
			switch _, err := img.Check(b.Addr); {
			case err != nil || img.Meta().State() == record.Free:
				unclear = true
			case !bytes.Equal(img.Key(), key) || img.Meta().Table() != k.Table:
			case img.Meta().State() == record.Live:
				return b.Addr, img, nil
			default:
				pending = i
			}
		}
		if !unclear {
			same, err := true, error(nil)
			if len(k.Query.Candidates) > 0 {
				same, err = k.Unchanged()
			}
			if err != nil {
				return 0, nil, err
			} else if same && pending < 0 {
				return 0, nil, nil
			} else if same {
				b := k.Query.Candidates[pending]
				img, err := k.readBlock(b)
				if err != nil {
					return 0, nil, err
				}
				if _, err := img.Check(b.Addr); err == nil && img.Version() == b.Version {
					return b.Addr, img, nil
				}
			}
		}
		k.C.Yield()
	}
	return 0, nil, ErrUnclear
}

// maxUnclear is how often Find looks again because something has changed.
const maxUnclear = 10_000

func (k *Client) readBlock(b index.Candidate) (record.Image, error) {
	if !k.Query.View.Valid(b.Addr) {
		return nil, fmt.Errorf("candidate %v is not valid in the query's view", b.Addr)
	}
	n := min(b.Class.Size(), maxBlock)
	k.batch.Reset()
	k.batch.Read(k.Query.View.At(b.Addr, 0), k.block, n)
	if err := k.C.Do(&k.batch); err != nil {
		return nil, err
	}
	return record.Image(k.C.Thread().Bytes(k.block, n)), nil
}

// Get returns a copy of the key's value, nil if there is no record.
func (k *Client) Get(key []byte) ([]byte, error) {
	a, img, err := k.Find(key)
	if err != nil || a == 0 || img.Meta().State() != record.Live {
		return nil, err
	}
	return append([]byte{}, img.Value()...), nil
}

// NewBlock writes a block with the key on all copies: locked by id, and absent,
// unless value is given.
func (k *Client) NewBlock(id record.TxID, key, value []byte) (layout.Addr, layout.Class, error) {
	class, ok := record.ClassFor(len(key), len(value))
	if !ok || class.Size() > maxBlock {
		return 0, 0, fmt.Errorf("a block for %d + %d bytes is too large for this test", len(key), len(value))
	}
	a, err := k.m.AllocBlock(k.C, class)
	if err != nil {
		return 0, 0, err
	}
	state := record.Absent
	if value != nil {
		state = record.Live
	}
	return a, class, k.write(a, id, state, class, id, key, value)
}

// write writes a block on all copies. A block of several lines is written under
// the lock before the lock is released, since its lines arrive in any order.
func (k *Client) write(a layout.Addr, v record.TxID, state record.State, class layout.Class, lock record.TxID, key,
	value []byte) error {
	img := record.Image(k.C.Thread().Bytes(k.block, maxBlock))
	n := uint32(img.Put(a, v, state, k.Table, class, lock, key, value))
	if lock != 0 || n == record.LineSize {
		return k.place(a, 0, n)
	}
	img.SetGuard(record.HeldBy(v))
	if err := k.place(a, 0, n); err != nil {
		return err
	}
	img.SetGuard(record.FreeAt(v))
	return k.place(a, record.GuardOff, 8)
}

// place writes n bytes of the block buffer at an offset to all copies.
func (k *Client) place(a layout.Addr, off, n uint32) error {
	view := k.m.View()
	k.batch.Reset()
	for i := range view.Copies(a) {
		at := view.At(a, i)
		at.Off += uint64(off)
		k.batch.Write(at, k.block+off, n)
	}
	if err := k.C.Do(&k.batch); err != nil {
		return err
	}
	return k.C.Fence(rdma.FenceThread, 0, &k.batch)
}

// Insert makes a record, or returns ErrExists, or index.ErrDuplicate when another
// client is inserting the key.
func (k *Client) Insert(key, value []byte) (layout.Addr, error) {
	a, img, err := k.Find(key)
	switch {
	case err != nil:
		return 0, err
	case a != 0 && img.Meta().State() == record.Absent:
		return a, index.ErrDuplicate
	case a != 0:
		return a, ErrExists
	}
	id := k.nextID()
	a, class, err := k.NewBlock(id, key, nil)
	if err != nil {
		return 0, err
	}
	if k.before != nil {
		k.before(k)
	}
	if err := k.Index.Insert(k.C, &k.Query, a, class); err != nil {
		if errors.Is(err, index.ErrDuplicate) {
			err = errors.Join(err, k.free(a, id, class))
		}
		return 0, err
	}
	need, _ := record.ClassFor(len(key), len(value))
	if need > class {
		return k.grow(key, value, held{a, class, nil, id})
	}
	return a, k.write(a, id, record.Live, class, 0, key, value)
}

// held is a record that a client has locked.
type held struct {
	addr  layout.Addr
	class layout.Class
	value []byte
	id    record.TxID
}

// lock locks the record of a key.
func (k *Client) lock(key []byte) (held, error) {
	a, img, err := k.Find(key)
	switch {
	case err != nil:
		return held{}, err
	case a == 0 || img.Meta().State() != record.Live:
		return held{}, ErrNotFound
	case img.Guard().Held():
		return held{}, ErrLocked
	}
	h := held{a, img.Meta().Class(), append([]byte{}, img.Value()...), k.nextID()}
	free := uint64(record.FreeAt(img.Version()))
	g := k.Query.View.At(a, 0)
	g.Off += record.GuardOff
	k.batch.Reset()
	i := k.batch.CAS(g, free, uint64(record.HeldBy(h.id)))
	if err := k.C.Do(&k.batch); err != nil {
		return held{}, err
	}
	if k.batch.Result(i) != free {
		return held{}, ErrLocked
	}
	return h, nil
}

// Delete removes a record.
func (k *Client) Delete(key []byte) error {
	h, err := k.lock(key)
	if err != nil {
		return err
	}
	if err := k.Index.Remove(k.C, &k.Query, h.addr); err != nil {
		return err
	}
	return k.free(h.addr, h.id, h.class)
}

// Move puts a record into another block.
func (k *Client) Move(key []byte) error {
	h, err := k.lock(key)
	if err != nil {
		return err
	}
	_, err = k.grow(key, h.value, h)
	return err
}

// grow moves the record that is locked to a new block with the value.
func (k *Client) grow(key, value []byte, h held) (layout.Addr, error) {
	to, class, err := k.NewBlock(h.id, key, value)
	if err != nil {
		return 0, err
	}
	if err := k.Index.Replace(k.C, &k.Query, h.addr, to, class); err != nil {
		return 0, err
	}
	if err := k.write(to, h.id, record.Live, class, 0, key, value); err != nil {
		return 0, err
	}
	return to, k.free(h.addr, h.id, h.class)
}

// free wipes a block that was unlinked, and gives it back.
func (k *Client) free(a layout.Addr, id record.TxID, class layout.Class) error {
	if err := k.write(a, id, record.Free, class, 0, nil, nil); err != nil {
		return err
	}
	k.m.FreeBlock(a, class)
	return nil
}
