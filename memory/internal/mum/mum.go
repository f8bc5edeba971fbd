package mum

import (
	"encoding/binary"
	"math/bits"
)

const (
	seedMix = 0x9e3779b97f4a7c15
	mulMix  = 0xff51afd7ed558ccd
)

// Mix folds the product of two words into one.
func Mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

// Sum hashes bytes whose number is a multiple of 8; it equals record.Sum.
func Sum(seed uint64, p []byte) uint64 {
	h := seed ^ seedMix
	for len(p) >= 16 {
		h = Mix(binary.LittleEndian.Uint64(p)^h, binary.LittleEndian.Uint64(p[8:])^mulMix)
		p = p[16:]
	}
	if len(p) >= 8 {
		h = Mix(binary.LittleEndian.Uint64(p)^h, seedMix)
	}
	return Mix(h, mulMix)
}
