package reference

import (
	"context"
	"runtime"
	"slices"

	"txnode/benchmarks/workload"
)

// worker is a workload.Worker and, because it runs one transaction at a time,
// that transaction.
type worker struct {
	s        *Store
	readOnly bool
	doomed   bool     // the attempt has met a conflict
	entries  []entry  // the keys staged or used, in order of appearance
	locked   int      // entries[:locked] have their locks
	next     int      // index in entries where the next key is probably found
	held     []lockID // locks held; the first is not the lowest only after a try
	highest  lockID   // of held, when held is not empty
	want     []lockID // scratch of lockStaged
	again    []lockID // locks to take at the start of the next attempt
	arena    []byte   // values put
	inserted []uint64 // scratch of Range
	counters workload.Counters
	_        [cacheLine]byte
}

// entry is a key of the running transaction.
type entry struct {
	key   uint64
	table int32
	lock  lockID
	read  bool // old has been looked up
	twin  bool // of an earlier entry of the same key, which is the one to use
	write writeKind
	old   []byte // what the map holds; nil if absent
	new   []byte // in the arena, for put
}

type writeKind uint8

const (
	unwritten writeKind = iota
	put
	deleted
)

func newWorker(s *Store) *worker {
	return &worker{
		s:       s,
		entries: make([]entry, 0, 16),
		held:    make([]lockID, 0, 16),
		want:    make([]lockID, 0, 16),
		arena:   make([]byte, 0, 256), // not nil, so that an empty value in it is not nil either
	}
}

// Counters implements workload.Worker.
func (w *worker) Counters() workload.Counters { return w.counters }

// Update implements workload.Worker.
func (w *worker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	w.readOnly = false
	return w.run(ctx, fn)
}

// View implements workload.Worker.
func (w *worker) View(ctx context.Context, fn func(workload.Tx) error) error {
	w.readOnly = true
	return w.run(ctx, fn)
}

// run makes attempts until one commits. If fn panics the locks stay taken: a
// process that recovers from that must not use the store again.
func (w *worker) run(ctx context.Context, fn func(workload.Tx) error) error {
	for {
		err := fn(w)
		if !w.doomed {
			if err == nil {
				w.install()
				w.counters.Committed++
			}
			w.reset()
			return err
		}
		w.counters.Aborts[workload.AbortLocked]++
		for i := range w.entries {
			w.again = append(w.again, w.entries[i].lock)
		}
		w.reset()
		if err := ctx.Err(); err != nil {
			w.again = w.again[:0]
			return err
		}
		runtime.Gosched()
		for _, id := range w.again {
			w.plan(id)
		}
		w.again = w.again[:0]
		w.take() // waits, since no lock is held
	}
}

// install makes the writes visible, under the locks.
func (w *worker) install() {
	for i := range w.entries {
		e := &w.entries[i]
		switch e.write {
		case put:
			if e.old != nil && len(e.old) == len(e.new) {
				copy(e.old, e.new)
			} else {
				shard := &w.s.shards[e.lock]
				if shard.records[e.key] = append(make([]byte, 0, len(e.new)), e.new...); shard.keys != nil {
					shard.keys.insert(e.key)
				}
			}
		case deleted:
			shard := &w.s.shards[e.lock]
			if delete(shard.records, e.key); shard.keys != nil {
				shard.keys.delete(e.key)
			}
		}
	}
}

// reset releases the locks and forgets the transaction.
func (w *worker) reset() {
	for _, id := range w.held {
		w.s.shards[id].mu.Unlock()
	}
	w.held = w.held[:0]
	w.entries = w.entries[:0]
	w.arena = w.arena[:0]
	w.locked, w.next = 0, 0
	w.doomed = false
}

// Stage implements workload.Tx.
func (w *worker) Stage(table int, key uint64, _ workload.Mode) {
	w.entries = append(w.entries, entry{key: key, table: int32(table), lock: w.s.lock(table, key)})
}

// Get implements workload.Tx.
func (w *worker) Get(table int, key uint64) ([]byte, error) {
	e, err := w.entry(table, key)
	if err != nil {
		return nil, err
	}
	v := e.value()
	if v == nil {
		return nil, workload.ErrNotFound
	}
	return v, nil
}

// Put implements workload.Tx.
func (w *worker) Put(table int, key uint64, value []byte) error {
	e, err := w.entry(table, key)
	if err != nil {
		return err
	}
	return w.put(e, value)
}

// Prepare implements workload.Worker.
func (w *worker) Prepare(uses []workload.Use) workload.Plan {
	p := &plan{w: w, uses: uses, keys: make([]workload.Key, len(uses)), values: make([][]byte, len(uses))}
	for i := range uses {
		p.rows = append(p.rows, workload.Row{Key: &p.keys[i], Value: &p.values[i]})
	}
	return p
}

// plan implements workload.Plan. Its worker is the transaction, too.
type plan struct {
	w      *worker
	uses   []workload.Use
	keys   []workload.Key
	values [][]byte
	rows   []workload.Row // point to these
	at     int            // the first of its entries
}

