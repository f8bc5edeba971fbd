package check

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"txnode/history"
)

// WriteElle writes a history in EDN, one event per line, as Jepsen records it and the rw-register
// checker of Elle reads it: an :invoke per transaction and an :ok, an :info for an unknown outcome,
// or a :fail, with versions as the values. Keys and versions are int64 numbers with the bits of
// theirs: one type for Elle, in which no two are equal. Times are those of the history.
//
// Failed transactions (history.Recorder.Failed) are what tells Elle a version that somebody wrote
// in vain from one that was there before the history. An absence that a failed insert has left is
// no write of anybody's, and is left out.
//
// What a transaction replaced is written as a read before the write, so that
// Elle, told that writes follow reads (:wfr-keys? true), knows the order of versions. A delete is a
// write of its tombstone's version. Version zero is nil; but on a key that some transaction
// deletes it does not say which absence it was, and is left out. Versions that
// nobody installed are written by one transaction before all others.
//
// A process is a number that has one transaction at a time; it is not the
// session that recorded the transaction.
func WriteElle(w io.Writer, txns []history.Txn) error {
	e := registerEDN(txns)
	return writeEvents(w, e.initial, len(txns), func(t int) (int64, int64, history.Outcome) {
		return txns[t].Start, txns[t].End, txns[t].Outcome
	}, e.value)
}

// WriteElleLists writes a history of lists in the same way, for Elle's list-append checker.
func WriteElleLists(w io.Writer, txns []ListTxn) error {
	value := func(b []byte, t int, results bool) []byte {
		for i, op := range txns[t].Ops {
			if i > 0 {
				b = append(b, ' ')
			}
			if op.Append != 0 {
				b = appendMop(b, ":append", uint64(op.Key))
				b = append(appendInt(b, op.Append), ']')
				continue
			}
			b = appendMop(b, ":r", uint64(op.Key))
			if !results {
				b = append(b, "nil]"...)
				continue
			}
			b = append(b, '[')
			for j, x := range op.List {
				if j > 0 {
					b = append(b, ' ')
				}
				b = appendInt(b, x)
			}
			b = append(b, "]]"...)
		}
		return b
	}
	return writeEvents(w, nil, len(txns), func(t int) (int64, int64, history.Outcome) {
		return txns[t].Start, txns[t].End, txns[t].Outcome
	}, value)
}

// registers says how the versions of a history are written as values of registers.
type registers struct {
	txns      []history.Txn
	deleted   map[history.Key]bool
	installed map[keyVersion]bool
	absent    map[keyVersion]bool // that a failed transaction has left where no record is
	initial   []byte              // the value of the transaction before all others, or nil
}

type keyVersion struct {
	key history.Key
	ver history.Version
}

func registerEDN(txns []history.Txn) *registers {
	e := &registers{
		txns: txns, deleted: map[history.Key]bool{}, installed: map[keyVersion]bool{}, absent: map[keyVersion]bool{},
	}
	for t := range txns {
		for _, op := range txns[t].Ops {
			if isWrite(op.Kind) {
				e.installed[keyVersion{op.Key, op.Version}] = true
				if txns[t].Outcome == history.Failed {
					e.absent[keyVersion{op.Key, op.Version}] = true
				}
			}
			if op.Kind == history.Delete {
				e.deleted[op.Key] = true
			}
		}
	}
	for t := range txns {
		for _, op := range txns[t].Ops {
			if op.Kind == history.Read || isWrite(op.Kind) && txns[t].Outcome != history.Failed {
				delete(e.absent, keyVersion{op.Key, op.Version})
			}
		}
	}
	written := map[keyVersion]bool{}
	for t := range txns {
		if txns[t].Outcome == history.Failed {
			continue
		}
		for _, op := range txns[t].Ops {
			seen := keyVersion{op.Key, op.Version}
			if isWrite(op.Kind) {
				seen.ver = op.Prev
			}
			if seen.ver == 0 || e.installed[seen] || written[seen] {
				continue
			}
			written[seen] = true
			if len(e.initial) > 0 {
				e.initial = append(e.initial, ' ')
			}
			e.initial = append(appendInt(appendMop(e.initial, ":w", uint64(op.Key)), uint64(seen.ver)), ']')
		}
	}
	return e
}

