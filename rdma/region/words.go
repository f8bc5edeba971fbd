package region

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"txnode/rdma"
)

// words are what lanes look at before they access a region, and what changes of keys change: the
// control words. They lie in the process that has the region, or in memory that others map.
//
//	 0  oldest       the oldest key, which nearly all requests carry; with keyStopped, none does
//	 8  incarnation  BladeInfo.Incarnation
//	16  doubtful     1: a flush has failed
//	24  -            8 bytes, zero
//	32  slots        MaxKeys keys that open the region, or 0, a word each
//
// A key stays in its slot until it ends. So a reader that looks at the slots one by one cannot miss
// one that is open all the time.
type words struct {
	oldest      atomic.Uint64
	incarnation atomic.Uint64
	doubtful    atomic.Uint64
	_           uint64
	slots       [rdma.MaxKeys]atomic.Uint64
	_           [4]uint64 // to 128 bytes
}

// WordsSize is how many bytes the control words of a region take, a multiple of the cache line.
const WordsSize = 128

var (
	_ [WordsSize - unsafe.Sizeof(words{})]byte
	_ [unsafe.Sizeof(words{}) - WordsSize]byte
)

// keyStopped in the oldest key: the blade is stopped. No request can carry it.
const keyStopped = 1 << 32

// wordsIn are the words in memory that others map; nil: new ones.
func wordsIn(mem []byte) (*words, error) {
	if mem == nil {
		return new(words), nil
	}
	if len(mem) != WordsSize || uintptr(unsafe.Pointer(&mem[0]))%64 != 0 {
		return nil, errors.New("rdma: the control words of a region are a piece of memory of WordsSize bytes, at a " +
			"multiple of 64")
	}
	return (*words)(unsafe.Pointer(&mem[0])), nil
}

func (w *words) stopped() bool { return w.oldest.Load()&keyStopped != 0 }

// stop lets no more verbs in.
func (w *words) stop() { w.oldest.Or(keyStopped) }

// opens reports whether a key is in a slot.
func (w *words) opens(k rdma.Key) bool {
	for i := range w.slots {
		if w.slots[i].Load() == uint64(k) {
			return k != 0
		}
	}
	return false
}

// publish has the slots say which keys open the region: first those end that are none of k, then
// those that are new get a slot.
func (w *words) publish(k *rdma.Keys) {
	for i := range w.slots {
		if had := w.slots[i].Load(); had != 0 && !k.Opens(rdma.Key(had)) {
			w.slots[i].Store(0)
		}
	}
	for key := range k.All() {
		for i := 0; i < len(w.slots) && !w.opens(key); i++ {
			w.slots[i].CompareAndSwap(0, uint64(key))
		}
	}
}

// setOldest makes k the oldest key, and reports whether it has: not if the region is stopped,
// by whichever process.
func (w *words) setOldest(k rdma.Key) bool {
	for {
		was := w.oldest.Load()
		if was&keyStopped != 0 {
			return false
		}
		if w.oldest.CompareAndSwap(was, uint64(k)) {
			return true
		}
	}
}

// Stop lets no more verbs into the region of which these are the control words. It does not wait
// for those that are under way: Lines.Settle does.
func Stop(mem []byte) {
	if w, err := wordsIn(mem); err == nil {
		w.stop()
	}
}
