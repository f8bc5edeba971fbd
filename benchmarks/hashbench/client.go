package hashbench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// errLost: a key that was loaded is not found, or two blocks have it. The index is
// wrong, or this client is.
var errLost = errors.New("hashbench: a loaded key is not where the index says")

// client does single-key operations. It belongs to one coroutine.
type client struct {
	w      *world
	c      *rdma.Coro
	blocks *memory.Allocator
	query  index.Query
	batch  rdma.Batch
	local  uint32 // arena: the query's buffer, the image to write, blocks that are read
	size   int
	image  uint32
	read   uint32
	spare  layout.Addr // a block that no slot points to; 0: none
	id     uint32
	seq    uint64
	key    [8]byte
	value  [8]byte
}

// maxRead is how many candidates are looked at: all slots of two sub-tables.
const maxRead = 56

func newClient(w *world, c *rdma.Coro, blocks *memory.Allocator) (*client, error) {
	t := c.Thread()
	k := &client{w: w, c: c, blocks: blocks, id: uint32(t.Index()*64+c.ID()) + 1}
	k.size = (w.index.BufferSize()+63)&^63 + (1+maxRead)*record.LineSize
	at, err := t.Alloc(k.size)
	if err != nil {
		return nil, err
	}
	k.local = at
	k.read = at + uint32(k.size) - maxRead*record.LineSize
	k.image = k.read - record.LineSize
	k.query.Local = k.local
	return k, nil
}

func (k *client) close() {
	if k.spare != 0 {
		k.blocks.Free(k.spare, recordClass)
	}
	k.c.Thread().Free(k.local, k.size)
}

// aim points the query at a key.
func (k *client) aim(key uint64) {
	k.query.Key = putKey(k.key[:], key)
	k.query.Hash = record.Hash(tableID, k.query.Key)
	k.query.View = k.w.space.View()
}

// seal makes the image of the record for the spare block.
func (k *client) seal(value uint64) error {
	if k.spare == 0 {
		a, err := k.blocks.Alloc(k.c, recordClass)
		if err != nil {
			return err
		}
		k.spare = a
	}
	k.seq++
	binary.LittleEndian.PutUint64(k.value[:], value)
	img := record.Image(k.c.Thread().Bytes(k.image, record.LineSize))
	img.Put(k.spare, record.MakeTxID(k.id, k.seq), record.Live, tableID, recordClass, 0, k.key[:], k.value[:])
	return nil
}

// resolve looks the key up until the index is sure. With write, the sealed image goes
// to the spare block in the doorbell of the first READs.
func (k *client) resolve(write bool) error {
	for {
		k.batch.Reset()
		if write {
			// The view of the query may be older than the block's segment.
			k.query.View = k.w.space.View()
			k.batch.Write(k.query.View.At(k.spare, 0), k.image, record.LineSize)
			write = false
		}
		k.w.index.Search(&k.batch, &k.query)
		if err := k.c.Do(&k.batch); err != nil {
			return err
		}
		again, err := k.w.index.Resolve(k.c, &k.query)
		if err != nil || !again {
			return err
		}
	}
}

// find reads the candidates, and returns the one with the key. ok is false when none
// has it: it has moved to another block since the buckets were read.
func (k *client) find() (found index.Candidate, value uint64, ok bool, err error) {
	n := min(len(k.query.Candidates), maxRead)
	if n == 0 {
		return found, 0, false, nil
	}
	k.batch.Reset()
	for i, x := range k.query.Candidates[:n] {
		k.batch.Read(k.query.View.At(x.Addr, 0), k.read+uint32(i)*record.LineSize, record.LineSize)
	}
	if err := k.c.Do(&k.batch); err != nil {
		return found, 0, false, err
	}
	for i, x := range k.query.Candidates[:n] {
		img := record.Image(k.c.Thread().Bytes(k.read+uint32(i)*record.LineSize, record.LineSize))
		if _, err := img.Check(x.Addr); err == nil && img.Meta().State() == record.Live &&
			bytes.Equal(img.Key(), k.key[:]) {
			return x, binary.LittleEndian.Uint64(img.Value()), true, nil
		}
	}
	return found, 0, false, nil
}

// mostLooks bounds how often a key is looked up that must be there.
const mostLooks = 1 << 16

// lookup returns the value of a key that is there.
func (k *client) lookup(key uint64) (uint64, error) {
	k.aim(key)
	for range mostLooks {
		if err := k.resolve(false); err != nil {
			return 0, err
		}
		_, v, ok, err := k.find()
		if ok || err != nil {
			return v, err
		}
	}
	return 0, fmt.Errorf("%w: key %#x", errLost, key)
}

// update sets the value of a key that is there, and returns how often the CAS of the
// slot has failed. No key is ever removed, so a single candidate is the key's own,
// whatever block it is by now: only the first attempt reads it, unless SMART's program
// is to be followed, which reads it each time, but writes the new block only once.
func (k *client) update(key, value uint64) (retries int, err error) {
	k.aim(key)
	k.c.BeginOp()
	defer k.c.EndOp()
	if err := k.seal(value); err != nil {
		return 0, err
	}
	for look := range mostLooks {
		first := look == 0
		if err := k.resolve(first || !k.w.like); err != nil {
			return retries, err
		}
		var old index.Candidate
		if !first && !k.w.like && len(k.query.Candidates) == 1 {
			old = k.query.Candidates[0]
		} else {
			var ok bool
			old, _, ok, err = k.find()
			if err != nil {
				return retries, err
			}
			if !ok {
				continue // it was replaced between the READs
			}
		}
		ok, err := k.w.index.TryReplace(k.c, &k.query, old.Addr, k.spare, recordClass)
		if err != nil {
			return retries, err
		}
		if ok {
			k.blocks.Used(k.spare)
			k.blocks.Hold(old.Addr)
			k.spare = old.Addr
			return retries, nil
		}
		retries++
		k.w.failed[k.c.Thread().Index()]++
		k.c.Backoff()
	}
	return retries, fmt.Errorf("%w: key %#x", errLost, key)
}

// insert links a new key.
func (k *client) insert(key, value uint64) error {
	k.aim(key)
	if err := k.seal(value); err != nil {
		return err
	}
	if err := k.resolve(true); err != nil {
		return err
	}
	if err := k.w.index.Insert(k.c, &k.query, k.spare, recordClass); err != nil {
		return err
	}
	k.blocks.Used(k.spare)
	k.spare = 0
	return nil
}