// value writes the reads of the state before the transaction, then its writes.
func (e *registers) value(b []byte, t int, results bool) []byte {
	ops, first := e.txns[t].Ops, len(b)
	mine := func(k history.Key, v history.Version) bool {
		return slices.ContainsFunc(ops, func(op history.Op) bool {
			return isWrite(op.Kind) && op.Key == k && op.Version == v
		})
	}
	mop := func(name string, k history.Key) {
		if len(b) > first {
			b = append(b, ' ')
		}
		b = appendMop(b, name, uint64(k))
	}
	read := func(k history.Key, v history.Version) {
		if v == 0 && e.deleted[k] || v != 0 && mine(k, v) || e.absent[keyVersion{k, v}] {
			return
		}
		mop(":r", k)
		if v == 0 || !results {
			b = append(b, "nil]"...)
		} else {
			b = append(appendInt(b, uint64(v)), ']')
		}
	}
	for i, op := range ops {
		if !isWrite(op.Kind) {
			read(op.Key, op.Version)
		} else if !slices.ContainsFunc(ops, func(x history.Op) bool {
			return x.Key == op.Key && !isWrite(x.Kind) && x.Version == op.Prev
		}) &&
			!slices.ContainsFunc(ops[:i], func(x history.Op) bool {
				return x.Key == op.Key && isWrite(x.Kind) && x.Prev == op.Prev
			}) {
			read(op.Key, op.Prev)
		}
	}
	for _, op := range ops {
		if isWrite(op.Kind) {
			mop(":w", op.Key)
			b = append(appendInt(b, uint64(op.Version)), ']')
		}
	}
	return b
}

func appendMop(b []byte, name string, k uint64) []byte {
	b = append(append(append(b, '['), name...), ' ')
	return append(appendInt(b, k), ' ')
}

// appendInt writes the int64 of these bits: beyond 63 bits Clojure has another type.
func appendInt(b []byte, x uint64) []byte { return strconv.AppendInt(b, int64(x), 10) }

type event struct {
	at     int64
	txn    int
	invoke bool
}

// writeEvents writes the transactions as events in time order. At one instant starts come
// before ends: those transactions were concurrent.
func writeEvents(w io.Writer, initial []byte, n int, bounds func(t int) (start, end int64, outcome history.Outcome),
	value func(b []byte, t int, results bool) []byte) error {
	events := make([]event, 0, 2*n)
	for t := range n {
		start, end, _ := bounds(t)
		events = append(events, event{start, t, true}, event{max(start, end), t, false})
	}
	slices.SortFunc(events, func(a, b event) int {
		if a.at == b.at && a.invoke != b.invoke {
			if a.invoke {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.txn, b.txn))
	})

	out := bufio.NewWriter(w)
	index := 0
	line := func(at int64, kind string, process int, val []byte) {
		fmt.Fprintf(out, "{:index %d, :time %d, :type %s, :process %d, :f :txn, :value [%s]}\n",
			index, at, kind, process, val)
		index++
	}
	processes, free := 0, []int{}
	if len(initial) > 0 && n > 0 {
		line(events[0].at, ":invoke", 0, initial)
		line(events[0].at, ":ok", 0, initial)
		processes, free = 1, append(free, 0)
	}
	process := make([]int, n)
	var b []byte
	for _, ev := range events {
		_, _, outcome := bounds(ev.txn)
		switch {
		case ev.invoke:
			if len(free) == 0 {
				free = append(free, processes)
				processes++
			}
			process[ev.txn] = free[len(free)-1]
			free = free[:len(free)-1]
			b = value(b[:0], ev.txn, false)
			line(ev.at, ":invoke", process[ev.txn], b)
		case outcome == history.Committed:
			b = value(b[:0], ev.txn, true)
			line(ev.at, ":ok", process[ev.txn], b)
			free = append(free, process[ev.txn])
		case outcome == history.Failed:
			b = value(b[:0], ev.txn, false)
			line(ev.at, ":fail", process[ev.txn], b)
			free = append(free, process[ev.txn])
		default: // the process is lost with its transaction
			b = value(b[:0], ev.txn, false)
			line(ev.at, ":info", process[ev.txn], b)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("check: writing the history in EDN: %w", err)
	}
	return nil
}
