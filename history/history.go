package history

import "sync"

// Key names one record across all tables. A 64-bit hash of table and key is good enough for
// checking. Two keys that collide would be reported as one record whose version chain forks, and
// the checker says so.
type Key uint64

// Version is the version word of a record. Versions of a key never repeat.
// The zero Version is the state of a key that has never had a record, or whose
// record has been removed from the index without trace: an absent key.
type Version uint64

// Kind tells what an operation did.
type Kind uint8

const (
	// Read saw version Version of a record that was present.
	Read Kind = iota + 1
	// ReadAbsent saw that the key has no record; Version is that of the
	// tombstone that said so, or zero when there was none.
	ReadAbsent
	// Write replaced version Prev by Version, and the record is present after it.
	Write
	// Delete replaced version Prev by Version, and the record is absent after it.
	Delete
)

// Op is one operation of a transaction.
type Op struct {
	Key     Key
	Version Version // read or installed
	Prev    Version // replaced, for Write and Delete; zero when the key had no record
	Kind    Kind
	// Position of the key in its ordered table. Range reads are held against the keys whose
	// position some operation tells. Each write to an ordered table should tell it.
	Position Position `json:",omitempty"`
}

// Outcome is how a transaction ended for its caller.
type Outcome uint8

const (
	// Committed: the caller was told so.
	Committed Outcome = iota + 1
	// Unknown: the call ended without an answer; the transaction may or may not have taken effect.
	Unknown
	// Failed: the caller was told that it has had no effect. Its operations are the writes that it
	// would have made. Recorder.Failed has these, Recorder.Txns has not.
	Failed
)

// Txn is one transaction. Start and End are points of one clock shared by all
// sessions of a recorder: a transaction whose End is less than another's Start
// came before it in real time.
type Txn struct {
	ID      uint64
	Start   int64
	End     int64
	Outcome Outcome
	Ops     []Op
	Ranges  []Range `json:",omitempty"`
}

// Recorder collects the sessions of a run. The zero value is ready for use.
type Recorder struct {
	mu       sync.Mutex
	sessions []*Session
}

// Session starts recording for one more worker. Safe for concurrent use.
func (r *Recorder) Session() *Session {
	s := &Session{}
	r.mu.Lock()
	r.sessions = append(r.sessions, s)
	r.mu.Unlock()
	return s
}

// Txns returns everything recorded so far, session by session in program
// order. The sessions must be quiet; the slices are theirs.
func (r *Recorder) Txns() []Txn {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.sessions {
		n += len(s.txns)
	}
	out := make([]Txn, 0, n)
	for _, s := range r.sessions {
		for _, t := range s.txns {
			out = append(out, Txn{
				ID: t.id, Start: t.start, End: t.end, Outcome: t.outcome,
				Ops: s.ops[t.ops.first:t.ops.last:t.ops.last], Ranges: s.rangesOf(t),
			})
		}
	}
	return out
}

// Failed returns the attempts that ended without effect and would have written something, session
// by session. A version of theirs that another transaction has read as present proves a dirty read.
// The sessions must be quiet; the slices are theirs.
func (r *Recorder) Failed() []Txn {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Txn
	for _, s := range r.sessions {
		out = append(out, s.failed...)
	}
	return out
}

// Session is the history of one worker, in the order of its transactions.
// Not safe for concurrent use. All methods of a nil *Session do nothing, so
// that a caller that records nothing pays one comparison.
type Session struct {
	txns   []entry
	ops    []Op
	ranges []Range
	failed []Txn
}

type entry struct {
	id          uint64
	start, end  int64
	ops, ranges part
	outcome     Outcome
}

// part is what one transaction has of a slice of all transactions.
type part struct{ first, last int }

// open is the part of the operations, and of the ranges, since the last End.
func (s *Session) open() (ops, ranges part) {
	ops, ranges = part{0, len(s.ops)}, part{0, len(s.ranges)}
	if n := len(s.txns); n > 0 {
		ops.first, ranges.first = s.txns[n-1].ops.last, s.txns[n-1].ranges.last
	}
	return ops, ranges
}

func (s *Session) rangesOf(t entry) []Range {
	if t.ranges.first == t.ranges.last {
		return nil
	}
	return s.ranges[t.ranges.first:t.ranges.last:t.ranges.last]
}

// cut forgets all from the operations and ranges of a part on.
func (s *Session) cut(ops, ranges part) {
	s.ops, s.ranges = s.ops[:ops.first], s.ranges[:ranges.first]
}

// Op adds an operation to the transaction that the next End closes.
func (s *Session) Op(op Op) {
	if s != nil {
		s.ops = append(s.ops, op)
	}
}

// Range adds a range read with its answer, whose operations are copied. First and Len of r are set
// here.
func (s *Session) Range(r Range, answer []Op) {
	if s == nil {
		return
	}
	ops, _ := s.open()
	r.First, r.Len = len(s.ops)-ops.first, len(answer)
	s.ops = append(s.ops, answer...)
	s.ranges = append(s.ranges, r)
}

// Drop forgets the operations since the last End: the transaction aborted.
func (s *Session) Drop() {
	if s != nil {
		s.cut(s.open())
	}
}

// Fail closes the transaction made of the operations since the last End, which has had no effect.
// Its writes are kept, if there are any.
func (s *Session) Fail(id uint64, start, end int64) {
	if s == nil {
		return
	}
	ops, ranges := s.open()
	s.fail(Txn{ID: id, Start: start, End: end, Ops: s.ops[ops.first:]})
	s.cut(ops, ranges)
}

func (s *Session) fail(t Txn) {
	var writes []Op
	for _, op := range t.Ops {
		if op.Kind == Write || op.Kind == Delete {
			writes = append(writes, op)
		}
	}
	if len(writes) > 0 {
		t.Ops, t.Outcome = writes, Failed
		s.failed = append(s.failed, t)
	}
}

// End closes the transaction made of the operations since the last End.
func (s *Session) End(id uint64, start, end int64, outcome Outcome) {
	if s == nil {
		return
	}
	ops, ranges := s.open()
	s.txns = append(s.txns, entry{id: id, start: start, end: end, ops: ops, ranges: ranges, outcome: outcome})
}

// Resolve tells what has become of the last transaction, which had ended with an
// unknown outcome: it is committed, and its caller learns it now, or it has had no
// effect, and has failed. Of another transaction it tells nothing.
func (s *Session) Resolve(id uint64, now int64, committed bool) {
	if s == nil || len(s.txns) == 0 {
		return
	}
	n := len(s.txns) - 1
	t := &s.txns[n]
	if t.id != id || t.outcome != Unknown || t.ops.last != len(s.ops) {
		return
	}
	if committed {
		t.end, t.outcome = now, Committed
		return
	}
	s.fail(Txn{ID: t.id, Start: t.start, End: now, Ops: s.ops[t.ops.first:t.ops.last]})
	s.cut(t.ops, t.ranges)
	s.txns = s.txns[:n]
}
