package verify

import (
	"fmt"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Bucket shows a line of an index: a bucket, the first line of a sub-table or of a part of the
// directory, or the root with its directory.
func (p *Dump) Bucket(a layout.Addr) error {
	a &^= lineSize - 1
	at, err := p.place(a, lineSize, layout.KindIndex)
	if err != nil {
		return err
	}
	q, err := p.read(at, lineSize)
	if err != nil {
		return err
	}
	p.printf("%v, copy %d: %v", a, p.Copy, at)
	switch {
	case word(q, 0) != 0 && isRoot(q):
		return p.root(a, q)
	case isSubTable(q):
		return p.subTable(q)
	case string(q[:7]) == "TXNRDIR":
		return p.part(a, q)
	}
	h := race.Header(word(q, bucketHeader))
	if err := h.Check(h.Table()); err != nil {
		p.printf("no bucket of an index: %v", err)
	}
	for j := range uint32(slotsPerLine) {
		s := race.Slot(word(q, 8*j))
		p.line(int(8*j), q[8*j:8*j+8], "slot %d: %s", j, p.slot(s))
	}
	p.line(bucketHeader, q[bucketHeader:], "header: %v", h)
	return p.err
}

func isRoot(q []byte) bool {
	_, err := race.ParseRoot(q)
	return err == nil || string(q[:7]) == "TXNRACE"
}

func isSubTable(q []byte) bool {
	_, err := race.ParseBirth(q)
	return err == nil || string(q[:8]) == "TXNSUBTB"
}

// slot describes a slot and its block.
func (p *Dump) slot(s race.Slot) string {
	if s == 0 {
		return "empty"
	}
	if err := s.Check(); err != nil {
		return err.Error()
	}
	size := s.Class().Size()
	if !p.d.contains(s.Addr(), size, layout.KindBlocks) {
		return fmt.Sprintf("%v: no block is there", s)
	}
	q, err := p.read(p.d.v.At(s.Addr(), 0), size)
	if err != nil {
		return fmt.Sprintf("%v: %v", s, err)
	}
	img := record.Image(q)
	if _, err := img.Check(s.Addr()); err != nil {
		return fmt.Sprintf("%v: %v", s, err)
	}
	return fmt.Sprintf("%v: %s%s", s, describe(img), lockText(img))
}

func (p *Dump) root(a layout.Addr, q []byte) error {
	g, err := race.ParseRoot(q)
	p.line(0, q[:8], "magic %q: root of an index", q[:8])
	w := word(q, 8)
	p.line(8, q[8:16], "table %d, %d groups, maximum depth %d, %d slots per bucket",
		w>>48, uint32(w), uint8(w>>32), uint8(w>>40))
	verdict := ""
	if err != nil {
		verdict = ": " + err.Error()
	}
	p.line(56, q[56:64], "checksum%s", verdict)
	if err != nil || !p.d.contains(a, rootSize, layout.KindIndex) {
		return p.err
	}
	at := p.d.v.At(a, p.Copy)
	d, err := p.read(at, rootLines)
	if err != nil {
		return err
	}
	depth := word(d, depthOff)
	p.line(depthOff, d[depthOff:depthOff+8], "global depth %d", depth)
	p.line(dirLockOff, d[dirLockOff:dirLockOff+8], "lock of the directory%s", lockOwnerText(word(d, dirLockOff)))
	for k := rootBits; k < int(g.MaxDepth); k++ {
		if o := partWord(k); word(d, o) != 0 {
			p.line(int(o), d[o:o+8], "part %d of the directory: %v", k, layout.Addr(word(d, o)))
		}
	}
	at.Off += rootLines
	return p.entries(at, rootLines, 0, 1<<min(depth, rootBits))
}

// entries shows n entries of a directory, from number first on, which are at off of their extent.
func (p *Dump) entries(at rdma.RemoteAddr, off, first, n int) error {
	for i := range n {
		if p.more(i, n) {
			break
		}
		e, err := p.read(at, 8)
		if err != nil {
			return err
		}
		at.Off += 8
		p.line(off+8*i, e, "entry %d: %v", first+i, race.Entry(word(e, 0)))
	}
	return p.err
}

// part shows a part of a directory.
func (p *Dump) part(a layout.Addr, q []byte) error {
	g, root, k, err := race.ParsePart(q)
	p.line(0, q[:8], "magic %q: part of a directory", q[:8])
	w := word(q, 8)
	p.line(8, q[8:16], "table %d, %d groups, maximum depth %d, %d slots per bucket",
		w>>48, uint32(w), uint8(w>>32), uint8(w>>40))
	p.line(16, q[16:24], "root: %v", addrText(word(q, 16)))
	p.line(24, q[24:32], "part %d", word(q, 24))
	verdict := ""
	if err != nil {
		verdict = ": " + err.Error()
	}
	p.line(56, q[56:64], "checksum%s", verdict)
	if err != nil || !p.d.contains(a, partSize(int(k)), layout.KindIndex) || root == 0 || g.MaxDepth == 0 {
		return p.err
	}
	at := p.d.v.At(a, p.Copy)
	at.Off += partHeader
	return p.entries(at, partHeader, 1<<k, 1<<k)
}

func lockOwnerText(w uint64) string {
	if w == 0 {
		return ": free"
	}
	return fmt.Sprintf(": client %d, thread %d", w>>lockOwner, uint16(w))
}

func (p *Dump) subTable(q []byte) error {
	_, err := race.ParseBirth(q)
	p.line(0, q[:8], "magic %q: sub-table", q[:8])
	w := word(q, 8)
	p.line(8, q[8:16], "table %d, %d groups, maximum depth %d, %d slots per bucket",
		w>>48, uint32(w), uint8(w>>32), uint8(w>>40))
	w = word(q, 16)
	p.line(16, q[16:24], "made for suffix %b of depth %d", uint32(w), uint8(w>>32))
	p.line(24, q[24:32], "split from: %v", addrText(word(q, 24)))
	p.line(32, q[32:40], "root: %v", addrText(word(q, 32)))
	verdict := ""
	if err != nil {
		verdict = ": " + err.Error()
	}
	p.line(40, q[40:48], "checksum%s", verdict)
	p.line(tableChild, q[48:56], "being split into: %v", addrText(word(q, tableChild)))
	p.line(tableLock, q[56:64], "lock%s", lockOwnerText(word(q, tableLock)))
	return p.err
}

func addrText(w uint64) string {
	if w == 0 {
		return "none"
	}
	if w>>layout.AddrBits != 0 {
		return fmt.Sprintf("%#x, no address", w)
	}
	return layout.Addr(w).String()
}

// Key shows the record of a table that has a key, and the slot, or the leaf, that points to it. The
// error is an ErrNoSuch when none does.
func (p *Dump) Key(t layout.Table, key []byte) error {
	slot, a, err := p.d.lookup(t, key)
	if err != nil {
		return err
	}
	what := "slot"
	if t.InBlocks() {
		what = "leaf"
	}
	p.printf("key %s of table %d %q: the %s at %v points to %v", tableKeyText(t, key), t.ID, t.Name, what, slot, a)
	return p.Record(a)
}
