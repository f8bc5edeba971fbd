package recovery

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
//     but all but the last have ended in a delete or a move.
//   - Any other block with a live record, or a node, is as the checkpoint has flushed it, but for
//     its lock, since images are written to primaries only when their log is durable.
//     Backups may have images of transactions whose log is lost, and are made equal.
//   - All other blocks are free.
//   - The hash indexes are built again, from the blocks. Nodes come back as records do.
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
			return rep, fmt.Errorf("recovery: which keys were lost, the indexes alone knew, and they are not what "+
				"survives a loss of power: %w; "+
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
		indexes: map[uint16]*race.Index{},
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
		p.run = &run{
			c: c, t: t, o: &o, claim: claim, v: claim.View(), rep: &rep.Report, tables: map[uint16]index.Finder{},
		}
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
	if err := o.Space.FlushSegments(c, layout.KindBlocks, layout.KindIndex); err != nil {
		return rep, fmt.Errorf("recovery: %w", err)
	}
	for _, id := range p.order {
		if err := o.Space.SetTableRoot(id, p.indexes[id].Root()); err != nil {
			return rep, fmt.Errorf("recovery: %w", err)
		}
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

	latest  map[layout.Addr]log.Entry // the last live record, or node, of blocks that have one
	touched map[layout.Addr]bool      // blocks that the logs tell of
	tables  []layout.Table
	indexes map[uint16]*race.Index
	order   []uint16 // tables with an index
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
			if e.Kind == log.Move {
				p.touched[e.From] = true
				replaced[place{e.From, e.Prev}] = true
			}
		}
	}
	for _, e := range entries {
		if !p.keeps(e.Image) || replaced[place{e.Addr, e.Image.Version()}] {
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

// rebuild brings every block into its state, and makes new indexes.
func (p *power) rebuild(c *rdma.Coro) error {
	s := p.o.Space
	options := map[uint16]race.Options{}
	for _, t := range p.tables {
		if t.Root == 0 || t.InBlocks() {
			continue
		}
		options[t.ID] = race.Options{}
		if ix, err := race.Open(c, s, t.Root, t.ID); err == nil {
			g := ix.Geometry()
			options[t.ID] = race.Options{Groups: g.Groups, MaxDepth: g.MaxDepth}
		}
	}
	for _, x := range s.Extents() {
		if _, err := s.FreeExtent(x); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	b := &builder{power: p, c: c, t: c.Thread(), links: map[uint16][]race.Linked{}}
	if err := b.open(); err != nil {
		return err
	}
	defer b.close()
	l := s.Layout()
	if err := b.count(l); err != nil {
		return err
	}
	for id := range l.Segments {
		if g := &l.Segments[id]; g.Kind == layout.KindBlocks && g.Placement.N > 0 {
			if err := b.segment(layout.SegmentID(id), g.Class, l.Backed(layout.SegmentID(id))); err != nil {
				return err
			}
		}
	}
	for _, t := range p.tables {
		if t.Root == 0 || t.InBlocks() {
			continue
		}
		_, ix, err := race.Build(c, s, t.ID, options[t.ID], b.links[t.ID], b.twice, nil)
		if err != nil {
			return fmt.Errorf("recovery: a new index for table %q: %w", t.Name, err)
		}
		ix.SetOwner(p.o.owner(s.View()))
		p.indexes[t.ID] = ix
		p.order = append(p.order, t.ID)
		delete(b.links, t.ID)
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
	links map[uint16][]race.Linked // by table: what its index is built of
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
	} else if !b.touched[a] && b.keeps(img(0)) && !isDeparted(img(0)[:record.LineSize]) && !isReserved(img(0)) {
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
	switch {
	case image.Meta().State() == record.Node:
		return nil
	case image.Meta().State() == record.Live:
		b.rep.Records++
	}
	if b.ordered(image) { // what leads to it is in a node
		return nil
	}
	return b.link(a, class, image)
}

// keeps reports whether an image is what its block has to have when the database is opened:
// a record, or a node. Of an ordered table it may also be that of a deleted record, to which
// a node still leads.
func (p *power) keeps(image record.Image) bool {
	s := image.Meta().State()
	return s.Valued() || s == record.Absent && p.ordered(image)
}

// isReserved reports whether an image is what a commit has written, without a log yet, to a new
// block of which a copy was being built: it is absent, and younger than its lock, or the guard has
// not arrived. Nothing leads there. A record that was deleted is older than whatever has locked it.
func isReserved(img record.Image) bool {
	v, lock := img.Version(), img.Lock()
	return img.Meta().State() == record.Absent && !img.Stable() &&
		(!img.Guard().Held() || lock.Coordinator() == v.Coordinator() && v.Seq() > lock.Seq())
}

// ordered reports whether an image is of an ordered table.
func (p *power) ordered(image record.Image) bool {
	id := int(image.Meta().Table())
	return id > 0 && id <= len(p.tables) && p.tables[id-1].InBlocks()
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

// link notes that a record is to be in the index of its table.
func (b *builder) link(a layout.Addr, class layout.Class, image record.Image) error {
	table := image.Meta().Table()
	links, ok := b.links[table]
	if !ok {
		return fmt.Errorf("%w: the record in block %v is of table %d, which has no index", ErrCorrupt, a, table)
	}
	b.links[table] = append(links, race.Link(record.Hash(table, image.Key()), a, class))
	return nil
}

// count makes room for the links: about as many as there are records, since they take a quarter of
// the memory that those do, and slices that grow take twice as much.
func (b *builder) count(l *layout.Layout) error {
	n := map[uint16]int{}
	for _, t := range b.tables {
		if t.Root != 0 && !t.InBlocks() {
			n[t.ID] = 0
		}
	}
	v := b.o.Space.View()
	for id := range l.Segments {
		g := &l.Segments[id]
		if g.Kind != layout.KindBlocks || g.Placement.N == 0 {
			continue
		}
		size := g.Class.Size()
		stride, per := uint32(record.LineSize), uint32(sweepBlocks)
		if size <= spanBlock {
			stride, per = size, b.span/size
		}
		for first, all := uint32(0), l.Backed(layout.SegmentID(id))/size; first < all; first += per {
			k := min(per, all-first)
			if err := readHeads(b.c, v, b.bufs[0], layout.MakeAddr(layout.SegmentID(id), first*size), 0, size,
				stride, k); err != nil {
				return err
			}
			p := b.t.Bytes(b.bufs[0], k*stride)
			for ; len(p) > 0; p = p[stride:] {
				m := record.Image(p[:record.LineSize]).Meta()
				if _, ok := n[m.Table()]; ok && m.State() == record.Live {
					n[m.Table()]++
				}
			}
		}
	}
	for table, n := range n {
		b.links[table] = make([]race.Linked, 0, n)
	}
	return nil
}

// twice returns ErrCorrupt if two blocks, which have their records, have the same key.
func (b *builder) twice(x, y layout.Addr) (layout.Addr, error) {
	v, l := b.o.Space.View(), b.o.Space.Layout()
	var keys [2][]byte
	b.batch.Reset()
	for i, a := range [2]layout.Addr{x, y} {
		b.batch.Read(v.At(a, 0), b.bufs[i], l.Segments[a.Segment()].Class.Size())
	}
	if err := b.c.Do(&b.batch); err != nil {
		return 0, fmt.Errorf("recovery: reading blocks: %w", err)
	}
	for i, a := range [2]layout.Addr{x, y} {
		image := record.Image(b.t.Bytes(b.bufs[i], l.Segments[a.Segment()].Class.Size()))
		if _, err := image.Check(a); err != nil {
			return 0, fmt.Errorf("%w: block %v: %w", ErrCorrupt, a, err)
		}
		keys[i] = image.Key()
	}
	if bytes.Equal(keys[0], keys[1]) {
		return 0, fmt.Errorf("%w: blocks %v and %v have the same key", ErrCorrupt, x, y)
	}
	return 0, nil
}
