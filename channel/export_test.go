package channel

import (
	"errors"
	"fmt"

	"txnode/rdma"
)

// Image is a slot with a value of a fixed size, as a member with that number writes it.
func Image(version uint64, owner MemberID, payload []byte) []byte {
	buf := make([]byte, slotBytes(uint32(len(payload))))
	copy(buf[16:], payload)
	images{size: uint32(len(payload))}.put(buf, version, owner)
	return buf
}

// Home is the bucket of a key.
func (v *KV[K, V]) Home(k K) int {
	v.aim(k)
	return int(v.home)
}

// Unwritten is where the payload of the first image of the key's bucket lies, from the
// start of the object.
func (v *KV[K, V]) Unwritten(k K) uint64 { return uint64(v.node(uint32(v.Home(k))) + v.slot + 16) }

// Audit reads all of a map that no member changes, and returns how many keys it has, and how many
// blocks are in use. No guard is held, unless by a member in dead, each key is in its bucket once,
// and a block has an owner if it is in the chain of that bucket. Blocks of buckets whose guards
// dead members hold, or have left abandoned, may be out of their chains.
func (v *KV[K, V]) Audit(c *rdma.Coro) (keys, used int, err error) {
	read := func(off uint32) uint64 {
		v.b.Reset()
		v.b.Read(v.addr(off), v.buf, 8)
		err = errors.Join(err, v.m.Do(c, &v.b))
		return v.m.t.Word(v.buf)
	}
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	linked := map[uint32]uint32{}
	seen := map[string]bool{}
	for home := range v.buckets {
		if w := read(kvGuards + 8*home); w&(memberMask|abandoned) != 0 {
			fail("bucket %d: the guard is %#x", home, w)
		}
		for number, first := home, true; ; first = false {
			p, e := v.look(c, number)
			if e != nil {
				return 0, 0, e
			}
			if h := half(p, kvHome); h != home+1 && !(first && h == 0) {
				fail("bucket %d: node %d is of bucket %d", home, number, int(h)-1)
			}
			present := word(p, kvPresent)
			if !first && present == 0 {
				fail("bucket %d: block %d is empty", home, number-v.buckets)
			}
			for i := range v.entries {
				if present>>i&1 == 0 {
					continue
				}
				key := string(p[v.at(i) : v.at(i)+uint32(v.keys.Size)])
				if seen[key] {
					fail("bucket %d: key %x twice", home, key)
				}
				seen[key] = true
				if v.Home(v.keys.Get([]byte(key))) != int(home) {
					fail("bucket %d: key %x is of bucket %d", home, key, v.home)
				}
			}
			next := half(p, kvNext)
			if next == 0 {
				break
			}
			if linked[next-1] != 0 {
				fail("block %d is linked twice", next-1)
				break
			}
			linked[next-1] = home + 1
			number = v.block(next - 1)
		}
	}
	for block := range v.blocks {
		owner := read(v.owners + 8*block)
		if uint64(linked[block]) != owner {
			fail("block %d belongs to bucket %d, and is in the chain of bucket %d",
				block, int(owner)-1, int(linked[block])-1)
		}
	}
	return len(seen), len(linked), err
}

// SetCount has a mutex that is free count on from a token.
func (l *Mutex) SetCount(c *rdma.Coro, count uint64) error {
	l.m.t.PutWord(l.buf, count)
	l.b.Reset()
	l.stageWrite(&l.b, mutexWord, l.buf, 8)
	return l.m.Do(c, &l.b)
}

// MaxCount is the greatest count of a token.
const MaxCount = maxCount
