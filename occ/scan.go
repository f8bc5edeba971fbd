package occ

import (
	"errors"
	"fmt"

	"txnode/history"
	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// Bounds of scans.
const (
	scanFirst  = 64 // records of the first piece; each further one has scanGrowth times as many
	scanGrowth = 4
	scanAtEnd  = 1024     // records of a piece, if pieces are not validated
	scanRoom   = 64 << 10 // bytes of arena for blocks that are read together, if there is room
	scanLeast  = 8 << 10  // and at least
	scanBatch  = 256      // blocks that are read together, at most
	scanGuards = 512      // guards that are read together
	scanLooks  = 8        // at a piece of the index that leads to blocks which are free
	// evidenceSize is what a block counts against the arena, though it lies elsewhere.
	evidenceSize = 16
)

// ErrDropped says that the table was dropped.
var ErrDropped = errors.New("txn: the table was dropped; CreateTable makes a new one")

// ErrNoScan says that the index of the table cannot be walked.
var ErrNoScan = errors.New("txn: the index of the table cannot be walked")

// Scan is a walk over all records of a table, in no order, as a part of a transaction.
//
// It reads the index and the records that this leads to in pieces. Each piece is validated, with all
// before it, before the caller gets the first record of it. Pieces grow, so that validation costs
// about as much as the walk does. With ValidateAtEnd, and policy FORD, it is validated once.
//
// What is validated is the guard of each record, as for other reads, and in the end the index: a
// key that was not met had no record. If the index has changed, the walk is repeated without the
// records that it knows. Records that it finds then come next, as long as the caller was not told that
// there are no more. After that they are a conflict.
//
// What the transaction itself has written is part of the walk as it is when the walk comes to it.
type Scan struct {
	tx    *Tx
	id    record.TxID // of the transaction
	table *Table
	ix    index.Scan   // nil: the index is ordered
	o     *orderedScan // nil: it is not
	next  *Scan        // the one that the transaction began before

	*scanSpace
	known map[memory.Addr]int32 // by address, the number in found
	took  int                   // of rows, those that are the caller's
	want  int                   // rows of the next piece
	seen  []history.Op          // of all rows, if the transaction is recorded

	stage     scanStage
	own, last int  // items that the caller has got of its own, and that it is to get
	complete  bool // all of the index was read: what was not met was not there
	claimed   bool // the caller knows that
	checking  bool // the transaction is being validated
	insists   bool // it locks what it reads: see Insist
	locks     []leafLock
}

// scanSpace is what a Scan collects. It is used again by scans of later transactions, so that a scan
// allocates nothing for its records. A Scan whose transaction has ended no longer looks at it.
type scanSpace struct {
	found []evidence
	batch rdma.Batch
	// cands are the blocks of a piece of the index, and reading those that are read together.
	cands, reading []index.Candidate
	blocks         []block // of an ordered table, that are read together
	ordered        orderedScan

	rows []scanRow // of the piece
	data []byte    // their keys and values
	// given are the data of earlier pieces, which the caller may keep until the transaction ends; spare are free.
	given, spare [][]byte
}

// spareSpace is how many bytes of scanSpace a Tx keeps between transactions, about: the next one may not begin for long.
const spareSpace = 1 << 20

// newScan begins a scan that has read nothing.
func (tx *Tx) newScan(t *Table) *Scan {
	s := &Scan{tx: tx, id: tx.id, table: t, want: scanFirst, next: tx.scans}
	if n := len(tx.spaces); n > 0 {
		s.scanSpace, tx.spaces = tx.spaces[n-1], tx.spaces[:n-1]
		s.found, s.rows = s.found[:0], s.rows[:0]
		s.spare = append(s.spare, s.given...)
		s.data, s.given = s.data[:0], s.given[:0]
	} else {
		s.scanSpace = new(scanSpace)
	}
	tx.scans = s
	return s
}

// endScans takes the spaces of all scans back, as many as may be kept.
func (tx *Tx) endScans() {
	room := spareSpace
	for _, x := range tx.spaces {
		room -= x.size()
	}
	for s := tx.scans; s != nil; s = s.next {
		if room -= s.size(); room < 0 {
			break
		}
		tx.spaces = append(tx.spaces, s.scanSpace)
	}
	tx.scans = nil
	clear(tx.proofs) // they lead to the spaces
	if (16+24)*cap(tx.proofs) > spareSpace {
		tx.checks, tx.proofs, tx.order = nil, nil, nil
	}
}

// size is about how many bytes the space has.
func (x *scanSpace) size() int {
	n := 40*cap(x.rows) + 32*cap(x.found) + 16*(cap(x.cands)+cap(x.blocks)) + cap(x.data)
	for _, b := range x.given {
		n += cap(b)
	}
	for _, b := range x.spare {
		n += cap(b)
	}
	return n
}

// nextData gives the data of the rows to the caller, and takes other room for those of the next piece.
func (s *Scan) nextData() {
	if len(s.data) == 0 {
		return
	}
	s.given = append(s.given, s.data)
	s.data = nil
	if n := len(s.spare); n > 0 {
		s.data, s.spare = s.spare[n-1][:0], s.spare[:n-1]
	}
}

type scanStage uint8

const (
	scanIndex scanStage = iota // records that the index leads to
	scanItems                  // what the transaction has locked, inserted, or read beside
	scanEnded
)

// evidence is a block that a scan has met.
type evidence struct {
	addr  memory.Addr
	guard record.Guard // as it was read; it must still be that
	row   bool         // it was a record, and the caller gets it from the scan
	own   bool         // it is known by an item of the transaction only
	held  bool         // an item protects it: see cover
	gone  bool         // nothing depends on it any more
}

type scanRow struct {
	seen       int // of Scan.seen, before it
	at         int // of the key in Scan.data; the value follows
	klen, vlen int
	found      int32
}

// Scan begins a walk. Stop ends it; Commit and Rollback do, too.
func (tx *Tx) Scan(t *Table) (*Scan, error) {
	if !tx.active {
		return nil, ErrDone
	}
	if t.Dropped() {
		return nil, fmt.Errorf("%w: %q", ErrDropped, t.Name)
	}
	if t.Ordered != nil {
		return tx.Range(t, index.Bound{}, index.Bound{End: true}, false, 0)
	}
	ix, ok := t.Index.(index.Scanner)
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrNoScan, t.Name)
	}
	s := tx.newScan(t)
	s.ix, s.known = ix.NewScan(), map[memory.Addr]int32{}
	return s, nil
}

