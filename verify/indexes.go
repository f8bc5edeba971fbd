package verify

import (
	"bytes"
	"fmt"
	"math/bits"

	"txnode/index/race"
	"txnode/memory/layout"
)

// indexes walks the indexes of all tables.
func (w *walker) indexes() {
	for i := range w.l.Tables {
		if w.stopped() {
			return
		}
		t := &w.l.Tables[i]
		if t.Root == 0 {
			// a load was cut short: its blocks are to be freed
			w.sum.Tables[i].Unwalked = t.State == layout.TableDropping
			// whoever created the table did not come further; the next who opens it does
			continue
		}
		if t.InBlocks() {
			w.sum.Tables[i].Unwalked = !w.tree(t, &w.sum.Tables[i])
			continue
		}
		x := &indexWalk{walker: w, id: t.ID, root: t.Root, sum: &w.sum.Tables[i], twice: map[layout.Addr]bool{}}
		if !x.walk() {
			x.sum.Unwalked = true
			continue
		}
		w.walks[t.ID] = x
	}
	w.unclaimed()
	for id := range w.l.Segments {
		if s := &w.l.Segments[id]; s.Kind == layout.KindIndex && s.Placement.N > 0 {
			w.advance(uint64(w.l.SegmentSize))
		}
	}
}

// indexWalk is the walk over one index.
type indexWalk struct {
	*walker
	id   uint16
	root layout.Addr
	sum  *TableSummary
	g    race.Geometry
	dir  []race.Entry
	// parts are the extents of the directory beside the root, by number; 0: there is none.
	parts [race.MaxMaxDepth]layout.Addr

	table   layout.Addr   // the sub-table that is walked
	headers []race.Header // of its buckets, as far as they were read
	keys    []linkedKey   // of the sub-table
	// splitting: the sub-table is being split, or filled: its buckets may be
	// responsible for the keys of both halves, and slots be in both.
	splitting bool
	only      []onlyBackup
	twice     map[layout.Addr]bool // blocks with two slots
}

func (x *indexWalk) found(kind Kind, a layout.Addr, replica int, format string, args ...any) {
	x.walker.found(x.at(Finding{Kind: kind, Table: x.id, What: fmt.Sprintf(format, args...)}, a, replica))
}

// walk returns false if a part of the index could not be followed.
func (x *indexWalk) walk() (complete bool) {
	if x.root%lineSize != 0 || !x.contains(x.root, rootSize, layout.KindIndex) {
		x.found(KindRoot, x.root, 0, "the catalog says that the index of %s is here: no such place", x.tableName(x.id))
		return false
	}
	if !x.readRoot() || !x.readDirectory() {
		return false
	}
	complete = true
	for i, e := range x.dir {
		if x.stopped() {
			return false
		}
		switch {
		case e == 0:
			complete = false
		case uint32(i)>>e.Depth() == 0:
			complete = x.subTable(e, uint32(i)) && complete
		}
	}
	x.settleBackups()
	return complete
}

// readRoot finds the geometry, and checks the words before the directory.
func (x *indexWalk) readRoot() bool {
	copies := x.copies(x.root, rootLines, &x.chunks)
	if !x.sealedLine(x.root, KindRoot, copies, lineSize, func(p []byte) error {
		g, err := race.ParseRoot(p)
		if err == nil && g.Table != x.id {
			err = fmt.Errorf("it is the root of table %d", g.Table)
		}
		if err == nil {
			x.g = g
		}
		return err
	}) {
		return false
	}
	if f := x.claim(x.root, rootSize); f != nil {
		x.found(f.kind, x.root, 0, "the root of the index of %s: %s", x.tableName(x.id), f.what)
	}
	depth := uint64(0)
	tails := tails(copies, lineSize)
	x.words(x.root+lineSize, x.id, tails, func(off uint32, v uint64) *fault {
		switch {
		case off+lineSize == depthOff && v > uint64(x.g.MaxDepth):
			return faultf(KindRoot, "global depth %d, at most %d is possible", v, x.g.MaxDepth)
		case off+lineSize == depthOff && differ(tails, off) && !x.depthFits(uint8(v)):
			return faultf(KindRoot, "global depth %d, but the directory has entries for another one", v)
		case off+lineSize == depthOff:
			depth = v
		case off+lineSize == dirLockOff && v != 0 && !x.alive(uint32(v>>lockOwner)):
			f := faultf(KindLock, "the directory is locked by client %d", v>>lockOwner)
			f.theirs = true
			return f
		case off+lineSize >= partsOff && off+lineSize < partWord(int(x.g.MaxDepth)):
			return x.partHere(int(off+lineSize-partsOff)/8+rootBits, v, depth)
		}
		return nil
	})
	if tails[0] == nil {
		return false
	}
	x.dir = make([]race.Entry, 1<<depth)
	return x.readParts(int(depth))
}

