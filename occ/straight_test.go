package occ_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
)

// TestStraight runs the same transactions, drawn at random, with and without the
// straight path: every byte on the blades and every count of verbs is the same.
func TestStraight(t *testing.T) {
	raced.Skip(t)
	for _, c := range []struct{ blades, backups int }{{2, 1}, {5, 1}, {4, 2}, {3, 0}} {
		t.Run(fmt.Sprintf("%d blades, %d backups", c.blades, c.backups), func(t *testing.T) {
			testStraight(t, c.blades, c.backups)
		})
	}
}

func testStraight(t *testing.T, blades, backups int) {
	run := func(roundabout bool) (contents [][]byte, phases [occ.NumPhases]rdma.Counters) {
		b := newBed(t, blades, backups, occ.Options{})
		s, tx := b.session()
		if roundabout {
			s.Roundabout()
		}
		r := rand.New(rand.NewPCG(7, 1))
		number := func(k int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(k))) }
		for k := range 64 { // inserted one after the other: their addresses come from a run
			must(t, b.do(tx, put(number(k), "v")))
		}
		built := 0
		for i := range 800 {
			var ops []op
			for range 1 + r.IntN(4) {
				k := fmt.Sprintf("key%05d", r.IntN(12)) // 8 bytes
				if r.IntN(3) > 0 {
					k = number(r.IntN(12))
				}
				v := "a value that is as long as it can be"[:r.IntN(25)]
				if r.IntN(20) == 0 {
					v += "; and some values need a second line" // their records move
				}
				switch r.IntN(8) {
				case 0, 1:
					ops = append(ops, get(k))
				case 2:
					ops = append(ops, lock(k))
				case 3:
					ops = append(ops, lazyPut(k, v))
				case 4:
					ops = append(ops, del(k))
				default:
					ops = append(ops, put(k, v))
				}
			}
			if i%2 == 0 {
				must(t, b.do(tx, ops...))
				continue
			}
			must(t, tx.Begin())
			for _, o := range ops {
				_, err := tx.Stage(b.table, []byte(o.key), o.update)
				must(t, err)
				built = max(built, tx.Built())
				if i%20 == 1 {
					must(t, tx.Certify()) // takes the batch
				}
			}
			if i%8 == 3 {
				for _, o := range ops { // in two steps, and some for update after all
					_, err := tx.Stage(b.table, []byte(o.key), r.IntN(2) == 0)
					must(t, err)
				}
			}
			if i%16 == 5 {
				must(t, tx.Execute())
				_, err := tx.Stage(b.table, []byte(number(12+r.IntN(3))), true)
				must(t, err)
			}
			must(t, tx.Execute())
			for _, o := range ops {
				if o.put != nil { // as package txn does
					at := r.IntN(6) // the number of its item, or of another one, or of none
					if len(o.key) != 8 ||
						!tx.PutAt(at, b.table, binary.LittleEndian.Uint64([]byte(o.key)), []byte(*o.put)) {
						must(t, tx.Set(b.table, []byte(o.key), []byte(*o.put)))
					}
				}
			}
			must(t, tx.Commit())
		}
		if (built < 3) != roundabout {
			t.Errorf("requests of up to %d items were built when they were staged", built)
		}
		return b.blades(), *tx.Phases()
	}
	straight, counts := run(false)
	general, want := run(true)
	alike(t, straight, general, counts, want)
}

// alike fails unless two runs of the same transactions have left the same bytes on the
// blades, and posted the same verbs.
func alike(t *testing.T, blades, others [][]byte, verbs, those [occ.NumPhases]rdma.Counters) {
	t.Helper()
	for k := range blades {
		if !bytes.Equal(blades[k], others[k]) {
			at := 0
			for blades[k][at] == others[k][at] {
				at++
			}
			t.Errorf("blade %d differs at %#x, first", k, at+layout.HeaderArea)
		}
	}
	if verbs != those {
		t.Errorf("verbs by phase %+v\nin the other run %+v", verbs, those)
	}
}

// blades reads what is on the blades, as far as it is used here.
func (b *bed) blades() [][]byte {
	out := make([][]byte, b.space.View().Blades())
	const size, chunk = 12 << 20, 1 << 20
	at, err := b.ctl.Alloc(chunk)
	if err != nil {
		b.t.Fatal(err)
	}
	defer b.ctl.Free(at, chunk)
	var batch rdma.Batch
	for k := range out {
		id := rdma.BladeID(k)
		for off := uint64(layout.HeaderArea); off < size; off += chunk { // the header has a uuid
			batch.Reset()
			batch.Read(rdma.RemoteAddr{Blade: id, Key: b.space.View().Key(id), Off: off}, at, chunk)
			if err := b.ctl.Plain().Do(&batch); err != nil {
				b.t.Fatal(err)
			}
			out[k] = append(out[k], b.ctl.Bytes(at, chunk)...)
		}
	}
	return out
}
