package channel

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"txnode/rdma"
)

// KV is a map that members share: LOCO's kvstore, with its index on the blade. All operations are
// linearizable. A reader takes no lock, and finds a whole value in one round trip. A member that
// dies in the middle of a change has made it or not.
//
//	operation                        verbs / round trips
//	Get                              READ of a bucket               1 / 1
//	Put, Insert, Update, Delete      CAS and READ, WRITE and CAS    4 / 2
//	of which nothing changes         CAS and READ, CAS              3 / 2
//	Hold                             CAS and READ                   2 / 1
//	StagePut, StageDelete            WRITE and CAS                  2 / those of the batch
//	a key in block k of its bucket   + k READs                      + k / k
//	the first key of a block         + READ, CAS, READ and WRITE    + 4 / 2
//	the last key of a block          + CAS                          + 1 / 0
//
// # Layout
//
// The header; at 64 the guards of buckets, a word each, as in Mutex; the owners of blocks, a word
// each; then the nodes: one for each bucket, and the blocks, which buckets take when they are full.
// Guards and owners are changed by atomics alone. A node is two images, as those of Owned:
//
//	 0   home      4, number of its bucket, plus 1
//	 4   next      4, number of the block that goes on, plus 1; 0: none
//	 8   present   8, a bit for each entry
//	16   entries   key and value, each padded to 8
//
// A change is made by the holder of the bucket's guard. It reads the bucket, and replaces one
// image: the WRITE of that image is the moment of the change, for readers and for a member that
// takes over. The guard is given back behind it in the same doorbell. So nothing has to be repaired
// after a dead holder, but blocks have to be found that it had taken and not linked, or unlinked
// and not given back: the owner of a block is the bucket, and a member that takes over a guard
// looks at all of them.
//
// # Blocks
//
// A block is linked behind its bucket's node, in front of the other blocks, when it holds its
// first key. It is unlinked when its last key is deleted, and given back then. A reader on its way
// along the blocks can meet one that was given back. If the block belongs to another bucket by
// now, its home says so, and the reader begins anew. Otherwise the reader goes on: entries do not
// move, and blocks keep their order, so each entry that is there all the time lies behind every
// block that is passed.
//
// # Why no index in the processes
//
// LOCO's members each have all keys in memory. An insert sends the place of the key to all of them,
// and waits for all. Here neither the cost of a change nor the memory of a member grows with the
// number of members, a member that joins has nothing to catch up with, and a member that stops is
// in the way of one bucket alone. A READ brings a bucket instead of an entry: see KVOptions.Bucket.
type KV[K, V any] struct {
	object
	keys   Codec[K]
	values Codec[V]
	kvLayout
	guard guard
	blank []byte // payload of a node that was never written
	key   []byte // of the operation
	home  uint32 // its bucket
	chain []kvNode
	n     int // of the chain, that belong to this operation
	found int // node that has the key, -1: none
	entry uint32
	empty int // node that has a free entry, -1: none
	room  uint32
	spare uint32 // block that was taken and is not linked, plus 1
	known uint64 // version of the spare block
	again []rdma.WR
}

// KVOptions are the measures of a KV, the same for all members.
type KVOptions struct {
	// Keys is how many keys there is room for, if they fall on buckets by chance; 0: 1024. Buckets
	// are 3/5 full then, and a third of them can have a block.
	Keys int
	// Bucket is how many entries a bucket has, at most 64; 0: as many as make an image of two
	// lines, at least 4. A READ brings them all, twice, and a WRITE once.
	Bucket int
}

const (
	defaultKVKeys = 1024
	maxKVEntries  = 64
	maxKVBytes    = 1 << 30

	kvGuards  = headerBytes
	kvHome    = 0
	kvNext    = 4
	kvPresent = 8
	kvEntries = 16

	ownersAtOnce = 64 // that are read by one READ
)

