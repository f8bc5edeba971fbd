package runner

import (
	"math"
	"slices"
	"time"

	"txnode/check"
	"txnode/history"
)

// historyCheck checks the history of a run window by window. Between windows no
// transaction runs, so every transaction of a window is before every one
// of the next in real time. What a window leaves is the last version of
// each key that it has touched; with a first transaction that takes each key
// from the version that the run found it in to that one, the next window is
// checked as if it had not been cut off: an older version that is read there
// contradicts real time, or has no writer.
type historyCheck struct {
	found History
	keys  map[history.Key]span
}

// span is what is known of a key between windows: the version that the run
// found first, and the last one, with the kind of the operation that said so.
// The versions are equal while the key was only read.
type span struct {
	first, last history.Version
	kind        history.Kind
	place       history.Position
}

func newHistoryCheck() *historyCheck {
	return &historyCheck{keys: make(map[history.Key]span)}
}

// window checks the transactions since the last window, and those that have failed meanwhile. The
// error, if not nil, is History.Err.
func (h *historyCheck) window(txns, failed []history.Txn) error {
	start := time.Now()
	h.found.Windows++
	all := slices.Concat(txns, failed)
	for i := range failed {
		h.found.Ops -= len(failed[i].Ops)
	}
	if past, ok := h.past(); ok {
		all = append(all, past)
		h.found.Txns--
		h.found.Ops -= len(past.Ops)
	}
	report := check.Check(all, check.Options{})
	h.found.Txns += report.Txns
	h.found.Ops += report.Ops
	h.found.Edges.WW += report.Edges.WW
	h.found.Edges.WR += report.Edges.WR
	h.found.Edges.RW += report.Edges.RW
	h.found.Edges.RT += report.Edges.RT
	h.found.Ambiguous += report.Ambiguous
	if h.found.Err = report.Err(); h.found.Err == nil {
		h.carry(txns)
	}
	h.found.CheckTime += time.Since(start)
	return h.found.Err
}

// past returns the transaction that stands for the windows before.
func (h *historyCheck) past() (history.Txn, bool) {
	t := history.Txn{Start: math.MinInt64, End: math.MinInt64, Outcome: history.Committed}
	for key, s := range h.keys {
		op := history.Op{Key: key, Version: s.last, Kind: s.kind, Position: s.place}
		if s.kind == history.Write || s.kind == history.Delete {
			if s.first == s.last {
				continue // created and removed without trace
			}
			op.Prev = s.first
		}
		t.Ops = append(t.Ops, op)
	}
	return t, len(t.Ops) > 0
}

// carry notes the last version of each key that the window has touched. In a
// correct history the versions of a key make a chain, so counting each version
// up where it was installed and down where it was replaced leaves the last
// one (+1) and the first one (-1).
func (h *historyCheck) carry(txns []history.Txn) {
	type place struct {
		key     history.Key
		version history.Version
	}
	type end struct {
		n     int
		kind  history.Kind
		place history.Position
	}
	ends := make(map[place]end)
	move := func(p place, by int, kind history.Kind, at history.Position) {
		e := ends[p]
		if e.n += by; by > 0 {
			e.kind, e.place = kind, at
		}
		if e.n != 0 {
			ends[p] = e
		} else {
			delete(ends, p)
		}
	}
	for i := range txns {
		for _, op := range txns[i].Ops {
			if op.Kind == history.Write || op.Kind == history.Delete {
				move(place{op.Key, op.Version}, +1, op.Kind, op.Position)
				move(place{op.Key, op.Prev}, -1, 0, "")
			}
		}
	}
	for p, e := range ends {
		if _, known := h.keys[p.key]; e.n < 0 && !known {
			h.keys[p.key] = span{first: p.version}
		}
	}
	for p, e := range ends {
		if e.n > 0 {
			s := h.keys[p.key]
			s.last, s.kind, s.place = p.version, e.kind, e.place
			h.keys[p.key] = s
		}
	}
	for i := range txns {
		for _, op := range txns[i].Ops {
			if op.Kind == history.Read || op.Kind == history.ReadAbsent {
				if _, known := h.keys[op.Key]; !known {
					h.keys[op.Key] = span{op.Version, op.Version, op.Kind, op.Position}
				}
			}
		}
	}
}
