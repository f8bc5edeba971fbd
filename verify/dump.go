package verify

import (
	"fmt"
	"io"
	"strings"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Dump writes annotated bytes of a database: a line has an offset, the bytes, and what
// they mean. It accepts any bytes.
type Dump struct {
	d   *Database
	w   io.Writer
	err error
	// Copy is which replica is shown; 0: the primary.
	Copy int
	// Limit is how many bytes of a value, and how many entries of a list, are shown;
	// 0: all.
	Limit int
}

// NewDump makes a dump of the database's parts to w.
func (d *Database) NewDump(w io.Writer) *Dump { return &Dump{d: d, w: w} }

func (p *Dump) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// line writes up to 8 bytes and what they mean.
func (p *Dump) line(off int, b []byte, format string, args ...any) {
	s := fmt.Sprintf("%04x  %-23s  %s", off, fmt.Sprintf("% x", b), fmt.Sprintf(format, args...))
	p.printf("%s", strings.TrimRight(s, " "))
}

// read returns bytes of a blade, on the heap.
func (p *Dump) read(at rdma.RemoteAddr, n uint32) ([]byte, error) { return p.d.copyOf(at, n) }

// place checks an address and returns where the copy that is asked for is.
func (p *Dump) place(a layout.Addr, n uint32, kinds ...layout.SegmentKind) (rdma.RemoteAddr, error) {
	for _, k := range kinds {
		if !p.d.contains(a, n, k) {
			continue
		}
		if p.Copy < 0 || p.Copy >= p.d.v.Copies(a) {
			return rdma.RemoteAddr{}, fmt.Errorf("%w: copy %d of %v: there are %d, from 0",
				ErrNoSuch, p.Copy, a, p.d.v.Copies(a))
		}
		return p.d.v.At(a, p.Copy), nil
	}
	if p.d.v.Valid(a) && int(a.Segment()) < len(p.d.l.Segments) {
		return rdma.RemoteAddr{}, fmt.Errorf("%w: %v is in a segment of kind %v, of %d bytes",
			ErrNoSuch, a, p.d.l.Segments[a.Segment()].Kind, p.d.l.SegmentSize)
	}
	return rdma.RemoteAddr{}, fmt.Errorf("%w: %v: there are segments 1 to %d", ErrNoSuch, a, len(p.d.l.Segments)-1)
}

// more says how many entries of a list are left out, if i is the first of them.
func (p *Dump) more(i, n int) bool {
	if p.Limit > 0 && i == p.Limit {
		p.printf("... and %d more", n-i)
		return true
	}
	return false
}

// Region shows the header of a blade's region, and which segments are on it.
func (p *Dump) Region(b rdma.BladeID) error {
	l := p.d.l
	if int(b) >= len(l.Blades) {
		return fmt.Errorf("%w: blade %d: there are %d, from 0", ErrNoBlade, b, len(l.Blades))
	}
	x := l.Blades[b]
	state := "up"
	switch {
	case p.d.l.Vacant(b):
		state = "vacant"
	case x.State == layout.BladeDown:
		state = "down"
	case x.Leaving:
		state = "leaving"
	}
	p.printf("blade %d: %d bytes, %s, %d segments placed; catalog: epoch %d, database %v",
		b, x.Size, state, x.Used, l.Epoch, l.UUID)
	for i := range layout.HeaderCopies {
		q, err := p.read(rdma.RemoteAddr{Blade: b, Key: p.d.v.Key(b), Off: layout.HeaderOffset(i)},
			layout.RegionHeaderSize)
		if err != nil {
			return err
		}
		p.header(q, i, b)
	}
	p.printf("")
	var all []string
	for id := range l.Segments {
		s := &l.Segments[id]
		for k, r := range s.Placement.Replicas[:s.Placement.N] {
			if r.Blade == b {
				all = append(all, fmt.Sprintf("%010x  segment %d, copy %d: %s",
					r.Base, id, k, p.d.purpose(layout.SegmentID(id))))
			}
		}
	}
	for i, s := range all {
		if p.more(i, len(all)) {
			break
		}
		p.printf("%s", s)
	}
	return p.err
}

func (p *Dump) header(q []byte, i int, b rdma.BladeID) {
	base := int(layout.HeaderOffset(i))
	h, blank, err := layout.ParseHeaderCopy(q, i)
	verdict := "intact"
	switch {
	case blank:
		verdict = "blank"
	case err != nil:
		verdict = err.Error()
	case h != p.d.l.HeaderOf(b):
		verdict = "intact, but not what the catalog says now"
	}
	p.printf("\nregion header, copy %d: %s", i, verdict)
	w := func(off uint32) uint64 { return word(q, off) }
	p.line(base, q[:8], "magic %q", q[:8])
	p.line(base+8, q[8:16], "format %d, blade %d of %d, %d backups", w(8)&0xffff, w(8)>>16&0xffff,
		w(8)>>32&0xffff, w(8)>>48&0xff)
	p.line(base+16, q[16:24], "segments of %d bytes, written in epoch %d", uint32(w(16)), w(16)>>32)
	p.line(base+24, q[24:32], "database %x...", q[24:32])
	p.line(base+32, q[32:40], "    ... %x", q[32:40])
	p.line(base+40, q[40:48], "region of %d bytes", w(40))
	p.line(base+48, q[48:56], "")
	p.line(base+56, q[56:64], "checksum")
}

// purpose says what a segment is for.
func (d *Database) purpose(id layout.SegmentID) string {
	s := &d.l.Segments[id]
	switch s.Kind {
	case layout.KindLog:
		return fmt.Sprintf("log, row %d", s.Row)
	case layout.KindBlocks:
		return fmt.Sprintf("blocks of %d bytes (class %d)", s.Class.Size(), s.Class)
	}
	return s.Kind.String()
}

// Segment shows where a segment is and what is in it.
func (p *Dump) Segment(id layout.SegmentID) error {
	l := p.d.l
	at, err := p.place(layout.MakeAddr(id, 0), 1, layout.KindLog, layout.KindIndex, layout.KindBlocks)
	if err != nil {
		return err
	}
	p.printf("segment %d: %s, %d bytes", id, p.d.purpose(id), l.SegmentSize)
	for k, r := range l.Segments[id].Placement.Replicas[:l.Segments[id].Placement.N] {
		p.printf("  copy %d: blade %d +%#x", k, r.Blade, r.Base)
	}
	p.printf("")
	switch s := &l.Segments[id]; s.Kind {
	case layout.KindLog:
		return p.logSegment(s)
	case layout.KindIndex:
		return p.indexSegment(id, at)
	default:
		return p.blockSegment(id, s.Class)
	}
}

func (p *Dump) logSegment(s *layout.Segment) error {
	per := p.d.l.SegmentSize / p.d.l.LogArea
	for i := range per {
		owner := "nobody"
		for _, c := range p.d.l.Coordinators {
			if c.Slot == s.Row*per+i {
				owner = fmt.Sprintf("coordinator %d", c.ID)
			}
		}
		p.printf("%08x  log area of %s", i*p.d.l.LogArea, owner)
	}
	return p.err
}

// indexSegment lists the extents.
func (p *Dump) indexSegment(id layout.SegmentID, at rdma.RemoteAddr) error {
	size := p.d.l.SegmentSize
	unit := memory.ExtentUnit(size)
	table, err := p.read(at, memory.ExtentTable(size))
	if err != nil {
		return err
	}
	var used []uint32
	for g := range size / unit {
		if word(table, 8*g) != 0 {
			used = append(used, g)
		}
	}
	for i, g := range used {
		if p.more(i, len(used)) {
			break
		}
		w := word(table, 8*g)
		a := layout.MakeAddr(id, g*unit)
		n, ok := memory.ParseExtentWord(a, w)
		if !ok || n > size/unit-g {
			p.line(int(8*g), table[8*g:8*g+8], "no word of an extent at %v", a)
			continue
		}
		first := at
		first.Off += uint64(a.Offset())
		q, err := p.read(first, lineSize)
		if err != nil {
			return err
		}
		p.line(int(8*g), table[8*g:8*g+8], "%d bytes at %v: %s", n*unit, a, extentUse(q))
	}
	return p.err
}

// extentUse says what the first line of an extent is.
func extentUse(q []byte) string {
	if g, err := race.ParseRoot(q); err == nil {
		return fmt.Sprintf("root of the index of table %d, %d groups, depth at most %d", g.Table, g.Groups, g.MaxDepth)
	}
	if b, err := race.ParseBirth(q); err == nil {
		return fmt.Sprintf("sub-table of table %d, made for suffix %0*b", b.Table, max(1, int(b.Depth)), b.Suffix)
	}
	if g, _, k, err := race.ParsePart(q); err == nil {
		return fmt.Sprintf("part %d of the directory of table %d", k, g.Table)
	}
	return "neither a root, nor a part of a directory, nor a sub-table"
}

// blockSegment counts the blocks and lists those in use.
func (p *Dump) blockSegment(id layout.SegmentID, class layout.Class) error {
	size := class.Size()
	n := p.d.l.SegmentSize / size
	step := max(chunk/size, 1)
	var blank, free, damaged, used int
	for from := uint32(0); from < n; from += step {
		k := min(step, n-from)
		at, err := p.place(layout.MakeAddr(id, from*size), k*size, layout.KindBlocks)
		if err != nil {
			return err
		}
		q, err := p.read(at, k*size)
		if err != nil {
			return err
		}
		for i := range k {
			a := layout.MakeAddr(id, (from+i)*size)
			img := record.Image(q[i*size : (i+1)*size])
			_, err := img.Check(a)
			switch {
			case err != nil:
				damaged++
				p.printf("%08x  %v", a.Offset(), err)
			case img.Meta() == 0 && img.Version() == 0:
				blank++
			case img.Meta().State() == record.Free:
				free++
			default:
				if used++; p.Limit == 0 || used <= p.Limit {
					p.printf("%08x  %s%s", a.Offset(), describe(img), lockText(img))
				}
			}
		}
	}
	if p.Limit > 0 && used > p.Limit {
		p.printf("... and %d more in use", used-p.Limit)
	}
	p.printf("%d blocks: %d in use, %d free, %d never used, %d damaged", n, used, free, blank, damaged)
	return p.err
}

// lockText says who holds the lock, if somebody does.
func lockText(img record.Image) string {
	if img.Guard().Held() {
		return fmt.Sprintf(", locked by %v", img.Lock())
	}
	if !img.Stable() {
		return fmt.Sprintf(", guard free at %v: not the version", img.Guard().Version())
	}
	return ""
}