// kvLayout is where things lie in the object, and in the handle's part of the arena.
type kvLayout struct {
	buckets, blocks   uint32
	owners, nodes     uint32 // offsets
	entries           uint32 // of a node
	keySize, valSize  uint32 // padded
	payload, slot     uint32 // of an image
	both, last        uint32 // arena: both images of a node, and those of the READ before
	out, pool, locals uint32 // arena: two slots to write from, owners; the size of all that
}

// kvNode is a node of the bucket that is held.
type kvNode struct {
	number  uint32
	version uint64
	payload []byte
}

// layout computes the offsets for that many keys. ok is false if the object would be too large.
func (l *kvLayout) layout(keySize, valSize int, opts KVOptions) (ok bool) {
	keys := uint64(cmp.Or(opts.Keys, defaultKVKeys))
	l.keySize, l.valSize = align(uint32(keySize), 8), align(uint32(valSize), 8)
	entry := l.keySize + l.valSize
	l.entries = uint32(opts.Bucket)
	if l.entries == 0 {
		l.entries = max(4, (2*rdma.LineSize-24-kvEntries)/entry)
	}
	l.payload = kvEntries + l.entries*entry
	l.slot = slotBytes(l.payload)
	buckets := (5*keys + 3*uint64(l.entries) - 1) / (3 * uint64(l.entries))
	blocks := buckets/3 + 8
	if (buckets+blocks)*(2*uint64(l.slot)+8) > maxKVBytes {
		return false
	}
	l.buckets, l.blocks = uint32(buckets), uint32(blocks)
	l.owners = kvGuards + 8*l.buckets
	l.nodes = align(l.owners+8*l.blocks, rdma.LineSize)
	l.both, l.last = guardBytes, guardBytes+2*l.slot
	l.out = guardBytes + 4*l.slot
	l.pool = l.out + 2*l.slot
	l.locals = l.pool + 8*ownersAtOnce
	return true
}

func (l *kvLayout) node(number uint32) uint32  { return l.nodes + 2*l.slot*number }
func (l *kvLayout) block(number uint32) uint32 { return l.buckets + number }

// match returns the entry of a node that has the key, and one that is free; -1 if there is none.
func (l *kvLayout) match(payload, key []byte) (found, free int) {
	found, free = -1, -1
	present := word(payload, kvPresent)
	for i := range l.entries {
		switch at := l.at(i); {
		case present>>i&1 == 0:
			if free < 0 {
				free = int(i)
			}
		case bytes.Equal(payload[at:at+uint32(len(key))], key):
			found = int(i)
		}
	}
	return found, free
}

// at is the offset of an entry in a payload.
func (l *kvLayout) at(entry uint32) uint32 { return kvEntries + entry*(l.keySize+l.valSize) }

func half(b []byte, off uint32) uint32 { return uint32(word(b, off&^7) >> (off % 8 * 8)) }

func putHalf(b []byte, off, v uint32) {
	shift := off % 8 * 8
	putWord(b, off&^7, word(b, off&^7)&^(0xffffffff<<shift)|uint64(v)<<shift)
}

// OpenKV opens the map called name in s. Two keys are one if their codec encodes them alike.
// ErrTooLarge: an option that cannot be, or more than 1 GiB.
func OpenKV[K, V any](ctx context.Context, c *rdma.Coro, s Scope, name string, keys Codec[K], values Codec[V],
	opts KVOptions) (*KV[K, V], error) {
	full, err := s.name(name)
	if err != nil {
		return nil, err
	}
	if err := keys.check(); err != nil {
		return nil, err
	}
	if err := values.check(); err != nil {
		return nil, err
	}
	v := &KV[K, V]{keys: keys, values: values, key: make([]byte, keys.Size)}
	if opts.Keys < 0 || opts.Bucket < 0 || opts.Bucket > maxKVEntries || !v.layout(keys.Size, values.Size, opts) {
		return nil, fmt.Errorf("%w: %q for %d keys of %d and %d bytes, %d in a bucket: up to %d in a bucket, and 1 "+
			"GiB, are possible",
			ErrTooLarge, full, opts.Keys, keys.Size, values.Size, opts.Bucket, maxKVEntries)
	}
	spec := Spec{
		Kind:  KindKV,
		Codec: fmt.Sprintf("%s of %d bytes to %s, %d in a bucket", keys.Name, keys.Size, values.Name, v.entries),
		Size:  uint32(values.Size), Slots: v.buckets * v.entries,
		Bytes: v.nodes + 2*v.slot*(v.buckets+v.blocks),
	}
	if err := v.open(ctx, c, s.m, full, spec, v.locals); err != nil {
		return nil, err
	}
	v.blank = make([]byte, v.payload)
	v.guard = guard{o: &v.object, local: v.buf, to: v.buf + v.both, n: 2 * v.slot}
	return v, nil
}

