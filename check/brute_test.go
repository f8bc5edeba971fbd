package check

import (
	"math"
	"slices"

	"txnode/history"
)

// bruteForce is the slow twin of Check: it tries every subset of the
// transactions of unknown outcome and every order that agrees with real time, and runs
// the operations on a map of versions. It returns a serial order, or false.
//
// It shares no code with Check but the definitions of the package comment.
func bruteForce(txns []history.Txn, o Options) ([]int, bool) {
	if o.Placeholders {
		txns = withoutPlaceholders(txns)
	}
	b := &brute{txns: txns, opt: o, state: map[history.Key]bruteState{}, installed: map[bruteVersion]int{}}
	var unknown []int
	for t := range txns {
		if txns[t].Outcome != history.Committed {
			unknown = append(unknown, t)
		}
		for _, op := range txns[t].Ops {
			if op.Kind == history.Write || op.Kind == history.Delete {
				b.installed[bruteVersion{op.Key, op.Version}]++
			}
		}
	}
	for _, n := range b.installed {
		if n > 1 {
			return nil, false
		}
	}
	for set := range 1 << len(unknown) {
		b.left, b.order = 0, b.order[:0]
		for t := range txns {
			b.left |= 1 << t
		}
		for i, t := range unknown {
			if set>>i&1 == 0 {
				b.left &^= 1 << t
			}
		}
		if b.extend() {
			return b.order, true
		}
	}
	return nil, false
}

type brute struct {
	txns      []history.Txn
	opt       Options
	left      int // set of transactions still to be placed
	order     []int
	state     map[history.Key]bruteState
	installed map[bruteVersion]int
}

type bruteVersion struct {
	key history.Key
	ver history.Version
}

// bruteState is the current version of a key. A key that is not in the map has
// whatever initial version its first observer says, as long as nobody installs it.
type bruteState struct {
	ver    history.Version
	absent bool
	gone   bool // its tombstone was removed: reads may still tell of it, but nobody replaces it
	open   bool // initially absent, by an observation that did not say by which tombstone, if any
}

func (b *brute) end(t int) int64 {
	if b.txns[t].Outcome != history.Committed {
		return math.MaxInt64
	}
	return b.txns[t].End
}

// extend places the transactions that are left behind those of order.
func (b *brute) extend() bool {
	if b.left == 0 {
		return true
	}
next:
	for t := range b.txns {
		if b.left>>t&1 == 0 {
			continue
		}
		if b.opt.Level == StrictSerializable {
			for u := range b.txns {
				if b.left>>u&1 != 0 && b.end(u) < b.txns[t].Start {
					continue next // u must come first
				}
			}
		}
		undo, ok := b.apply(t)
		if ok {
			b.left &^= 1 << t
			b.order = append(b.order, t)
			if b.extend() {
				return true
			}
			b.left |= 1 << t
			b.order = b.order[:len(b.order)-1]
		}
		for i := len(undo) - 1; i >= 0; i-- {
			if u := undo[i]; u.had {
				b.state[u.key] = u.old
			} else {
				delete(b.state, u.key)
			}
		}
	}
	return false
}

type bruteUndo struct {
	key history.Key
	old bruteState
	had bool
}

func (b *brute) apply(t int) (undo []bruteUndo, ok bool) {
	set := func(k history.Key, s bruteState) {
		old, had := b.state[k]
		undo = append(undo, bruteUndo{k, old, had})
		b.state[k] = s
	}
	observe := func(k history.Key, v history.Version, absent, replace bool) bool {
		s, known := b.state[k]
		initial := v != 0 && !b.opt.FromEmpty && b.installed[bruteVersion{k, v}] == 0
		switch {
		case !known && v == 0:
			set(k, bruteState{absent: true, gone: true, open: true})
			return true
		case !known:
			set(k, bruteState{ver: v, absent: absent})
			return initial
		case v == 0:
			s.gone = true
			set(k, s)
			return s.absent
		case s.open && initial && (!replace || !s.gone):
			s.ver, s.open = v, false
			set(k, s)
			return true
		default:
			return s.ver == v && !(replace && s.gone)
		}
	}
	own := map[bruteVersion]bool{}
	for _, op := range b.txns[t].Ops {
		if op.Kind == history.Write || op.Kind == history.Delete {
			own[bruteVersion{op.Key, op.Version}] = true
		}
	}
	for i := range b.txns[t].Ranges {
		if !b.applyRange(t, &b.txns[t].Ranges[i], set) {
			return undo, false
		}
	}
	// Reads are of the state before the transaction, whatever the order of operations.
	for _, op := range b.txns[t].Ops {
		if op.Kind != history.Read && op.Kind != history.ReadAbsent || own[bruteVersion{op.Key, op.Version}] {
			continue
		}
		absent := op.Kind == history.ReadAbsent
		if !observe(op.Key, op.Version, absent, false) || b.state[op.Key].absent != absent {
			return undo, false
		}
	}
	for _, op := range b.txns[t].Ops {
		if op.Kind != history.Write && op.Kind != history.Delete {
			continue
		}
		if !observe(op.Key, op.Prev, false, true) {
			return undo, false
		}
		if s := b.state[op.Key]; own[bruteVersion{op.Key, s.ver}] && s.ver != op.Prev {
			return undo, false // it writes the key again, but does not replace its own version
		}
		set(op.Key, bruteState{ver: op.Version, absent: op.Kind == history.Delete})
	}
	return undo, true
}

// applyRange holds a range read against the state: it returned what is in its bounds, in order.
// What it says of the rows that it did return is among the reads of the transaction.
func (b *brute) applyRange(t int, r *history.Range, set func(history.Key, bruteState)) bool {
	known := map[history.Position]history.Key{}
	for u := range b.txns {
		for _, op := range b.txns[u].Ops {
			known[op.Position] = op.Key
		}
	}
	written := map[history.Position]bool{}
	for _, op := range b.txns[t].Ops {
		if op.Kind == history.Write || op.Kind == history.Delete {
			written[op.Position] = true
		}
	}
	var returned []history.Position
	for _, op := range b.txns[t].Ops[r.First : r.First+r.Len] {
		returned = append(returned, op.Position)
	}
	if r.Descending {
		slices.Reverse(returned)
	}
	for i, p := range returned {
		if p < r.From || p >= r.To || i > 0 && returned[i-1] >= p {
			return false
		}
	}
	for p, k := range known {
		if p < r.From || p >= r.To || written[p] || slices.Contains(returned, p) {
			continue
		}
		if r.Cut && (len(returned) == 0 || !r.Descending && p > returned[len(returned)-1] || r.Descending &&
			p < returned[0]) {
			continue // not read
		}
		s, seen := b.state[k]
		if !seen {
			set(k, bruteState{absent: true, open: true})
		} else if !s.absent {
			return false
		}
	}
	return true
}

// withoutPlaceholders renames versions that are neither installed nor read as present to zero.
func withoutPlaceholders(txns []history.Txn) []history.Txn {
	genuine := map[bruteVersion]bool{}
	for _, txn := range txns {
		for _, op := range txn.Ops {
			if op.Kind != history.ReadAbsent {
				genuine[bruteVersion{op.Key, op.Version}] = true
			}
		}
	}
	out := make([]history.Txn, len(txns))
	for i, txn := range txns {
		out[i] = txn
		out[i].Ops = nil
		for _, op := range txn.Ops {
			if !genuine[bruteVersion{op.Key, op.Version}] {
				op.Version = 0
			}
			if !genuine[bruteVersion{op.Key, op.Prev}] {
				op.Prev = 0
			}
			out[i].Ops = append(out[i].Ops, op)
		}
	}
	return out
}
