package recovery

import (
	"errors"
	"testing"

	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
)

// TestLines: of the lines of a log area only those that begin with a record of the coordinator cost
// memory. An area of 4 MiB has 65,536 lines, on each blade.
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
		record.Image(buf[at:at+size]).Put(layout.MakeAddr(1, 0), tx, record.Live, 2, class, 0,
			[]byte("key"), make([]byte, 900))
		b.Set(buf, at, log.Update, layout.MakeAddr(1, 0), record.MakeTxID(coordinator, 1), 0, size)
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
	err := records(area, coordinator, known, fn)
	if err != nil || len(found) != 1 || found[0] != record.MakeTxID(coordinator, 3) {
		t.Errorf("found %v, %v", found, err)
	}
	allocs := testing.AllocsPerRun(3, func() {
		found = found[:0]
		err = records(area, coordinator, known, fn)
	})
	if err != nil || allocs > 16 { // of two records
		t.Errorf("%v allocations for %d lines, %v", allocs, len(area)/record.LineSize, err)
	}
}

// TestRecordOfOtherRelease: it is not passed over, since what it has committed would be lost. One
// of another coordinator is old.
func TestRecordOfOtherRelease(t *testing.T) {
	area := make([]byte, 1<<10)
	// redo, format 3, transaction 10 of coordinator 7
	copy(area[512:],
		"TXLG\x03\x01\x00\x00\x0a\x00\x00\x00\x00\x07\x00\x00"+
			"\x20\x00\x00\x00\x00\x00\x00\x00\xeb\xe0\xeb\x88\xa2\xd2\x3f\x9a")
	none := func(uint32) int { return 0 }
	fn := func(_ uint32, rec *log.Record) { t.Errorf("found %v", rec.Tx) }
	for coordinator := range uint32(9) {
		if err := records(area, coordinator, none, fn); errors.Is(err, log.ErrFormat) != (coordinator == 7) {
			t.Errorf("coordinator %d: %v", coordinator, err)
		}
	}
	area[512+8]++ // torn
	if err := records(area, 7, none, fn); err != nil {
		t.Errorf("torn: %v", err)
	}
}
