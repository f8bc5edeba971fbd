package verify

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Database is attached to the blades of a database. It belongs to one goroutine.
type Database struct {
	f rdma.Fabric
	l *layout.Layout
	t *rdma.Thread
	c *rdma.Coro
	v *layout.View
	// stale: the epoch has moved, and the keys open nothing any more.
	stale bool
}

const (
	// chunk is how many bytes of a copy are read at once.
	chunk = 1 << 20
	// arenaSpare is arena for the small buffers, and those of package race.
	arenaSpare = 4 << 20
)

// Attach attaches to the blades that a catalog's layout describes. It reads and
// changes nothing, so the headers of the regions may be anything. The database
// must not be in use by anybody who writes.
func Attach(f rdma.Fabric, l *layout.Layout) (*Database, error) {
	infos := f.Blades()
	if len(infos) != len(l.Blades) {
		return nil, fmt.Errorf("%w: %d are there, the catalog names %d", ErrGeometry, len(infos), len(l.Blades))
	}
	keys := make([]rdma.Key, len(infos))
	for i := range infos {
		if infos[i].Size < l.Blades[i].Size {
			return nil, fmt.Errorf("%w: blade %d has %d bytes, the catalog says %d",
				ErrGeometry, i, infos[i].Size, l.Blades[i].Size)
		}
		keys[i] = infos[i].Key
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	largest := uint32(chunk)
	for i := range l.Segments {
		if l.Segments[i].Kind == layout.KindBlocks {
			largest = max(largest, l.Segments[i].Class.Size())
		}
	}
	arena := 2*layout.MaxReplicas<<bits.Len32(largest-1) + arenaSpare
	t, err := rdma.NewThread(f, rdma.ThreadOptions{Index: toolThread, Arena: arena})
	if err != nil {
		return nil, err
	}
	return &Database{f: f, l: l, t: t, c: t.Plain(), v: viewOf(l, keys)}, nil
}

// viewOf is the map of a layout.
func viewOf(l *layout.Layout, keys []rdma.Key) *layout.View {
	segs := make([]layout.Placement, len(l.Segments))
	for i := range l.Segments {
		segs[i] = l.Segments[i].Placement
	}
	return layout.NewView(l.Epoch, segs, keys)
}

// toolThread is a number that no thread of the engine has.
const toolThread = 1<<16 + 1

// Close releases the thread. The fabric is the caller's.
func (d *Database) Close() error { return d.t.Close() }

// contains reports whether n bytes at a lie in a segment of the kind.
func (d *Database) contains(a layout.Addr, n uint32, kind layout.SegmentKind) bool {
	if a>>layout.AddrBits != 0 || int(a.Segment()) >= len(d.l.Segments) {
		return false
	}
	s := &d.l.Segments[a.Segment()]
	return s.Kind == kind && s.Placement.N > 0 && !s.Leaving &&
		a.Offset() < d.l.SegmentSize && n <= d.l.SegmentSize-a.Offset()
}

// tableName is the name of a table, or its number.
func (d *Database) tableName(id uint16) string {
	if id > 0 && int(id) <= len(d.l.Tables) {
		return fmt.Sprintf("table %d %q", id, d.l.Tables[id-1].Name)
	}
	return fmt.Sprintf("table %d, which does not exist", id)
}

// Progress is how far a check is.
type Progress struct {
	Stage       string
	Done, Total uint64 // bytes of segments, of all stages
}

// Options of a check. The zero value only counts.
type Options struct {
	// Report is called for each finding; an error from it ends the check.
	Report func(Finding) error
	// Progress is called now and then; nil: never.
	Progress func(Progress)
	// Free is called for each block whose primary says that it is free and unlocked, with
	// the version word; nil: never.
	Free func(a layout.Addr, version uint64)
	// Missing says of blades why their regions are not there: each is a finding.
	Missing map[rdma.BladeID]string
	// Indexes tells which tables are secondary indexes: package txn has that (txn.CatalogIndexes).
	// nil: their entries are records like others.
	Indexes func(tables []layout.Table) []record.Secondary
	// Alive tells which coordinators are alive: their locks are in order. nil: none.
	Alive func(coordinator uint32) bool
	// Repair writes the replicas that others prove to be wrong:
	//
	//   - a block that is damaged on the primary, if its guard names no holder and
	//     all intact backups agree, is written from a backup;
	//   - a backup that differs from an intact, unlocked primary is written from it;
	//   - so are words of indexes and extents, if the word of the primary is sound,
	//     and the other way round if only that of a backup is;
	//   - a live record that no slot leads to gets one, if its key has no other record and
	//     nothing is left of anybody who has died;
	//   - the block of a deleted record that no slot leads to, or of a node to which nothing leads
	//     in a tree that is sound, is made free, likewise.
	//
	// Nothing is written if a blade is strange or missing, but for headers, and nothing at
	// all if the database is unrecovered (Summary). The
	// fabric must be writable and nobody else may use the database.
	Repair bool
}

// Check walks the database. The error says why the walk could not go on: that of
// ctx or Report, or no arena; what is wrong with the database is in the findings.
func (d *Database) Check(ctx context.Context, o Options) (sum Summary, err error) {
	w := &walker{
		Database: d, ctx: ctx, o: o, pending: map[txid]string{}, fills: map[layout.Addr]txid{},
		walks: map[uint16]*indexWalk{}, suspects: map[layout.Addr]bool{}, nodes: map[layout.Addr]nodePlace{},
	}
	defer w.release()
	defer func() { // what was never made, for want of space, is in the catalog alone
		sum.Tables = slices.DeleteFunc(sum.Tables, func(t TableSummary) bool { return d.l.Tables[t.ID-1].Root == 0 })
	}()
	if err := w.prepare(); err != nil {
		return w.sum, err
	}
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"files", w.files}, {"regions", w.regions}, {"places", w.places}, {"extents", w.extentTables}, {"logs", w.logs},
		{"indexes", w.indexes}, {"blocks", w.blocks},
	} {
		w.stage = s.name
		w.advance(0)
		s.run()
		if w.err != nil {
			return w.sum, w.err
		}
		if s.name == "regions" && len(w.sum.Strange)+len(w.sum.Missing) > 0 {
			w.setAside(append(slices.Clone(w.sum.Strange), w.sum.Missing...))
		}
	}
	return w.sum, nil
}