// Next returns the next record. ok is false when there are no more. The slices stay as they are until
// the transaction ends. After an error only Rollback is allowed.
func (s *Scan) Next() (key, value []byte, ok bool, err error) {
	if s.o != nil {
		return s.nextOrdered()
	}
	tx := s.tx
	for {
		if s.over() {
			return nil, nil, false, ErrDone
		}
		for s.took < len(s.rows) {
			r := &s.rows[s.took]
			s.took++
			end := r.at + r.klen
			key, value = s.data[r.at:end:end], s.data[end:end+r.vlen:end+r.vlen]
			if i := tx.find(s.table, key); i >= 0 && tx.items[i].write != writeNone {
				if value, ok = tx.Read(i); !ok {
					continue
				}
			}
			return key, value, true, nil
		}
		switch s.stage {
		case scanIndex:
			err = s.piece()
		case scanItems:
			if i := s.item(); i >= 0 {
				return tx.items[i].key(), tx.value(&tx.items[i]), true, nil
			}
			s.stage = scanEnded
		case scanEnded:
			s.claimed = true
			return nil, nil, false, nil
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
}

// Stop ends the walk early. The transaction then depends on the records that Next has returned, and on
// no others.
func (s *Scan) Stop() {
	if s.over() || s.claimed {
		return
	}
	s.complete = false
	rest := s.rows[s.took:]
	for i := range rest {
		s.found[rest[i].found].gone = true
	}
	if s.tx.hist != nil && len(rest) > 0 {
		s.seen = s.seen[:rest[0].seen]
	}
	s.rows, s.stage, s.took = s.rows[:0], scanEnded, 0
	if s.o != nil {
		s.o.rest = false
	}
}

// over reports whether the transaction has ended.
func (s *Scan) over() bool { return !s.tx.active || s.tx.id != s.id }

// item returns the next item of the transaction that has a value and no row; -1: there is none.
func (s *Scan) item() int {
	for s.own < s.last {
		i := s.own
		s.own++
		it := &s.tx.items[i]
		if it.table != s.table || !it.has {
			continue
		}
		if k, ok := s.known[it.addr]; ok && s.found[k].row {
			continue
		}
		return i
	}
	return -1
}

// piece reads the next piece, and validates what was read.
func (s *Scan) piece() error {
	tx := s.tx
	if err := tx.Execute(); err != nil { // whether a key is one of the items is known from now on
		return err
	}
	s.rows, s.took = s.rows[:0], 0
	s.nextData()
	most := tx.s.thread.ArenaSize()
	more := true
	tx.valid = false
	for more && len(s.rows) < s.want && len(s.data) < most {
		var err error
		if more, err = s.unit(); err != nil {
			return err
		}
	}
	atEnd := tx.atEnd || tx.s.eng.opts.Policy == PolicyFORD
	if s.want = min(s.want*scanGrowth, most); atEnd {
		s.want = scanAtEnd
	}
	if s.o != nil && s.o.limit > 0 {
		s.want = min(s.want, max(s.o.limit, 1))
	}
	if !more {
		if err := tx.Execute(); err != nil {
			return err
		}
		s.complete, s.stage, s.last = true, scanItems, len(tx.items)
	}
	if atEnd {
		return nil
	}
	return tx.validate(tx.fetched)
}

// unit reads a piece of the index and its blocks; more is false when there is none. If a slot leads
// to a block that is free, the record has moved or gone: then the slots are read again.
func (s *Scan) unit() (more bool, err error) {
	if s.o != nil {
		return s.orderedUnit()
	}
	c := s.tx.c
	found, rows, data, seen := len(s.found), len(s.rows), len(s.data), len(s.seen)
	for tries := 1; ; tries++ {
		s.tx.c.Count = &s.tx.phases[PhaseExecute]
		s.cands, more, err = s.ix.Next(c, s.cands[:0])
		if err != nil {
			return false, s.indexError(err)
		}
		if !more {
			return false, nil
		}
		hollow, err := s.read(s.cands, tries >= scanLooks)
		locks := err == nil && !hollow && s.insists && tries <= insistLooks && !s.checking
		if locks {
			locks, err = s.lock(0, rows)
		}
		if err != nil || !hollow && !locks {
			return true, err
		}
		for _, e := range s.found[found:] {
			delete(s.known, e.addr)
		}
		s.found, s.rows, s.data, s.seen = s.found[:found], s.rows[:rows], s.data[:data], s.seen[:seen]
		if locks {
			if err := s.tx.Execute(); err != nil {
				return false, err
			}
		}
		if tries == 2*scanLooks {
			return false, s.tx.conflict(AbortStale, &item{table: s.table})
		}
		s.ix.Again()
		if tries > 2 {
			c.Yield()
		}
	}
}

// read reads the blocks that the scan does not know. hollow: one is free, which counts for absent in
// the last look.
func (s *Scan) read(blocks []index.Candidate, last bool) (hollow bool, err error) {
	tx, t := s.tx, s.tx.s.thread
	room := scanRoom
	buf, err := t.Alloc(room)
	for errors.Is(err, rdma.ErrArenaFull) && room > scanLeast {
		room /= 2
		buf, err = t.Alloc(room)
	}
	if err != nil {
		return false, s.indexError(err)
	}
	defer func() { t.Free(buf, room) }()
	if s.o != nil {
		return s.readJoined(blocks, buf, uint32(room), last)
	}
	for len(blocks) > 0 {
		b := &s.batch
		b.Reset()
		s.reading = s.reading[:0]
		n, used := 0, uint32(0)
		for ; n < len(blocks) && b.Len() < scanBatch; n++ {
			x := blocks[n]
			if _, ok := s.known[x.Addr]; ok {
				continue
			}
			if !tx.reaches(x.Addr) || x.Class >= memory.NumClasses {
				return false, tx.lost(&item{table: s.table}, x.Addr)
			}
			size := readLen(x.Class)
			if used+size > uint32(room) {
				break
			}
			b.Read(tx.view.At(x.Addr, 0), buf+used, size)
			used += size
			s.reading = append(s.reading, x)
		}
		if err := tx.c.Do(b); err != nil {
			return false, tx.s.fail(err)
		}
		at := buf
		for _, x := range s.reading {
			img := record.Image(t.Bytes(at, readLen(x.Class)))
			at += readLen(x.Class)
			if _, ok := s.known[x.Addr]; ok {
				continue // two slots lead to it: one is being moved
			}
			if hollow, err = s.take(x, img, last); err != nil || hollow {
				return hollow, err
			}
		}
		blocks = blocks[n:]
	}
	return false, nil
}

// take accepts the image of a block that was read, or looks at the block for longer.
func (s *Scan) take(x index.Candidate, img record.Image, last bool) (hollow bool, err error) {
	if _, err := img.Check(x.Addr); err != nil || !img.Stable() && img.Guard() != record.HeldBy(s.tx.id) {
		return s.pursue(x, last)
	}
	return s.accept(x, img, last)
}

// accept notes a block whose image is whole, and unlocked or locked by the transaction.
func (s *Scan) accept(x index.Candidate, img record.Image, last bool) (hollow bool, err error) {
	tx, m, g := s.tx, img.Meta(), img.Guard()
	e := evidence{addr: x.Addr, guard: g, own: g.Held()}
	switch {
	case m.State() == record.Free:
		if !last {
			return true, nil
		}
	case m.Table() != s.table.ID:
		if !last {
			return true, nil
		}
		return false, fmt.Errorf("%w: index of table %q leads to block %v of table %d", ErrCorrupt, s.table.Name, x.Addr, m.Table())
	}
	e.row = m.State() == record.Live && !e.own
	before := len(s.seen)
	if s.o != nil && tx.hist != nil {
		s.seen = append(s.seen, s.table.op(img.Key(), img.Version(), m.State()))
	}
	if s.o != nil && m.State() == record.Absent && !e.own {
		tx.bury(s.table, x, img)
	}
	if err := s.note(e); err != nil || !e.row && !(s.o != nil && m.State() == record.Live) {
		return false, err
	}
	key, value := img.Key(), img.Value()
	s.rows = append(s.rows, scanRow{before, len(s.data), len(key), len(value), int32(len(s.found) - 1)})
	s.data = append(append(s.data, key...), value...)
	if tx.hist != nil && s.o == nil {
		s.seen = append(s.seen, s.table.op(key, img.Version(), m.State()))
	}
	return false, nil
}

// note adds what the scan has met to what is validated.
func (s *Scan) note(e evidence) error {
	if limit := s.tx.s.thread.ArenaSize(); (len(s.found)+1)*evidenceSize > limit {
		return &TooLargeError{
			What: "scan", Got: (len(s.found) + 1) * evidenceSize, Limit: limit,
			Remedy: fmt.Sprintf("a scan counts %d bytes of Arena for each record of table %q: raise Arena, or read the keys in several transactions", evidenceSize, s.table.Name),
		}
	}
	if s.o == nil {
		s.known[e.addr] = int32(len(s.found))
	}
	s.found = append(s.found, e)
	return nil
}

// pursue looks at a block that is being written, or is locked, until it is neither. If that takes too
// long, it stages the key: then the block is an item's, with all that is done for those.
func (s *Scan) pursue(x index.Candidate, last bool) (hollow bool, err error) {
	tx := s.tx
	size := int(readLen(x.Class))
	var img record.Image
	var bad error
	for tries := range maxRereads {
		if img, err = s.look(x.Addr, 0, size); err != nil {
			return false, err
		}
		var need int
		if need, bad = img.Check(x.Addr); need > size && need <= int(x.Class.Size()) {
			size = need
			continue
		}
		if bad == nil && (img.Stable() || img.Guard() == record.HeldBy(tx.id)) {
			return s.accept(x, img, last)
		}
		if tries > 2 {
			tx.c.Sleep(int64(min(tries, 16)) * scanPauseNs)
		}
	}
	g := img.Guard()
	if bad != nil && g.Held() {
		return false, tx.meet(AbortReadLocked, &item{table: s.table, addr: x.Addr}, g)
	}
	for k := 1; bad != nil && k < tx.view.Copies(x.Addr); k++ {
		// The primary is damaged: another copy knows whose block it is.
		if img, err = s.look(x.Addr, k, int(x.Class.Size())); err != nil {
			return false, err
		}
		if _, bad = img.Check(x.Addr); bad == nil && (img.Meta().Table() != s.table.ID || img.Meta().KeyLen() == 0) {
			bad = record.ErrTorn
		}
	}
	if it := (&item{table: s.table, addr: x.Addr}); errors.Is(bad, record.ErrForm) {
		return false, tx.damaged(it, bad)
	} else if bad != nil {
		return false, tx.meet(AbortReadLocked, it, g) // Unblock tells damage from a writer that is slow
	}
	if img.Meta().State() == record.Free || img.Meta().Table() != s.table.ID {
		return true, nil // its guard is damaged, or it is being used again
	}
	return s.stand(x, img.Key(), g)
}

// scanPauseNs is the pause between two looks at a block that is locked, times how many there were.
const scanPauseNs = 1000

// stand has an item stand for a block. hollow: the key has no block by now, or another one.
func (s *Scan) stand(x index.Candidate, key []byte, g record.Guard) (hollow bool, err error) {
	tx := s.tx
	it := &item{table: s.table, addr: x.Addr, klen: uint32(len(key)), long: key}
	if s.checking || s.claimed {
		return false, tx.meet(AbortReadLocked, it, g)
	}
	i, err := tx.Stage(s.table, append([]byte(nil), key...), false)
	if err != nil {
		return false, err
	}
	if err := tx.Execute(); err != nil {
		return false, err
	}
	if tx.items[i].addr != x.Addr {
		return true, nil
	}
	if err := s.note(evidence{addr: x.Addr, own: true}); err != nil || s.o == nil {
		return false, err
	}
	s.stands(&tx.items[i])
	return false, nil
}

// stands takes an item for a row of a range, which has its place among the others.
func (s *Scan) stands(it *item) {
	before := len(s.seen)
	if s.tx.hist != nil {
		s.seen = append(s.seen, it.seen())
	}
	if it.state != record.Live {
		return
	}
	var value []byte
	if it.has { // else it is deleted by now, and Next finds that
		value = s.tx.value(it)
	}
	s.rows = append(s.rows, scanRow{before, len(s.data), len(it.key()), len(value), int32(len(s.found) - 1)})
	s.data = append(append(s.data, it.key()...), value...)
}

// look copies the first bytes of a copy of a block.
func (s *Scan) look(a memory.Addr, replica, size int) (record.Image, error) {
	tx, t := s.tx, s.tx.s.thread
	buf, err := t.Alloc(size)
	if err != nil {
		return nil, s.indexError(err)
	}
	defer t.Free(buf, size)
	s.batch.Reset()
	s.batch.Read(tx.view.At(a, replica), buf, uint32(size))
	if err := tx.c.Do(&s.batch); err != nil {
		return nil, tx.s.fail(err)
	}
	return append(record.Image(nil), t.Bytes(buf, uint32(size))...), nil
}

func (s *Scan) indexError(err error) error {
	return s.tx.indexError(&item{table: s.table}, "walking", err)
}

// validateScans repeats what the scans of the transaction have read: nil, a conflict, or errOwnBlocks
// if an index has changed, but no record is new: then everything is to be validated once more.
func (tx *Tx) validateScans() error {
	var again error
	for s := tx.scans; s != nil; s = s.next {
		if err := s.validate(); errors.Is(err, errOwnBlocks) {
			again = err
		} else if err != nil {
			return err
		}
	}
	tx.valid = again == nil
	return again
}

func (s *Scan) validate() error {
	if s.o != nil {
		return nil // see guardsJoined
	}
	if err := s.guards(); err != nil {
		return err
	}
	if !s.complete {
		return nil
	}
	same, err := s.ix.Unchanged(s.tx.c)
	if err != nil {
		return s.indexError(err)
	}
	if same {
		return nil
	}
	return s.walkAgain()
}

// cover finds the blocks that items of the transaction protect: by a lock, or because they are
// validated themselves. A block that the scan knows by an item only is forgotten when no item has it any
// more, as another record may get it.
func (s *Scan) cover() error {
	if s.o != nil {
		if err := s.coverLeaves(); err != nil {
			return err
		}
		s.knowFound()
	}
	if len(s.found) == 0 {
		return nil
	}
	for i := range s.found {
		s.found[i].held = false
	}
	for i := range s.tx.items {
		it := &s.tx.items[i]
		if it.table != s.table || it.addr == 0 {
			continue
		}
		k, ok := s.known[it.addr]
		if !ok {
			continue
		}
		switch e := &s.found[k]; {
		case e.gone:
		case e.own:
			e.held = true
		case it.locked && e.guard != it.prior:
			return s.tx.conflict(AbortValidation, it)
		case it.locked:
			e.held = true
		}
	}
	for i := range s.found {
		if e := &s.found[i]; e.own && !e.held && !e.gone {
			e.gone = true
			delete(s.known, e.addr)
		}
	}
	return nil
}

// guards compares the guards of all blocks.
func (s *Scan) guards() error {
	tx, t := s.tx, s.tx.s.thread
	if len(s.found) == 0 {
		return nil
	}
	buf, err := t.Alloc(8 * scanGuards)
	if err != nil {
		return s.indexError(err)
	}
	defer t.Free(buf, 8*scanGuards)
	for from := 0; from < len(s.found); {
		b := &s.batch
		b.Reset()
		to := from
		for ; to < len(s.found) && b.Len() < scanGuards; to++ {
			if e := &s.found[to]; !e.held && !e.gone {
				g := tx.view.At(e.addr, 0)
				g.Off += record.GuardOff
				b.Read(g, buf+uint32(8*b.Len()), 8)
			}
		}
		if b.Len() > 0 {
			if err := tx.c.Do(b); err != nil {
				return tx.s.fail(err)
			}
		}
		n := uint32(0)
		for i := from; i < to; i++ {
			e := &s.found[i]
			if e.held || e.gone {
				continue
			}
			g := record.Guard(t.Word(buf + 8*n))
			n++
			if g == e.guard {
				continue
			}
			if it := (&item{table: s.table, addr: e.addr}); g.Held() {
				return tx.meet(AbortReadLocked, it, g)
			} else { //nolint:revive // it is of both
				return tx.conflict(AbortValidation, it)
			}
		}
		from = to
	}
	return nil
}

// walkAgain reads the index anew, since it has changed: perhaps by blocks of the transaction's own, or
// by a split. Records that were not known are the next rows, or a conflict if the caller was told that
// there are no more.
func (s *Scan) walkAgain() error {
	tx := s.tx
	s.checking = true
	defer func() { s.checking = false }()
	rows := len(s.rows)
	s.ix.Restart()
	for more := true; more; {
		var err error
		if more, err = s.unit(); err != nil {
			return err
		}
	}
	if s.claimed && len(s.rows) > rows {
		return tx.conflict(AbortPhantom, &item{table: s.table})
	}
	return errOwnBlocks
}

// count is how many records the scan has read for which no item stands.
func (s *Scan) count() (n uint64) {
	s.knowFound()
	for i := range s.found {
		if s.found[i].row && !s.found[i].held && !s.found[i].gone {
			n++
		}
	}
	for i := range s.tx.items {
		if k, ok := s.known[s.tx.items[i].addr]; ok && s.found[k].row && !s.found[k].held && !s.found[k].gone {
			n--
		}
	}
	return n
}
