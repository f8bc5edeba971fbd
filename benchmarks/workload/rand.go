package workload

import "math/bits"

// Rand is a splittable pseudo-random number generator: SplitMix64 of Steele,
// Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014,
// figures 16 and 17). Equal seeds give equal sequences on every platform. It is
// a small value to embed in a client, not safe for concurrent use. The zero
// value is not useful; use [NewRand].
type Rand struct {
	state uint64
	gamma uint64 // odd
}

const goldenGamma = 0x9e3779b97f4a7c15

// NewRand returns the generator of a stream of a seed. Different streams of one
// seed, and equal streams of different seeds, are unrelated.
func NewRand(seed, stream uint64) Rand {
	return Rand{
		state: mix64(seed) ^ mix64variant(stream*goldenGamma+1),
		gamma: mixGamma(mix64(seed+goldenGamma) + stream*goldenGamma),
	}
}

// Split returns a generator that is unrelated to what r returns from now on.
func (r *Rand) Split() Rand {
	return Rand{state: r.Uint64(), gamma: mixGamma(r.next())}
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 { return mix64(r.next()) }

// Intn returns a number in [0, n) for 0 < n < 2^32. The deviation from uniform
// is less than n/2^64 (a multiplication instead of a division; no rejection).
func (r *Rand) Intn(n int) int {
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int(hi)
}

// IntnIf is Intn if take is 1. If it is 0, nothing is drawn, and what is returned means
// nothing. It is for draws of which nothing else foretells whether they are needed: it
// has no branch.
func (r *Rand) IntnIf(n int, take uint64) int {
	hi, _ := bits.Mul64(mix64(r.state+r.gamma), uint64(n))
	r.state += r.gamma & -take
	return int(hi)
}

// Bits32 returns 32 random bits.
func (r *Rand) Bits32() uint32 { return uint32(r.Uint64() >> 32) }

func (r *Rand) next() uint64 {
	r.state += r.gamma
	return r.state
}

func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func mix64variant(z uint64) uint64 {
	z = (z ^ z>>33) * 0xff51afd7ed558ccd
	z = (z ^ z>>33) * 0xc4ceb9fe1a85ec53
	return z ^ z>>33
}

// mixGamma returns an odd number with enough 01 and 10 pairs of bits to stir
// every bit of the state.
func mixGamma(z uint64) uint64 {
	z = mix64variant(z) | 1
	if bits.OnesCount64(z^z>>1) < 24 {
		z ^= 0xaaaaaaaaaaaaaaaa
	}
	return z
}

// Threshold converts a probability in [0, 1] for Rand.Chance.
func Threshold(p float64) uint64 {
	if p >= 1 {
		return 1 << 63
	}
	return uint64(p * (1 << 63))
}

// Chance returns true with the probability that Threshold was given.
func (r *Rand) Chance(threshold uint64) bool { return r.Uint64()>>1 < threshold }
