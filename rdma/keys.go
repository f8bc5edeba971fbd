package rdma

import (
	"iter"
	"slices"
)

// MaxKeys is how many access keys open a blade's region at most.
const MaxKeys = 8

// Keys are the access keys that open a blade's region at present, in the order in which they
// were granted: what an implementation of Fabric keeps of each blade, and the rules of
// Fabric.Grant and Fabric.Revoke. A copy of it is a snapshot. It is not safe for concurrent
// use.
type Keys struct {
	open  [MaxKeys]Key // the first n, the oldest first; the rest is 0
	n     int
	first Key    // that of NewKeys
	seed  uint32 // of the others
	count uint32 // of them, so far
}

// NewKeys grants the first key of a blade: first, or one that is drawn from seed if first is 0.
// All later ones are drawn from seed.
func NewKeys(first Key, seed uint64) Keys {
	k := Keys{first: first, seed: uint32(seed ^ seed>>32)}
	if k.open[0], k.n = first, 1; first == 0 {
		k.open[0] = k.draw()
	}
	return k
}

// Grant adds a key that the blade has never had, and returns it. Beyond MaxKeys it takes the
// place of the oldest one but the first in order.
func (k *Keys) Grant() Key {
	if k.n == MaxKeys {
		copy(k.open[1:], k.open[2:])
		k.n--
	}
	key := k.draw()
	k.open[k.n] = key
	k.n++
	return key
}

// Revoke ends the keys that were granted earlier than before, and reports whether before is
// open. If not, it changes nothing.
func (k *Keys) Revoke(before Key) bool {
	for i, open := range k.open[:k.n] {
		if open == before {
			copy(k.open[:], k.open[i:k.n])
			k.n -= i
			clear(k.open[k.n:])
			return true
		}
	}
	return false
}

// Renew is for a blade that begins anew: it ends all keys, and grants one.
func (k *Keys) Renew() Key {
	clear(k.open[:])
	k.n = 0
	return k.Grant()
}

// Oldest is the first of the keys in order: that which the last Revoke has named, or the first
// of the incarnation.
func (k *Keys) Oldest() Key { return k.open[0] }

// All are the keys, the oldest first.
func (k *Keys) All() iter.Seq[Key] { return slices.Values(k.open[:k.n]) }

// Opens reports whether a key opens the region.
func (k *Keys) Opens(key Key) bool { return key == k.open[0] || key != 0 && k.later(key) }

func (k *Keys) later(key Key) bool {
	for _, open := range k.open[1:] {
		if open == key {
			return true
		}
	}
	return false
}

// draw is a key that was not drawn before, in 2^32 of them: a bijection of their number.
func (k *Keys) draw() Key {
	for {
		k.count++
		z := k.seed + k.count
		z = (z ^ z>>16) * 0x7feb352d
		z = (z ^ z>>15) * 0x846ca68b
		if z ^= z >> 16; z != 0 && Key(z) != k.first {
			return Key(z)
		}
	}
}
