package verify

import (
	"bytes"
	"fmt"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A live record to which no leaf leads gets its entry back (link.go). A deleted record needs no entry,
// so its block is made free. So is a node to which nothing leads in a tree that is sound: a table
// whose creation was stopped leaves two.

// orphan is a block to which nothing leads: a record, or a node.
type orphan struct {
	finding Finding
	version txid
	state   record.State
	class   layout.Class
	table   uint16
	hash    uint64 // of a record's key
}

// maxOrphans bounds what is remembered of them.
const maxOrphans = 1 << 20

// orphaned reports a block in use to which nothing leads, and which is intact and unlocked. One
// that nothing needs is reported later, when all blocks are known. false: the copies tell different
// things, and none is to be written over.
func (w *walker) orphaned(b *block, m record.Meta) bool {
	img := b.copies[0]
	f := Finding{Kind: KindOrphan, Table: m.Table(), What: "no node leads to the block: " + describe(img)}
	if m.State() == record.Live {
		f.Kind, f.What = KindLink, "no leaf leads to the block: "+describe(img)
	}
	f = w.at(f, b.addr, 0)
	if w.filled(b, img, &f) { // the node that leads there is what its transaction publishes last
		return false
	}
	for k := 1; k < b.n; k++ {
		if b.copies[k] == nil {
			continue
		}
		if _, x := w.image(b, b.copies[k]); x == nil &&
			!bytes.Equal(b.copies[k][:record.LineSize], img[:record.LineSize]) {
			f.What += fmt.Sprintf("; copy %d has %v", k, describe(b.copies[k]))
			w.found(f)
			return false
		}
	}
	if len(w.orphans) >= maxOrphans {
		w.found(f)
		return true
	}
	o := orphan{finding: f, version: img.Version(), state: m.State(), class: b.class, table: m.Table()}
	if m.State() != record.Node {
		o.hash = record.Hash(m.Table(), img.Key())
	}
	w.orphans = append(w.orphans, o)
	return true
}

// settleOrphans links the live records among the orphans, and makes the blocks of others free.
func (w *walker) settleOrphans() {
	of := map[uint64]int{} // blocks of a key
	for i := range w.orphans {
		of[w.orphans[i].hash]++
	}
	for i := range w.orphans {
		if w.stopped() {
			return
		}
		o := &w.orphans[i]
		if o.state == record.Live {
			w.restoreEntry(o, of[o.hash] == 1)
			continue
		}
		if len(w.l.Coordinators) > 0 || w.unswept() {
			o.finding.What += "; the next opening settles first what dead coordinators have left"
			o.finding.Unfinished = true
			w.found(o.finding)
			continue
		}
		w.free(o)
	}
}

// free makes the block of a deleted record, or of a node, free, on all copies.
func (w *walker) free(o *orphan) {
	img := make(record.Image, record.LineSize)
	// Its number is larger than those of what was freed as long as there was a coordinator.
	img.PutFree(o.finding.Addr, o.version, o.table, o.class, uint64(w.l.NextCoordinator)<<memory.FreesShift)
	f := o.finding
	if w.proves() {
		f.Remedy = "the block is made free, on all copies"
	}
	if w.o.Repair {
		for k := w.v.Copies(f.Addr) - 1; k >= 0 && f.Failed == nil; k-- {
			at := w.v.At(f.Addr, k)
			f.Failed = w.write(rdma.RemoteAddr{Blade: at.Blade, Key: w.v.Key(at.Blade), Off: at.Off}, img)
		}
		f.Repaired = f.Failed == nil
	}
	if w.found(f); f.Repaired {
		if w.sum.Free++; o.state == record.Node {
			w.sum.Nodes--
		} else {
			w.sum.Absent--
		}
	}
}
