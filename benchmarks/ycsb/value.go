package ycsb

import (
	"encoding/binary"

	"txnode/benchmarks/workload"
)

// A value is a word and filling:
//
//	0 word, 8, little endian | 8 filling: 8 bytes each of Scatter(word^key), Scatter of that, ...
//
// A read-modify-write adds one to the word, an update draws another one. So a value tells whether
// it is whole and whose it is.

// word returns the word of a value.
func word(value []byte) uint64 { return binary.LittleEndian.Uint64(value) }

// fill makes the value of a key with that word.
func fill(value []byte, key, word uint64) {
	binary.LittleEndian.PutUint64(value, word)
	x := word ^ key
	for at := 8; at < len(value); at += 8 {
		x = workload.Scatter(x)
		if at+8 <= len(value) {
			binary.LittleEndian.PutUint64(value[at:], x)
			continue
		}
		for i := at; i < len(value); i++ {
			value[i] = byte(x >> (8 * (i - at)))
		}
	}
}

// whole reports whether a value is one of its key. It compares all of it.
func whole(value []byte, key uint64) bool {
	x := word(value) ^ key
	for at := 8; at < len(value); at += 8 {
		x = workload.Scatter(x)
		if at+8 <= len(value) {
			if binary.LittleEndian.Uint64(value[at:]) != x {
				return false
			}
			continue
		}
		for i := at; i < len(value); i++ {
			if value[i] != byte(x>>(8*(i-at))) {
				return false
			}
		}
	}
	return true
}

// likely is whole for the first bytes of the filling alone.
func likely(value []byte, key uint64) bool { return whole(value[:min(len(value), 16)], key) }
