package verify

import (
	"bytes"
	"fmt"

	"txnode/index"
	"txnode/index/race"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// lookup finds the slot and the block of a key, as a transaction would. Of an index of nodes, it is
// the leaf instead of the slot.
func (d *Database) lookup(t layout.Table, key []byte) (slot, block layout.Addr, err error) {
	missing := fmt.Errorf("%w: key %s in table %q", ErrNoSuch, keyText(key), t.Name)
	if t.Root == 0 {
		return 0, 0, missing
	}
	if t.InBlocks() {
		return d.lookupNode(t, key)
	}
	ix, err := race.Open(d.c, frozen{d.v}, t.Root, t.ID)
	if err != nil {
		return 0, 0, err
	}
	local, err := d.t.Alloc(ix.BufferSize())
	if err != nil {
		return 0, 0, err
	}
	defer d.t.Free(local, ix.BufferSize())
	q := index.Query{Key: key, Hash: record.Hash(t.ID, key), Local: local, View: d.v}
	var b rdma.Batch
	for tries, again := 0, true; again; tries++ {
		if tries == 8 {
			return 0, 0, fmt.Errorf("%w: its index changes all the time", missing)
		}
		b.Reset()
		ix.Search(&b, &q)
		if err = d.do(&b); err == nil {
			again, err = ix.Resolve(d.c, &q)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	for _, c := range q.Candidates {
		if !d.contains(c.Addr, c.Class.Size(), layout.KindBlocks) {
			continue
		}
		for k := range d.v.Copies(c.Addr) { // a backup tells the key of a damaged primary
			p, err := d.copyOf(d.v.At(c.Addr, k), c.Class.Size())
			if err != nil {
				return 0, 0, err
			}
			img := record.Image(p)
			if _, err := img.Check(c.Addr); err != nil {
				missing = fmt.Errorf("%w, unless it is the damaged record at %v, which txnode inspect record shows "+
					"by that address", missing, c.Addr)
				continue
			}
			if bytes.Equal(img.Key(), key) && img.Meta().Table() == t.ID {
				return ix.SlotOf(&q, c.Addr), c.Addr, nil
			}
			break
		}
	}
	return 0, 0, missing
}

// Record shows the block that an address lies in.
func (p *Dump) Record(a layout.Addr) error {
	if _, err := p.place(a, 1, layout.KindBlocks); err != nil {
		return err
	}
	class := p.d.l.Segments[a.Segment()].Class
	size := class.Size()
	a -= layout.Addr(a.Offset() % size)
	at, err := p.place(a, size, layout.KindBlocks)
	if err != nil {
		return err
	}
	q, err := p.read(at, size)
	if err != nil {
		return err
	}
	p.printf("%v, copy %d: %v, block of %d bytes", a, p.Copy, at, size)
	p.image("", 0, record.Image(q), a)
	for k := range p.d.v.Copies(a) {
		if k == p.Copy {
			continue
		}
		o, err := p.read(p.d.v.At(a, k), size)
		if err != nil {
			return err
		}
		verdict := "the same bytes"
		if i := different(q, o); i >= 0 {
			verdict = fmt.Sprintf("differs from byte %#x on", i)
			if _, err := record.Image(o).Check(a); err != nil {
				verdict += ": " + err.Error()
			} else {
				verdict += ": " + describe(record.Image(o)) + lockText(record.Image(o))
			}
		}
		p.printf("copy %d: %v: %s", k, p.d.v.At(a, k), verdict)
	}
	return p.err
}

func different(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// image writes the lines of a block's image, which begins at offset base of what is
// dumped.
func (p *Dump) image(indent string, base int, img record.Image, a layout.Addr) {
	l := func(off int, format string, args ...any) {
		p.line(base+off, img[off:min(off+8, len(img))], "%s%s", indent, fmt.Sprintf(format, args...))
	}
	m := img.Meta()
	need, err := img.Check(a)
	l(record.VersionOff, "version %v", img.Version())
	l(record.MetaOff, "%v, table %d, class %d, key of %d bytes, value of %d bytes", m.State(), m.Table(), m.Class(),
		m.KeyLen(), m.ValueLen())
	verdict := "matches"
	if err != nil {
		verdict = err.Error()
	} else if m == 0 && img.Version() == 0 {
		verdict = "never used"
	}
	l(record.ChecksumOff, "checksum: %s", verdict)
	keyAt, valueAt, valid := 0, 0, need > 0 && need <= len(img)
	if valid {
		keyAt, valueAt = record.KeyAt(m.KeyLen()), record.ValueAt(m.KeyLen(), m.ValueLen())
	}
	part := func(off int) string {
		switch {
		case !valid:
			return ""
		case off == record.KeyOff && m.State() == record.Free && m != 0:
			return freedText("number of its freeing", img.Freed())
		case off < keyAt+m.KeyLen() && off+8 > keyAt:
			if off <= keyAt {
				return "key " + keyText(img.Key())
			}
			return "key"
		case off < valueAt+m.ValueLen() && off+8 > valueAt:
			if off == valueAt {
				return "value"
			}
			return "value +" + fmt.Sprint(off-valueAt)
		}
		return "unused"
	}
	for off := record.KeyOff; off < record.GuardOff; off += 8 {
		l(off, "%s", part(off))
	}
	guard := "free at version " + img.Guard().Version().String()
	if img.Guard().Held() {
		guard = "held by " + img.Lock().String()
	} else if !img.Stable() {
		guard += ", which is not that of the image"
	}
	l(record.GuardOff, "guard: %s", guard)
	end := len(img)
	if valid {
		end = need
	}
	for off := record.LineSize; off < end; off += 8 {
		if p.Limit > 0 && off >= record.LineSize+p.Limit {
			p.printf("      ... and %d bytes more", end-off)
			return
		}
		l(off, "%s", part(off))
	}
}

// freedText is what a count of freed blocks is, and the count: see memory.Space.CountFree.
func freedText(what string, n uint64) string {
	return fmt.Sprintf("%s: %d of those before coordinator %d", what, n&(1<<memory.FreesShift-1), n>>memory.FreesShift)
}

// Log shows the log area of a coordinator on a blade.
func (p *Dump) Log(coordinator uint32, b rdma.BladeID) error {
	if int(b) >= len(p.d.l.Blades) {
		return fmt.Errorf("%w: blade %d: there are %d, from 0", ErrNoBlade, b, len(p.d.l.Blades))
	}
	area, err := p.d.areaOf(coordinator, b)
	if err != nil {
		return err
	}
	q, err := p.area(area)
	if err != nil {
		return err
	}
	p.printf("log of coordinator %d on blade %d: %d bytes at %v (%v)", coordinator, b, p.d.l.LogArea,
		area, p.d.v.At(area, 0))
	n := 0
	eachRecord(q, func(off uint32, r *log.Record, err error) bool {
		if n++; p.Limit > 0 && n > p.Limit {
			p.printf("... and more records")
			return false
		}
		p.printf("")
		if err != nil {
			p.line(int(off), q[off:off+8], "%v", err)
		} else {
			p.record(q[off:], int(off), r)
		}
		return p.err == nil
	})
	if n == 0 {
		p.printf("no records")
	}
	return p.err
}

// areaOf finds a coordinator's log area.
func (d *Database) areaOf(coordinator uint32, b rdma.BladeID) (layout.Addr, error) {
	for _, c := range d.l.Coordinators {
		if c.ID != coordinator {
			continue
		}
		if area, ok := d.logArea(c, b); ok {
			return area, nil
		}
		return 0, fmt.Errorf("%w: a log area of coordinator %d on blade %d", ErrNoSuch, coordinator, b)
	}
	if coordinator > 0 && coordinator < d.l.NextCoordinator {
		return 0, fmt.Errorf("%w: coordinator %d was closed, and its log with it; %s", ErrNoSuch, coordinator, d.open())
	}
	return 0, fmt.Errorf("%w: coordinator %d; %s", ErrNoSuch, coordinator, d.open())
}

// open says which coordinators were not closed.
func (d *Database) open() string {
	if len(d.l.Coordinators) == 0 {
		return "every coordinator was closed"
	}
	var ids []string
	for _, c := range d.l.Coordinators {
		ids = append(ids, fmt.Sprint(c.ID))
	}
	return "those not closed: " + some(ids)
}

// area reads a log area.
func (p *Dump) area(area layout.Addr) ([]byte, error) {
	var q []byte
	for off := uint32(0); off < p.d.l.LogArea; off += chunk {
		part, err := p.read(p.d.v.At(area+layout.Addr(off), 0), min(chunk, p.d.l.LogArea-off))
		if err != nil {
			return nil, err
		}
		q = append(q, part...)
	}
	return q, nil
}

// record writes the lines of a log record that is whole.
func (p *Dump) record(q []byte, base int, r *log.Record) {
	w := func(off int) uint64 { return word(q, uint32(off)) }
	entries := int(w(0) >> 48)
	p.line(base, q[:8], "magic %q, format %d, %s, %d entries", q[:4], q[4], logKind(r.Kind), entries)
	p.line(base+8, q[8:16], "transaction %v", r.Tx)
	p.line(base+16, q[16:24], "%d bytes, generation %d", r.Length, r.Generation)
	p.line(base+24, q[24:32], "checksum: matches")
	at := log.HeaderSize
	for i := range entries {
		kind, a := log.EntryKind(w(at)>>layout.AddrBits), layout.Addr(w(at)&(1<<layout.AddrBits-1))
		name := map[log.EntryKind]string{
			log.Update: "update", log.Move: "move", log.Dead: "superseded", log.New: "new image",
		}[kind]
		size, room := int(uint32(w(at+16))), int(w(at+16)>>32)
		p.line(base+at, q[at:at+8], "entry %d: %s of the block at %v", i, name, a)
		p.line(base+at+8, q[at+8:at+16], "replaces version %v", record.TxID(w(at+8)))
		p.line(base+at+16, q[at+16:at+24], "image of %d bytes in %d", size, room)
		if kind == log.Update || kind == log.New {
			p.line(base+at+24, q[at+24:at+32], "%s", freedText("blocks freed before", w(at+24)))
		} else {
			p.line(base+at+24, q[at+24:at+32], "moved from: %s", addrText(w(at+24)))
		}
		at += log.EntryHeaderSize
		if kind != log.Dead {
			p.image("  ", base+at, record.Image(q[at:at+size]), a)
		}
		at += room
	}
}

// Tx shows what is left of a transaction: its records in the logs, and the blocks
// whose image it wrote or whose lock it holds. It reads all blocks.
func (p *Dump) Tx(id record.TxID) error {
	l := p.d.l
	c := id.Coordinator()
	state := "closed"
	switch {
	case c == 0 || c >= l.NextCoordinator:
		return fmt.Errorf("%w: transaction %v: coordinators have numbers from 1 to %d",
			ErrNoSuch, id, l.NextCoordinator-1)
	default:
		for _, e := range l.Coordinators {
			if e.ID == c {
				state = "not closed"
			}
		}
	}
	p.printf("transaction %v (version %#x, lock %#x), of a coordinator that was %s",
		id, uint64(id), uint64(record.HeldBy(id)), state)
	if state == "not closed" {
		for b := range l.Blades {
			area, err := p.d.areaOf(c, rdma.BladeID(b))
			if err != nil {
				continue // the blade is down
			}
			q, err := p.area(area)
			if err != nil {
				return err
			}
			eachRecord(q, func(off uint32, r *log.Record, err error) bool {
				if err == nil && r.Tx == id {
					p.printf("\nits record in the log on blade %d, at %v:", b, area+layout.Addr(off))
					p.record(q[off:], int(off), r)
				}
				return p.err == nil
			})
		}
	}
	p.printf("\nblocks:")
	n := 0
	for i := range l.Segments {
		s := &l.Segments[i]
		if s.Kind != layout.KindBlocks || s.Placement.N == 0 {
			continue
		}
		size := s.Class.Size()
		step := max(chunk/size, 1) * size
		end := l.SegmentSize / size * size
		for off := uint32(0); off < end; off += step {
			a := layout.MakeAddr(layout.SegmentID(i), off)
			q, err := p.read(p.d.v.At(a, 0), min(step, end-off))
			if err != nil {
				return err
			}
			for o := uint32(0); o+size <= uint32(len(q)); o += size {
				img := record.Image(q[o : o+size])
				if img.Version() != id && img.Lock() != id {
					continue
				}
				n++
				text := "damaged"
				if _, err := img.Check(a + layout.Addr(o)); err == nil {
					text = describe(img)
				}
				p.printf("%v: %s%s", a+layout.Addr(o), text, lockText(img))
			}
		}
	}
	p.printf("%d blocks have its version or its lock", n)
	return p.err
}
