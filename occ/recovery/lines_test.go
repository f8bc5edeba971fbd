package recovery

import (
	"testing"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/record"
)

// TestLines: of the lines of a log area only those that begin with a record of the coordinator cost memory. An area of 4 MiB has 65,536
// lines, on each blade.
func TestLines(t *testing.T) {
	const coordinator = 7
	area := make([]byte, 1<<20)
	for i := range area {
		area[i] = byte(i * 7)
	}
	class, _ := record.ClassFor(3, 900)
	add := func(off int, tx record.TxID) (length int) {
		var b log.Builder
		b.Reset()
		buf := area[off : off+4096]
		size := record.Size(3, 900)
		at := b.Add(buf, size)
		record.Image(buf[at:at+size]).Put(memory.MakeAddr(1, 0), tx, record.Live, 2, class, 0, []byte("key"), make([]byte, 900))
		b.Set(buf, at, log.Update, memory.MakeAddr(1, 0), record.MakeTxID(coordinator, 1), 0, size)
		return b.Finish(buf, log.Redo, tx, 0, 0)
	}
	again := add(64<<10, record.MakeTxID(coordinator, 2)) // which is known
	add(128<<10, record.MakeTxID(coordinator, 3))
	torn := add(256<<10, record.MakeTxID(coordinator, 4))
	area[256<<10+torn-1]++
	var found []record.TxID
	known := func(off uint32) int {
		if off == 64<<10 {
			return again
		}
		return 0
	}
	fn := func(_ uint32, rec *log.Record) { found = append(found, rec.Tx) }
	records(area, coordinator, known, fn)
	if len(found) != 1 || found[0] != record.MakeTxID(coordinator, 3) {
		t.Errorf("found %v", found)
	}
	allocs := testing.AllocsPerRun(3, func() {
		found = found[:0]
		records(area, coordinator, known, fn)
	})
	if allocs > 16 { // of two records
		t.Errorf("%v allocations for %d lines", allocs, len(area)/record.LineSize)
	}
}
