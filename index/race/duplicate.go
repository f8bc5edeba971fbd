package race

import (
	"bytes"
	"slices"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// verdict is what an inserter makes of the other slots with its fingerprint.
type verdict uint8

const (
	unique    verdict = iota // none of them has the key
	loses                    // one of them has it, and stays
	undecided                // one may have it, and may go: look again
	likely                   // none seems to have it: look again to be sure
)

// maxPolls is how often an inserter looks again before it gives in: for about a
// millisecond.
const maxPolls = 16

// keyState is what a block says about a key.
type keyState uint8

const (
	keyOther   keyState = iota // it holds another key
	keyStays                   // it is a record of the key
	keyPending                 // it holds the key, but no value yet, and is locked: an insert in progress
	keyUnclear                 // it is free, or of another table: its slot must be about to change
)

// judge reads the blocks of the slots other than own, and compares their keys.
//
// A block that is linked keeps its key, whatever else is being written to it, so
// that it holds the key is seen from any image. That it does not is another
// matter: the key's record may have been moved to another block, and this one
// wiped or used again, since the slot was read. So a block counts as another
// key's when it was seen to be so before and after a lookup that found its slot
// unchanged, with the same version, which no two images share: then it was so
// at the time of that lookup. s.others is what was seen before.
func (ix *Index) judge(c *rdma.Coro, s *scratch, q *index.Query, m []found, own *found) (verdict, error) {
	t := c.Thread()
	each := keyBytes(len(q.Key))
	size := len(m) * int(each)
	buf, err := t.Alloc(size)
	if err != nil {
		return loses, err
	}
	defer t.Free(buf, size)
	s.batch.Reset()
	for i := range m {
		if a := m[i].value.Addr(); a != own.value.Addr() {
			s.batch.Read(q.View.At(a, 0), buf+uint32(i)*each, min(each, m[i].value.Class().Size()))
		}
	}
	if err := c.Do(&s.batch); err != nil {
		return loses, err
	}
	v := unique
	s.unclear = 0
	for i := range m {
		if m[i].value.Addr() == own.value.Addr() {
			continue
		}
		img := record.Image(t.Bytes(buf+uint32(i)*each, min(each, m[i].value.Class().Size())))
		switch ix.keyIn(img, q.Key) {
		case keyOther:
			m[i].version = img.Version()
			if v == unique && !slices.Contains(s.others, m[i]) {
				v = likely
			}
		case keyStays:
			s.unclear = 0
			return loses, nil
		case keyPending:
			if s.unclear = 0; own.after(&m[i], q) {
				return loses, nil
			}
			v = undecided
		case keyUnclear:
			if v != undecided {
				s.unclear = m[i].value.Addr()
			}
			v = undecided
		}
	}
	return v, nil
}

// keyBytes is how much of a block is read to see whether it holds a key of n bytes.
func keyBytes(n int) uint32 {
	at := record.KeyAt(n)
	if at == record.KeyOff {
		return record.LineSize
	}
	return uint32(at+n+7) &^ 7
}

func (ix *Index) keyIn(img record.Image, key []byte) keyState {
	m := img.Meta()
	at := record.KeyAt(len(key))
	switch {
	case m.State() != record.Live && m.State() != record.Absent || m.Table() != ix.geo.Table:
		return keyUnclear
	case m.KeyLen() != len(key):
		return keyOther
	case at+len(key) > len(img):
		return keyUnclear // a block too small for its key: not what the slot says
	case !bytes.Equal(img[at:at+len(key)], key):
		return keyOther
	case m.State() == record.Absent && img.Lock() != 0:
		return keyPending
	}
	return keyStays
}

// found is a slot with the key's fingerprint.
type found struct {
	line    int // in the query's buffer
	at      layout.Addr
	value   Slot
	version record.TxID // of the block, when it was seen to hold another key
}

// after orders the slots that a key can have, alike for everybody: by bucket
// number, then slot number (RACE, section 3.3). A sub-table and the one that is
// filled from it number their buckets alike; their addresses decide then.
func (f *found) after(o *found, q *index.Query) bool {
	a, b := f.at-tableOf(q, f.line), o.at-tableOf(q, o.line)
	if a != b {
		return a > b
	}
	return f.at > o.at
}

// tableOf is the sub-table of a line of a query's buffer.
func tableOf(q *index.Query, line int) layout.Addr {
	if line >= queryLines {
		return layout.Addr(q.State[stSecond])
	}
	return layout.Addr(q.State[stFirst])
}