// Rows implements workload.Plan.
func (p *plan) Rows() []workload.Row { return p.rows }

// Fetch implements workload.Plan.
func (p *plan) Fetch(workload.Tx) error {
	w := p.w
	p.at = len(w.entries)
	for i, u := range p.uses {
		w.Stage(u.Table, p.keys[i].Number(), u.Mode)
	}
	if w.locked < len(w.entries) && !w.lockStaged() {
		w.doomed = true
		return errConflict
	}
	for i := range p.values {
		e := &w.entries[p.at+i]
		if e.twin {
			e = w.search(e.table, e.key)
		}
		if !e.read {
			e.old, e.read = w.s.shards[e.lock].records[e.key], true
		}
		p.values[i] = e.value()
	}
	return nil
}

// Set implements workload.Plan.
func (p *plan) Set(_ workload.Tx, i int, value []byte) error {
	w, table, key := p.w, p.uses[i].Table, p.keys[i].Number()
	if at := p.at + i; at < w.locked {
		if e := &w.entries[at]; e.key == key && e.table == int32(table) && !e.twin {
			return w.put(e, value)
		}
	}
	return w.Put(table, key, value)
}

// Insert implements workload.Tx.
func (w *worker) Insert(table int, key uint64, value []byte) error {
	e, err := w.entry(table, key)
	if err != nil {
		return err
	}
	if e.value() != nil {
		return workload.ErrExists
	}
	return w.put(e, value)
}

// Delete implements workload.Tx.
func (w *worker) Delete(table int, key uint64) error {
	e, err := w.entry(table, key)
	if err != nil {
		return err
	}
	if w.readOnly {
		return errReadOnly
	}
	if e.value() == nil {
		return workload.ErrNotFound
	}
	e.write = deleted
	return nil
}

func (w *worker) put(e *entry, value []byte) error {
	if w.readOnly {
		return errReadOnly
	}
	from := len(w.arena)
	w.arena = append(w.arena, value...) // if it moves, earlier values stay where they are
	e.new, e.write = w.arena[from:len(w.arena):len(w.arena)], put
	return nil
}

// value returns what the transaction sees, nil if the key is absent.
func (e *entry) value() []byte {
	switch e.write {
	case put:
		return e.new
	case deleted:
		return nil
	}
	return e.old
}

// entry returns the entry of a key, locked and read.
func (w *worker) entry(table int, key uint64) (*entry, error) {
	e := w.find(int32(table), key)
	if e == nil {
		w.Stage(table, key, workload.Update)
		e = &w.entries[len(w.entries)-1]
	}
	if w.locked < len(w.entries) && !w.lockStaged() {
		w.doomed = true
		return nil, errConflict
	}
	if !e.read {
		e.old, e.read = w.s.shards[e.lock].records[key], true
	}
	return e, nil
}

// find returns the first entry of a key, or nil. Keys are mostly used in the
// order in which they were staged.
func (w *worker) find(table int32, key uint64) *entry {
	if i := w.next; i < w.locked {
		if e := &w.entries[i]; e.key == key && e.table == table && !e.twin {
			w.next++
			return e
		}
	}
	return w.search(table, key)
}

func (w *worker) search(table int32, key uint64) *entry {
	for i := range w.entries {
		if e := &w.entries[i]; e.key == key && e.table == table {
			w.next = i + 1
			return e
		}
	}
	return nil
}

// lockStaged takes the locks of the entries that have none, or returns false.
func (w *worker) lockStaged() bool {
	next := w.next
	for i := w.locked; i < len(w.entries); i++ {
		e := &w.entries[i]
		if !w.plan(e.lock) {
			e.twin = w.search(e.table, e.key) != e
		}
	}
	w.locked, w.next = len(w.entries), next
	return w.take()
}

// plan adds a lock to those that take will take, in order. It returns false if
// the lock is held or planned already.
func (w *worker) plan(id lockID) bool {
	if len(w.held) > 0 && id <= w.highest && slices.Contains(w.held, id) {
		return false
	}
	i := len(w.want)
	for i > 0 && w.want[i-1] > id {
		i--
	}
	if i > 0 && w.want[i-1] == id {
		return false
	}
	w.want = slices.Insert(w.want, i, id)
	return true
}

// take takes the planned locks. It waits for those above all locks held and
// tries those below; it returns false as soon as a try fails.
func (w *worker) take() bool {
	for _, id := range w.want {
		mu := &w.s.shards[id].mu
		if len(w.held) == 0 || id > w.highest {
			mu.Lock()
			w.highest = id
		} else if !mu.TryLock() {
			w.want = w.want[:0]
			return false
		}
		w.held = append(w.held, id)
	}
	w.want = w.want[:0]
	return true
}

var (
	_ workload.Worker = (*worker)(nil)
	_ workload.Ranger = (*worker)(nil)
)