// partHere judges a word that says where part k of the directory is.
func (x *indexWalk) partHere(k int, v, depth uint64) *fault {
	x.parts[k] = 0
	a := layout.Addr(v)
	switch {
	case v == 0 && uint64(k) >= depth:
		return nil
	case v == 0:
		return faultf(KindRoot, "part %d of the directory is nowhere, but the global depth is %d", k, depth)
	case a%lineSize != 0 || !x.contains(a, partSize(k), layout.KindIndex):
		return faultf(KindRoot, "part %d of the directory at %v: it has no room there", k, a)
	}
	for r := range x.v.Copies(a) {
		if p := x.read(a, r, x.small, partHeader); p != nil && x.parsePart(p, k) == nil {
			x.parts[k] = a
			return nil
		}
	}
	return faultf(KindRoot, "part %d of the directory at %v: no copy of it is intact", k, a)
}

// parsePart returns what is wrong with the first line of part k of the directory.
func (x *indexWalk) parsePart(p []byte, k int) error {
	g, root, number, err := race.ParsePart(p)
	if err == nil && (g != x.g || root != x.root || int(number) != k) {
		err = fmt.Errorf("it is part %d of the directory of the index at %v, with geometry %+v", number, root, g)
	}
	return err
}

// readParts checks the first lines of the parts of the directory. It returns whether those
// in use can be read.
func (x *indexWalk) readParts(depth int) bool {
	for k, a := range x.parts {
		switch {
		case a == 0 && k >= rootBits && k < depth:
			return false
		case a == 0:
			continue
		}
		if f := x.claim(a, partSize(k)); f != nil {
			x.found(f.kind, a, 0, "part %d of the directory of %s: %s", k, x.tableName(x.id), f.what)
		}
		copies := x.copies(a, partHeader, &x.chunks)
		if !x.sealedLine(a, KindRoot, copies, partHeader, func(p []byte) error { return x.parsePart(p, k) }) &&
			k < depth {
			return false
		}
	}
	return true
}

// tails is the copies without their first n bytes.
func tails(copies [][]byte, n int) [][]byte {
	out := make([][]byte, len(copies))
	for k, p := range copies {
		if p != nil {
			out[k] = p[n:]
		}
	}
	return out
}

// sealedLine checks the first n bytes of all copies, which carry a checksum, with
// parse, and compares them. It returns whether any copy is intact; parse was called
// for that one last.
func (x *indexWalk) sealedLine(a layout.Addr, kind Kind, copies [][]byte, n int, parse func(p []byte) error) bool {
	errs := make([]error, len(copies))
	good := -1
	for k := len(copies) - 1; k >= 0; k-- {
		if copies[k] == nil {
			continue
		}
		if errs[k] = parse(copies[k]); errs[k] == nil {
			good = k
		}
	}
	if good < 0 {
		if copies[0] != nil {
			x.found(kind, a, 0, "%v", errs[0])
		}
		return false
	}
	for k := range copies {
		switch {
		case copies[k] == nil || k == good:
		case errs[k] != nil:
			f := Finding{Kind: kind, Table: x.id, What: errs[k].Error()}
			x.repair(x.at(f, a, k), fmt.Sprintf("copy %d is written to it", good), copies[good][:n])
		case !bytes.Equal(copies[k][:n], copies[good][:n]):
			f := Finding{
				Kind: KindReplica, Table: x.id,
				What: fmt.Sprintf("copy %d is intact, but another line than that of copy %d", k, good),
			}
			x.repair(x.at(f, a, k), fmt.Sprintf("copy %d is written to it", good), copies[good][:n])
		}
	}
	return parse(copies[good]) == nil
}