// Size is how many keys the buckets hold, and how many all blocks hold beside them.
func (v *KV[K, V]) Size() (buckets, blocks int) {
	return int(v.buckets * v.entries), int(v.blocks * v.entries)
}

// aim sets the key of the operation.
func (v *KV[K, V]) aim(k K) {
	v.keys.Put(v.key, k)
	h := mix(sumBytes(sum(), v.key), uint64(len(v.key)))
	v.home = uint32(h >> 32 * uint64(v.buckets) >> 32)
}

// Get returns the value of a key. ok is false if there is none. ErrOwned: this handle holds a
// bucket, and Hold has told the value.
func (v *KV[K, V]) Get(c *rdma.Coro, k K) (value V, ok bool, err error) {
	if v.guard.held {
		return value, false, fmt.Errorf("%w: this handle of %q holds a bucket", ErrOwned, v.name)
	}
	v.aim(k)
	for range torn {
		payload, moved, err := v.search(c)
		if err != nil {
			return value, false, err
		}
		if moved {
			continue
		}
		if payload == nil {
			return value, false, nil
		}
		return v.values.Get(payload[:v.values.Size]), true, nil
	}
	return value, false, fmt.Errorf("%w: blocks of a bucket of %q", ErrTorn, v.name)
}

// search returns the bytes of the key's value, in the arena; nil: there is none. moved: a block on
// the way belongs to another bucket by now.
func (v *KV[K, V]) search(c *rdma.Coro) (value []byte, moved bool, err error) {
	for number := v.home; ; {
		payload, err := v.look(c, number)
		if err != nil {
			return nil, false, err
		}
		if number != v.home && half(payload, kvHome) != v.home+1 {
			return nil, true, nil
		}
		if i, _ := v.match(payload, v.key); i >= 0 {
			return payload[v.at(uint32(i))+v.keySize:], false, nil
		}
		next := half(payload, kvNext)
		if next == 0 {
			return nil, false, nil
		}
		number = v.block(next - 1)
	}
}

// payloadOf is that of an image. The bytes of a node that was never written, version 0, are not to
// be trusted: the first WRITE may be under way, or its member dead, and its last words missing.
func (v *KV[K, V]) payloadOf(x *image) []byte {
	if x.version == 0 {
		return v.blank
	}
	return x.payload
}

// look reads a node beside members that change it, and returns its newest payload.
func (v *KV[K, V]) look(c *rdma.Coro, number uint32) ([]byte, error) {
	g := images{size: v.payload}
	local, last := v.buf+v.both, v.buf+v.last
	var before []byte
	for i := range torn {
		if err := v.ready(); err != nil {
			return nil, err
		}
		v.b.Reset()
		v.b.Read(v.addr(v.node(number)), local, 2*v.slot)
		if err := v.m.Do(c, &v.b); err != nil {
			return nil, err
		}
		both := v.m.t.Bytes(local, 2*v.slot)
		if newest, ok, decided := g.pick(both, before); ok && decided {
			return v.payloadOf(&newest), nil
		}
		before = both
		local, last = last, local
		if i > 2 {
			c.Sleep(minPause)
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrTorn, v.name)
}