// walker is a check in progress.
type walker struct {
	*Database
	ctx   context.Context
	o     Options
	err   error // why the walk ends
	sum   Summary
	stage string
	done  uint64
	total uint64

	chunks [layout.MaxReplicas]uint32 // arena: a chunk of each copy
	whole  [layout.MaxReplicas]uint32 // arena: a block of each copy
	size   int                        // of each of these
	small  uint32                     // arena: smallSize bytes
	batch  rdma.Batch

	linked  [][]uint64 // by segment: a bit for each block that a slot, or a node, leads to
	extents map[layout.SegmentID]*extentTable
	pending map[txid]string      // transactions that are undecided: what is known of them
	fills   map[layout.Addr]txid // blocks that were free, and that one of them fills

	secondary []record.Secondary
	keySets   map[uint16]*keySet      // by table
	entries   map[uint16][]entryPlace // by table

	walks    map[uint16]*indexWalk // by table: those that were followed to their end
	suspects map[layout.Addr]bool  // blocks that slots lead to which are damaged, and cannot be repaired
	orphans  []orphan
	nodes    map[layout.Addr]nodePlace // of ordered tables, of which a copy is at fault
	// parts of files, by their numbers, of which it was said that they cannot be read
	dark map[rdma.RemoteAddr]bool
}

// smallSize is the size of the small buffer.
const smallSize = 64 << 10

// prepare takes the buffers.
func (w *walker) prepare() error {
	w.size = chunk
	w.linked = make([][]uint64, len(w.l.Segments))
	for i := range w.l.Segments {
		s := &w.l.Segments[i]
		if s.Placement.N == 0 {
			continue
		}
		w.sum.Segments++
		w.total += uint64(w.l.SegmentSize)
		if s.Kind == layout.KindBlocks {
			w.size = max(w.size, int(s.Class.Size()))
			w.linked[i] = make([]uint64, (w.l.SegmentSize/s.Class.Size()+63)/64)
		}
	}
	w.sum.Blades = len(w.l.Blades)
	w.sum.Coordinators = len(w.l.Coordinators)
	r := w.l.Redundancy()
	w.sum.BladesDown, w.sum.CopiesMissing, w.sum.SegmentsLost = r.Down, r.Missing, r.Lost
	if w.l.Checkpoint != 0 {
		w.sum.Unrecovered, w.o.Repair = true, false
	}
	w.sum.ByKind = map[Kind]uint64{}
	for i := range w.l.Tables {
		w.sum.Tables = append(w.sum.Tables, TableSummary{ID: w.l.Tables[i].ID, Name: w.l.Tables[i].Name})
	}
	w.secondaries()
	var errs []error
	take := func(n int) uint32 {
		a, err := w.t.Alloc(n)
		errs = append(errs, err)
		return a
	}
	for k := range layout.MaxReplicas {
		w.chunks[k], w.whole[k] = take(w.size), take(w.size)
	}
	w.small = take(smallSize)
	if err := errors.Join(errs...); err != nil {
		w.size = 0
		return err
	}
	return nil
}

func (w *walker) release() {
	if w.size == 0 {
		return
	}
	for k := range layout.MaxReplicas {
		w.t.Free(w.chunks[k], w.size)
		w.t.Free(w.whole[k], w.size)
	}
	w.t.Free(w.small, smallSize)
}

// stopped reports whether the walk is to end.
func (w *walker) stopped() bool {
	if w.err == nil && w.ctx.Err() != nil {
		w.err = context.Cause(w.ctx)
	}
	return w.err != nil
}

// advance notes that n bytes of segments are done.
func (w *walker) advance(n uint64) {
	w.done += n
	if w.o.Progress != nil {
		w.o.Progress(Progress{Stage: w.stage, Done: min(w.done, w.total), Total: w.total})
	}
}

// alive reports whether a coordinator is.
func (w *walker) alive(coordinator uint32) bool {
	return w.o.Alive != nil && w.o.Alive(coordinator)
}

// table is the summary of a table, nil if there is none of this number.
func (w *walker) table(id uint16) *TableSummary {
	if id == 0 || int(id) > len(w.sum.Tables) {
		return nil
	}
	return &w.sum.Tables[id-1]
}