// readDirectory reads the entries that are in use. One that is at fault, on every
// copy, becomes 0.
func (x *indexWalk) readDirectory() bool {
	depth := uint8(0)
	for 1<<depth < len(x.dir) {
		depth++
	}
	for first := uint32(0); first < uint32(len(x.dir)); {
		n := min(x.together(first), uint32(len(x.dir))-first, chunk/8)
		at := x.entryAt(first)
		copies := x.copies(at, 8*n, &x.chunks)
		if copies[0] == nil {
			return false
		}
		x.words(at, x.id, copies, func(off uint32, v uint64) *fault {
			i := first + off/8
			e := race.Entry(v)
			if err := e.Check(min(x.g.MaxDepth, depth)); err != nil {
				return faultf(KindRoot, "directory entry %d: %v", i, err)
			}
			if !x.contains(e.Table(), subTableSize(x.g), layout.KindIndex) {
				return faultf(KindRoot, "directory entry %d: %v: no sub-table has room there", i, e)
			}
			if e.Filling() {
				x.dir[i] = e
				f := faultf(KindSplit, "directory entry %d: %v: a split was not finished", i, e)
				f.theirs = true
				return f
			}
			if first := i & (1<<e.Depth() - 1); first < i && x.dir[first] != 0 && x.dir[first] != e {
				return faultf(KindRoot, "directory entry %d is %v, but entry %d, of the same suffix, is %v",
					i, e, first, x.dir[first])
			}
			if differ(copies, off) {
				if f := x.confirmEntry(i, e); f != nil {
					return f
				}
			}
			x.dir[i] = e
			return nil
		})
		first += n
	}
	owner := map[layout.Addr]uint32{}
	for i, e := range x.dir {
		if e == 0 {
			continue
		}
		first := uint32(i) & (1<<e.Depth() - 1)
		if o, ok := owner[e.Table()]; ok && o != first {
			x.found(KindRoot, x.entryAt(uint32(i)), 0, "directory entry %d: %v is the sub-table of entry %d, too",
				i, e, o)
			x.dir[i] = 0
			continue
		}
		owner[e.Table()] = first
	}
	return !x.stopped()
}

// entryAt is where entry i of the directory is.
func (x *indexWalk) entryAt(i uint32) layout.Addr { return entryAt(x.root, &x.parts, i) }

func entryAt(root layout.Addr, parts *[race.MaxMaxDepth]layout.Addr, i uint32) layout.Addr {
	if k := bits.Len32(i) - 1; k >= rootBits {
		return parts[k] + partHeader + layout.Addr(8*(i-1<<k))
	}
	return root + rootLines + layout.Addr(8*i)
}

// together is how many entries of the directory lie in one piece from entry i on.
func (x *indexWalk) together(i uint32) uint32 {
	if k := bits.Len32(i) - 1; k >= rootBits {
		return 2<<k - i
	}
	return 1<<rootBits - i
}

// differ reports whether the copies of the word at off are not all the same.
func differ(copies [][]byte, off uint32) bool {
	for _, p := range copies[1:] {
		if p != nil && copies[0] != nil && word(p, off) != word(copies[0], off) {
			return true
		}
	}
	return false
}

// depthFits asks the directory which of several global depths is right: on some copy, all
// entries that are then in use have at most this depth, and the next one is blank. Of the
// primary alone it must not ask, whose directory may have been damaged with the depth.
func (x *indexWalk) depthFits(depth uint8) bool {
	if depth > x.g.MaxDepth {
		return false
	}
	for k := range x.v.Copies(x.root) {
		if x.depthFitsCopy(depth, k) {
			return true
		}
	}
	return false
}

