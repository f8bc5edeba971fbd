package check

import "txnode/history"

// version is what is known about one version of one key. Indices are of
// operations (of transactions that count) or -1.
//
// The entry of version zero of a key stands for the key's absence without trace, and three fields
// have another meaning in it: installer is the *index of the version* without installer (the
// initial one) or -1, successor heads the list of the operations that replaced zero, linked through
// checker.aux, and readers lists the absent reads.
type version struct {
	key       history.Key
	ver       history.Version
	installer int32
	successor int32
	readers   int32 // list of reads, linked through checker.aux
	flags     versionFlags
}

type versionFlags uint32

const (
	// flagBroken, on version zero: the chain of the key has a violation of its own, do not
	// reason about it further.
	flagBroken versionFlags = 1 << iota
	// flagListed, on version zero: the key is in checker.zeros.
	flagListed
	// flagRecord: a transaction read the version as present, perhaps a transaction that does not
	// count.
	flagRecord
	// flagPresent and flagAbsent, on an initial version: what its readers found.
	flagPresent
	flagAbsent
)

// versionTable maps (key, version) to a dense index by open addressing: slots
// hold 32 bits of the hash and the index plus one. 64-bit hashes that agree are told apart by
// the entry itself, so a slot costs 8 bytes and a probe rarely leaves the slot array.
type versionTable struct {
	slots []uint64
	all   []version
}

func newVersionTable(expected int) versionTable {
	n := 64
	for n < expected+expected/2 {
		n *= 2
	}
	return versionTable{slots: make([]uint64, n), all: make([]version, 0, expected)}
}

func hashVersion(k history.Key, v history.Version) uint64 {
	x := uint64(k)*0x9E3779B97F4A7C15 + uint64(v)
	x ^= x >> 32
	x *= 0xD6E8FEB86659FD93
	x ^= x >> 29
	x *= 0xD6E8FEB86659FD93
	return x ^ x>>32
}

// find returns the index of a version, or -1.
func (t *versionTable) find(k history.Key, v history.Version) int32 {
	h := hashVersion(k, v)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return -1
		}
		if s>>32 == h>>32 {
			if e := &t.all[uint32(s)-1]; e.key == k && e.ver == v {
				return int32(uint32(s) - 1)
			}
		}
	}
}

// intern returns the index of a version, making an entry if there is none.
func (t *versionTable) intern(k history.Key, v history.Version) int32 {
	if i := t.find(k, v); i >= 0 {
		return i
	}
	if (len(t.all)+1)*3 > len(t.slots)*2 {
		t.grow()
	}
	t.all = append(t.all, version{key: k, ver: v, installer: -1, successor: -1, readers: -1})
	t.insert(hashVersion(k, v), len(t.all))
	return int32(len(t.all) - 1)
}

func (t *versionTable) insert(h uint64, indexPlusOne int) {
	mask := uint64(len(t.slots) - 1)
	i := h & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = h>>32<<32 | uint64(indexPlusOne)
}

func (t *versionTable) grow() {
	t.slots = make([]uint64, 2*len(t.slots))
	for i := range t.all {
		t.insert(hashVersion(t.all[i].key, t.all[i].ver), i+1)
	}
}
