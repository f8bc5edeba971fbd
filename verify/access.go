package verify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// read reads n bytes of one copy at a into the arena; nil: it failed, which has
// been reported.
func (w *walker) read(a layout.Addr, replica int, local, n uint32) []byte {
	at := w.v.At(a, replica)
	p, err := w.Database.read(at, local, n)
	if err != nil {
		what := fmt.Sprintf("%d bytes: %v", n, err)
		if errors.Is(err, ErrFault) {
			w.unreadable(at.Blade)
			part := rdma.RemoteAddr{Blade: at.Blade, Off: at.Off / faultPart}
			if w.dark[part] {
				return nil
			}
			if w.dark == nil {
				w.dark = map[rdma.RemoteAddr]bool{}
			}
			w.dark[part] = true
			what = fmt.Sprintf("%d bytes, and perhaps more of these %d KiB: %v", n, faultPart>>10, err)
		}
		w.found(Finding{Kind: KindUnreadable, Addr: a, Blade: at.Blade, Off: at.Off, Copy: replica, What: what})
		return nil
	}
	w.sum.Bytes += uint64(n)
	return p
}

// faultPart is of how many bytes of a file it is said once that something of them cannot be read.
const faultPart = 64 << 10

// unreadable notes that something of a blade's file cannot be read, which ends all repairs.
func (w *walker) unreadable(b rdma.BladeID) {
	w.o.Repair = false
	if !slices.Contains(w.sum.Unreadable, b) {
		w.sum.Unreadable = append(w.sum.Unreadable, b)
	}
}

// proves reports whether a copy may be taken for what another one should be.
func (w *walker) proves() bool {
	return !w.sum.Unrecovered && !w.sum.CatalogOld && len(w.sum.Unreadable) == 0
}

// copies reads n bytes at a of all replicas, into buffers that are used again by
// the next call with the same ones. A copy that cannot be read is nil.
func (w *walker) copies(a layout.Addr, n uint32, local *[layout.MaxReplicas]uint32) [][]byte {
	var out [layout.MaxReplicas][]byte
	k := w.v.Copies(a)
	for i := range k {
		out[i] = w.read(a, i, local[i], n)
	}
	return out[:k]
}

// do is rdma.Coro.Do. Where the system cannot read a file, since its disk fails or it was cut off
// meanwhile, that is ErrFault, and what is elsewhere can be read afterwards.
func (d *Database) do(b *rdma.Batch) error {
	err := d.c.Do(b)
	d.stale = d.stale || errors.Is(err, rdma.ErrStaleKey)
	if v := (*rdma.VerbError)(nil); errors.As(err, &v) && v.Status == rdma.StatusIO {
		err = nil
		for i := range b.Len() {
			if w := b.WR(i); w.Status != rdma.StatusOK {
				if err == nil {
					err = fmt.Errorf("%w; copy it to a sound disk, or move it away and %s",
						ErrFault, d.l.Remedy(w.Blade))
				}
				err = errors.Join(err, d.t.Reconnect(w.Blade))
			}
		}
	}
	return err
}

// read reads bytes of a blade into the arena.
func (d *Database) read(at rdma.RemoteAddr, local, n uint32) ([]byte, error) {
	var b rdma.Batch
	b.Read(at, local, n)
	if err := d.do(&b); err != nil {
		return nil, errors.Join(err, d.t.Reconnect(at.Blade))
	}
	return d.t.Bytes(local, n), nil
}

// copyOf returns bytes of a blade, on the heap.
func (d *Database) copyOf(at rdma.RemoteAddr, n uint32) ([]byte, error) {
	local, err := d.t.Alloc(int(n))
	if err != nil {
		return nil, err
	}
	defer d.t.Free(local, int(n))
	p, err := d.read(at, local, n)
	return bytes.Clone(p), err
}

// write writes p to a copy, flushed. p may be in the arena or not.
func (w *walker) write(at rdma.RemoteAddr, p []byte) error {
	local, err := w.t.Alloc(len(p))
	if err != nil {
		return err
	}
	defer w.t.Free(local, len(p))
	copy(w.t.Bytes(local, uint32(len(p))), p)
	var b rdma.Batch
	b.Write(at, local, uint32(len(p)))
	b.Flush(at, uint32(len(p)))
	if err := w.do(&b); err != nil {
		return errors.Join(err, w.t.Reconnect(at.Blade))
	}
	return nil
}