func (x *indexWalk) depthFitsCopy(depth uint8, replica int) bool {
	root := x.read(x.root, replica, x.small, rootLines)
	if root == nil {
		return false
	}
	var parts [race.MaxMaxDepth]layout.Addr
	for k := rootBits; k < len(parts); k++ {
		parts[k] = layout.Addr(word(root, partWord(k)))
		if k < int(depth) && (parts[k]%lineSize != 0 || !x.contains(parts[k], partSize(k), layout.KindIndex)) {
			return false
		}
	}
	for first := uint32(0); first < 1<<depth; {
		n := min(x.together(first), 1<<depth-first, smallSize/8)
		a := entryAt(x.root, &parts, first)
		p := x.read(a, min(replica, x.v.Copies(a)-1), x.small, 8*n)
		for off := uint32(0); off < 8*n; off += 8 {
			if p == nil || race.Entry(word(p, off)).Check(depth) != nil {
				return false
			}
		}
		first += n
	}
	switch {
	case depth == x.g.MaxDepth:
		return true
	case depth >= rootBits:
		return parts[depth] == 0
	}
	p := x.read(x.root+rootLines+layout.Addr(8<<depth), replica, x.small, 8)
	return p != nil && word(p, 0) == 0
}

// confirmEntry asks the first bucket of a sub-table whether a directory entry is
// right: for those whose copies differ.
func (x *indexWalk) confirmEntry(i uint32, e race.Entry) *fault {
	p := x.read(e.Table()+tableHeader, 0, x.small, lineSize)
	if p == nil {
		return nil
	}
	h := race.Header(word(p, bucketHeader))
	if h.Check(x.id) != nil || h.Depth() != e.Depth() || h.Suffix() != i&(1<<e.Depth()-1) {
		return faultf(KindRoot, "directory entry %d is %v, but the first bucket there says %v", i, e, h)
	}
	return nil
}

// walkGroups is how many groups of buckets are read at once.
const walkGroups = 64

// subTable walks a sub-table; false: it could not be followed.
func (x *indexWalk) subTable(e race.Entry, suffix uint32) bool {
	at := e.Table()
	if f := x.claim(at, subTableSize(x.g)); f != nil {
		x.found(f.kind, at, 0, "the sub-table of suffix %b of %s: %s", suffix, x.tableName(x.id), f.what)
		if f.kind == KindDuplicate {
			return false
		}
	}
	x.sum.SubTables++
	copies := x.copies(at, tableHeader, &x.chunks)
	if copies[0] == nil {
		return false
	}
	intact := x.sealedLine(at, KindSubTable, copies, tableSealed, func(p []byte) error {
		b, err := race.ParseBirth(p)
		switch {
		case err != nil:
			return err
		case b.Geometry != x.g || b.Root != x.root:
			return fmt.Errorf("a sub-table of the index at %v, with geometry %+v", b.Root, b.Geometry)
		case b.Suffix != suffix || b.Depth > e.Depth():
			return fmt.Errorf("a sub-table made for suffix %b of depth %d, used for %b of depth %d",
				b.Suffix, b.Depth, suffix, e.Depth())
		}
		return nil
	})
	x.splitting = e.Filling()
	x.words(at+tableChild, x.id, tails(copies, tableChild), func(off uint32, v uint64) *fault {
		var f *fault
		switch {
		case v == 0:
			return nil
		case off+tableChild == tableLock && x.alive(uint32(v>>lockOwner)):
			return nil
		case off+tableChild == tableLock:
			f = faultf(KindLock, "the sub-table is locked by client %d, which splits it", v>>lockOwner)
		default:
			f = faultf(KindSplit, "the sub-table is being split into that at %v", layout.Addr(v))
		}
		f.theirs = true
		x.splitting = true
		return f
	})
	header := race.MakeHeader(x.id, e.Depth(), suffix)
	x.table, x.headers, x.keys = at, x.headers[:0], x.keys[:0]
	complete := true
	for o := uint32(tableHeader); o < subTableSize(x.g) && !x.stopped(); o += walkGroups * groupSize {
		complete = x.buckets(at, o, min(walkGroups*groupSize, subTableSize(x.g)-o), header, !intact) && complete
	}
	x.twins()
	if complete && intact && !x.splitting {
		x.marks(header)
	}
	return complete
}
