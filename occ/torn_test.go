package occ_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// TestTornBlockOfCachedAddress: a client that dies while it writes a placeholder leaves a
// torn header in a block that nobody has. Who remembers that block for a key that was
// deleted since looks the key up again. A record that is damaged is served from another copy, and
// said to be damaged if every copy is.
func TestTornBlockOfCachedAddress(t *testing.T) {
	for _, p := range policies {
		for _, long := range []string{"v", fmt.Sprintf("%200d", 1)} {
			for _, lock := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d bytes/lock=%v", p, len(long), lock), func(t *testing.T) {
					b := newBed(t, 2, 1, occ.Options{Policy: p, ReclaimAfter: 1})
					s, tx := b.session()
					must(t, b.do(tx, put("key", long), put("kept", long)))
					b.value(tx, "key")
					b.value(tx, "kept")
					ix := b.table.Index.(*mapIndex)
					gone, kept := ix.slots["key"].Addr, ix.slots["kept"].Addr

					mine := b.eng
					b.eng = occ.NewEngine(b.space, b.opts) // which has a cache of its own
					other, otx := b.session()
					b.eng = mine
					must(t, b.do(otx, del("key")))
					must(t, b.do(otx, put("x", "1"), del("x")))
					_, err := other.MakeRoom(otx.Coro())
					must(t, err)
					if _, ok := ix.slots["key"]; ok {
						t.Fatal("the block was not reclaimed")
					}

					buf, err := b.ctl.Alloc(8)
					must(t, err)
					defer b.ctl.Free(buf, 8)
					tear := func(k int, off uint64, word uint64) (was uint64) {
						at := b.space.View().At(gone, k)
						at.Off += off
						var batch rdma.Batch
						batch.Read(at, buf, 8)
						must(t, b.ctl.Plain().Do(&batch))
						was = b.ctl.Word(buf)
						b.ctl.PutWord(buf, word)
						batch.Reset()
						batch.Write(at, buf, 8)
						must(t, b.ctl.Plain().Do(&batch))
						return was
					}
					version := tear(0, 0, uint64(record.MakeTxID(7, 7)))
					if err := b.do(tx, op{key: "key", update: lock}); err != nil {
						t.Errorf("a key that is absent: %v", err)
					}
					if v, ok := b.value(tx, "key"); ok {
						t.Errorf("a key that is absent is %q", v)
					}
					tear(0, 0, version)
					must(t, b.do(tx, put("key", long))) // the block may be used again

					gone = kept
					version = tear(0, 0, uint64(record.MakeTxID(7, 8)))
					if err = b.do(tx, op{key: "kept", update: lock}); err != nil {
						t.Errorf("a record that is damaged on its primary alone: %v", err)
					}
					tear(1, 0, uint64(record.MakeTxID(7, 9)))
					if err = b.do(tx, op{key: "kept", update: lock}); !errors.Is(err, occ.ErrCorrupt) &&
						!errors.Is(err, occ.ErrConflict) {
						t.Errorf("a record that is damaged: %v", err)
					}
					tear(0, 0, version)
					tear(1, 0, version)
					if v, _ := b.value(tx, "kept"); v != long {
						t.Errorf("%q", v)
					}
					must(t, s.Maintain(tx.Coro()))
				})
			}
		}
	}
}
