package recovery

import (
	"bytes"
	"fmt"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// PowerReport says what a recovery from the loss of power has done.
type PowerReport struct {
	Report
	Restored int // records whose image is that of a log
	Copied   int // replicas that differed from their primary
	Records  int // that the database has
}

// Power brings a database into order that promised to survive the loss of power
// (memory.Space.Checkpoint is not 0) and was not closed. The caller is its only
// user. What was written since the last checkpoint may be on the blades, or not, line
// by line and replica by replica; only log records that were acknowledged, extents'
// words and the catalog are certain. From them follows everything else:
//
//   - A record that was written since the checkpoint is in the log of each transaction
//     that wrote it. Its state is the image that no other one replaces: entries name the
//     version that they replace. A block can have had several records one after another,
//     but all but the last have ended in one that frees the block.
//   - Any other block with a record, or a node, is as the checkpoint has flushed it, but for
//     its lock, since images are written to primaries only when their log is durable.
//     Backups may have images of transactions whose log is lost, and are made equal.
//   - All other blocks are free.
//
// So what was in segments of blocks that have lost every copy would be absent, and not lost:
// Power fails with layout.ErrLost then, before it changes anything, unless Options.GiveUp.
//
// It takes time in proportion to the database. It is idempotent: until it ends the
// catalog says that it is needed, and whatever it finds of an earlier attempt is
// treated as the above.
func Power(c *rdma.Coro, o Options) (PowerReport, error) {
	var rep PowerReport
	if err := o.Space.LostBlocks(); err != nil {
		if !o.GiveUp {
			return rep, fmt.Errorf("recovery: the logs may have images of blocks that are lost: %w; "+
				"or go on as if they had never been (ReplaceLost)", err)
		}
		if err := o.Space.ForgetLost(); err != nil {
			return rep, fmt.Errorf("recovery: %w", err)
		}
	}
	left, err := o.Space.Coordinators()
	if err != nil {
		return rep, err
	}
	p := &power{
		o: &o, rep: &rep, latest: map[layout.Addr]log.Entry{}, touched: map[layout.Addr]bool{},
	}
	if p.tables, err = o.Space.Tables(); err != nil {
		return rep, err
	}
	ids := make([]uint32, len(left))
	for i := range left {
		ids[i] = left[i].ID
	}
	o.Steal, o.Durable = true, true
	var claim *memory.Claim
	if len(ids) > 0 {
		t := c.Thread()
		if claim, err = o.Space.Claim(memory.ClaimOptions{By: o.By, Now: t.Now(), Steal: true}, ids...); err != nil {
			return rep, fmt.Errorf("recovery: coordinators %v: %w", ids, err)
		}
		p.run = &run{c: c, t: t, o: &o, claim: claim, v: claim.View(), rep: &rep.Report}
		if err := p.open(); err != nil {
			return rep, err
		}
		defer p.close()
		if err := p.scan(); err != nil {
			return rep, err
		}
		if err := p.persist(); err != nil {
			return rep, err
		}
		if err := p.resolve(); err != nil {
			return rep, err
		}
		rep.Coordinators, rep.Committed = ids, p.committed
	}
	if err := p.rebuild(c); err != nil {
		return rep, err
	}
	if _, err := FreeExtents(c, o); err != nil {
		return rep, err
	}
	if err := o.Space.FlushSegments(c, layout.KindBlocks); err != nil {
		return rep, fmt.Errorf("recovery: %w", err)
	}
	// Everything is in place: the logs are no longer needed.
	if err := o.Space.SetCheckpoint(o.Space.Checkpoint() + 1); err != nil {
		return rep, fmt.Errorf("recovery: %w", err)
	}
	if claim != nil {
		if err := p.clear(); err != nil {
			return rep, err
		}
		if err := claim.Forget(); err != nil {
			return rep, fmt.Errorf("recovery: %w", err)
		}
	}
	generation, _ := o.Space.Unswept()
	return rep, o.Space.Swept(generation)
}

// power is one attempt.
type power struct {
	*run
	o   *Options
	rep *PowerReport

	latest  map[layout.Addr]log.Entry // the last record, or node, of blocks that have one
	touched map[layout.Addr]bool      // blocks that the logs tell of
	tables  []layout.Table
}

// resolve finds out which images of the logs are the last ones.
func (p *power) resolve() error {
	type place struct {
		at      layout.Addr
		version record.TxID
	}
	since := p.o.Space.Checkpoint()
	replaced := map[place]bool{}
	var entries []log.Entry
	for _, x := range p.txs {
		if x.Kind != log.Redo || x.Generation < since {
			continue
		}
		for _, e := range x.Record.Entries {
			entries = append(entries, e)
			p.touched[e.Addr] = true
			replaced[place{e.Addr, e.Prev}] = true
		}
	}
	for _, e := range entries {
		if !keeps(e.Image) || replaced[place{e.Addr, e.Image.Version()}] {
			continue
		}
		if other, ok := p.latest[e.Addr]; ok {
			return fmt.Errorf("%w: the logs have two last records of block %v: of transactions %v and %v",
				ErrCorrupt, e.Addr, other.Image.Version(), e.Image.Version())
		}
		p.latest[e.Addr] = e
	}
	return nil
}

// ErrCorrupt says that what is stored is damaged beyond what a loss of power does.
var ErrCorrupt error = layout.DamageError("recovery: stored data is damaged")

// rebuild brings every block into its state.
func (p *power) rebuild(c *rdma.Coro) error {
	b := &builder{power: p, c: c, t: c.Thread()}
	if err := b.open(); err != nil {
		return err
	}
	defer b.close()
	l := p.o.Space.Layout()
	for id := range l.Segments {
		if g := &l.Segments[id]; g.Kind == layout.KindBlocks && g.Placement.N > 0 {
			if err := b.segment(layout.SegmentID(id), g.Class, l.Backed(layout.SegmentID(id))); err != nil {
				return err
			}
		}
	}
	return nil
}

// builder goes over all blocks.
type builder struct {
	*power
	c     *rdma.Coro
	t     *rdma.Thread
	batch rdma.Batch
	bufs  [layout.MaxReplicas]uint32 // arena: a span of blocks of each copy
	span  uint32
	out   uint32 // arena: an image to be written
	zero  []byte
}

// spanBytes is how much of each copy is read at once; blocks that are larger are
// read alone.
const spanBytes = 128 << 10

func (b *builder) open() (err error) {
	b.span = spanBytes
	l := b.o.Space.Layout()
	for i := range l.Segments {
		if l.Segments[i].Kind == layout.KindBlocks {
			b.span = max(b.span, l.Segments[i].Class.Size())
		}
	}
	for k := range b.bufs {
		if b.bufs[k], err = b.t.Alloc(int(b.span)); err != nil {
			return fmt.Errorf("recovery: memory for blocks: %w", err)
		}
	}
	if b.out, err = b.t.Alloc(int(b.span)); err != nil {
		return fmt.Errorf("recovery: memory for blocks: %w", err)
	}
	b.zero = make([]byte, record.LineSize)
	return nil
}

func (b *builder) close() {
	_ = b.c.Drain(&b.batch)
	for _, at := range b.bufs {
		if at != 0 {
			b.t.Free(at, int(b.span))
		}
	}
	if b.out != 0 {
		b.t.Free(b.out, int(b.span))
	}
}

func (b *builder) segment(id layout.SegmentID, class layout.Class, segmentSize uint32) error {
	size := class.Size()
	v := b.o.Space.View()
	per := max(spanBytes/size, 1)
	for first, n := uint32(0), segmentSize/size; first < n; first += per {
		k := min(per, n-first)
		at := layout.MakeAddr(id, first*size)
		copies := v.Copies(at)
		b.batch.Reset()
		for i := range copies {
			b.batch.Read(v.At(at, i), b.bufs[i], k*size)
		}
		if err := b.c.Do(&b.batch); err != nil {
			return fmt.Errorf("recovery: reading blocks: %w", err)
		}
		for j := range k {
			if err := b.block(v, at+layout.Addr(j*size), class, j*size, copies); err != nil {
				return err
			}
		}
	}
	return nil
}

// block brings one block into its state; its copies are in the buffers, at off.
func (b *builder) block(v *layout.View, a layout.Addr, class layout.Class, off uint32, copies int) error {
	size := class.Size()
	img := func(k int) record.Image { return record.Image(b.t.Bytes(b.bufs[k]+off, size)) }
	var image record.Image
	if e, ok := b.latest[a]; ok && b.dropped(e.Image) {
		image = nil
	} else if ok {
		image = e.Image
		b.rep.Restored++
	} else if b.dropped(img(0)) {
		image = nil
	} else if !b.touched[a] && keeps(img(0)) && !isReserved(img(0)) {
		from := -1
		for k := 0; k < copies && from < 0; k++ {
			if m := img(k).Meta(); m.State() == img(0).Meta().State() && m.Class() == class {
				if need, err := img(k).Check(a); err == nil {
					from, image = k, record.Image(bytes.Clone(img(k)[:need])) // its guard changes
				}
			}
		}
		if from < 0 {
			return fmt.Errorf("%w: the record in block %v matches its checksum on none of its %d copies",
				ErrCorrupt, a, copies)
		}
	}
	if image == nil {
		for k := range copies {
			if err := b.blank(v, a, k, img(k)); err != nil {
				return err
			}
		}
		return nil
	}
	if m := image.Meta(); m.Class() != class || len(image) > int(size) {
		return fmt.Errorf("%w: a record of class %d in block %v of class %d", ErrCorrupt, m.Class(), a, class)
	}
	image.SetGuard(record.FreeAt(image.Version()))
	for k := range copies {
		if bytes.Equal(img(k)[:len(image)], image) {
			continue
		}
		if k > 0 {
			b.rep.Copied++
		}
		if err := b.write(v.At(a, k), image); err != nil {
			return err
		}
	}
	if image.Meta().State() == record.Live {
		b.rep.Records++
	}
	return nil
}

// keeps reports whether an image is what its block has to have when the database is opened: a
// record, a node, or a deleted record, to which a node still leads.
func keeps(image record.Image) bool {
	s := image.Meta().State()
	return s.Valued() || s == record.Absent
}

// isReserved reports whether an image is what a commit has written, without a log yet, to a new
// block of which a copy was being built: it is absent, and younger than its lock, or the guard has
// not arrived. Nothing leads there. A record that was deleted is older than whatever has locked it.
func isReserved(img record.Image) bool {
	v, lock := img.Version(), img.Lock()
	return img.Meta().State() == record.Absent && !img.Stable() &&
		(!img.Guard().Held() || lock.Coordinator() == v.Coordinator() && v.Seq() > lock.Seq())
}

// dropped reports whether an image is of a table of which nothing is left, or of one whose load
// was cut short, or a node of a table that was to get one of nodes in place of its index. The catalog
// was on disk when that was said, and blocks that were freed before may not have been.
func (b *builder) dropped(image record.Image) bool {
	id := int(image.Meta().Table())
	if id == 0 || id > len(b.tables) {
		return false
	}
	t := &b.tables[id-1]
	return t.State == layout.TableDropped || t.State == layout.TableDropping && t.Root == 0 && !t.Ordered() ||
		image.Meta().State() == record.Node && !t.InBlocks()
}

// blank makes a block one that was never used.
func (b *builder) blank(v *layout.View, a layout.Addr, k int, img record.Image) error {
	if bytes.Equal(img[:record.LineSize], b.zero) {
		return nil
	}
	return b.write(v.At(a, k), b.zero)
}

func (b *builder) write(to rdma.RemoteAddr, p []byte) error {
	copy(b.t.Bytes(b.out, uint32(len(p))), p)
	b.batch.Reset()
	b.batch.Write(to, b.out, uint32(len(p)))
	if err := b.c.Do(&b.batch); err != nil {
		return fmt.Errorf("recovery: writing blocks: %w", err)
	}
	return nil
}