// found reports a finding as it is.
func (w *walker) found(f Finding) {
	if w.err != nil {
		return
	}
	w.sum.Findings++
	w.sum.ByKind[f.Kind]++
	if f.Repaired {
		w.sum.Repaired++
	} else if f.Unfinished {
		w.sum.Unfinished++
	}
	if w.o.Report != nil {
		w.err = w.o.Report(f)
	}
}

// at completes the place of a finding.
func (w *walker) at(f Finding, a layout.Addr, replica int) Finding {
	f.Addr, f.Copy = a, replica
	if w.v.Valid(a) && replica < w.v.Copies(a) {
		r := w.v.At(a, replica)
		f.Blade, f.Off = r.Blade, r.Off
	}
	return f
}

// repair reports a finding, after it has applied the remedy if repairs are wanted:
// p is written to the finding's place.
func (w *walker) repair(f Finding, remedy string, p []byte) {
	if w.proves() {
		f.Remedy = remedy
	}
	if w.o.Repair && w.err == nil {
		f.Failed = w.write(rdma.RemoteAddr{Blade: f.Blade, Key: w.v.Key(f.Blade), Off: f.Off}, p)
		f.Repaired = f.Failed == nil
	}
	w.found(f)
}

// fault is what is wrong with a word.
type fault struct {
	kind Kind
	what string
	// theirs: what is wrong is something that recovery is to finish: no copy may be
	// changed.
	theirs bool
}

// faultf makes a fault.
func faultf(kind Kind, format string, args ...any) *fault {
	return &fault{kind: kind, what: fmt.Sprintf(format, args...)}
}

// words judges every word of the primary, and compares the backups with it. A word
// that is at fault is written from the first backup whose word is not; a backup
// that differs from a word without fault is written from that. Words of no table are
// those of extents, whose copies may differ in a segment without owner.
func (w *walker) words(a layout.Addr, table uint16, copies [][]byte, judge func(off uint32, word uint64) *fault) {
	if copies[0] == nil {
		return
	}
	for off := uint32(0); off+8 <= uint32(len(copies[0])) && w.err == nil; off += 8 {
		word := binary.LittleEndian.Uint64(copies[0][off:])
		at := a + layout.Addr(off)
		if x := judge(off, word); x != nil {
			w.faulty(at, table, copies, off, x, judge)
			continue
		}
		for k := 1; k < len(copies); k++ {
			if copies[k] == nil {
				continue
			}
			if other := binary.LittleEndian.Uint64(copies[k][off:]); other != word {
				f := Finding{
					Kind: KindReplica, Table: table, Unfinished: table == 0 && w.inherits(a.Segment()),
					What: fmt.Sprintf("copy %d holds %#x, the primary %#x", k, other, word),
				}
				w.repair(w.at(f, at, k), "the primary's word is written to the copy", copies[0][off:off+8])
			}
		}
	}
}

// faulty reports a word of the primary that is at fault.
func (w *walker) faulty(at layout.Addr, table uint16, copies [][]byte, off uint32, x *fault,
	judge func(uint32, uint64) *fault) {
	f := w.at(Finding{Kind: x.kind, Table: table, What: x.what, Unfinished: x.theirs &&
		(len(w.l.Coordinators) > 0 || w.unswept())}, at, 0)
	for k := 1; k < len(copies) && !x.theirs; k++ {
		if copies[k] == nil {
			continue
		}
		other := binary.LittleEndian.Uint64(copies[k][off:])
		if judge(off, other) == nil && other != binary.LittleEndian.Uint64(copies[0][off:]) {
			w.repair(f, fmt.Sprintf("the word %#x of copy %d is written to the primary", other, k),
				copies[k][off:off+8])
			return
		}
	}
	w.found(f)
}

// word is the little-endian word of p at off.
func word(p []byte, off uint32) uint64 { return binary.LittleEndian.Uint64(p[off:]) }
