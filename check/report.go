package check

import (
	"fmt"
	"strings"

	"txnode/history"
)

// Level is the isolation that a history is held against.
type Level uint8

const (
	// StrictSerializable: one serial order explains all reads, and a
	// transaction that ended before another started comes first in it.
	StrictSerializable Level = iota
	// Serializable: one serial order explains all reads.
	Serializable
)

func (l Level) String() string {
	if l == Serializable {
		return "serializability"
	}
	return "strict serializability"
}

// EdgeKind says why one transaction is before another.
type EdgeKind uint8

// The kinds of edges, in the order in which cycles are looked for.
const (
	WW EdgeKind = iota + 1 // To replaced what From installed
	WR                     // To read what From installed
	RW                     // To replaced what From read
	RT                     // From ended before To started
)

func (k EdgeKind) String() string {
	switch k {
	case WW:
		return "ww"
	case WR:
		return "wr"
	case RW:
		return "rw"
	case RT:
		return "rt"
	}
	return "unknown kind"
}

// EdgeCounts counts the edges of the graph. RT counts the edges to, along and
// from the time chain, not pairs of transactions.
type EdgeCounts struct {
	WW, WR, RW, RT int
}

// Edge is one step of a cycle: transaction From is before transaction To in
// every serial order.
type Edge struct {
	From, To int // indices into the history
	Kind     EdgeKind
	// Key, Version and Next say why, except for RT. WW: To replaced Version
	// of Key by Next. WR: To read Version. RW: From read Version, To replaced it
	// by Next. Where runs of a key were ordered by real time or several gaps fit an absent
	// read, other transactions may stand between From and To.
	Key     history.Key
	Version history.Version
	Next    history.Version
	// Absent: the read of a WR or RW edge found no record.
	Absent bool
	// Range: it was a range read, in which the key was missing. Version is then zero, or that of
	// the delete before.
	Range bool
}

// Violation is one contradiction in a history.
type Violation struct {
	Class Class
	// Phenomenon is the name that Adya's thesis or the Elle checker gives the
	// shape, such as "G-single"; empty where neither has a name.
	Phenomenon string
	// Key and Versions are the place, for a violation of a key's chain.
	// Key is that of the first edge, for a cycle.
	Key      history.Key
	Versions []history.Version
	// Cycle lists the edges, each beginning where the one before ended; empty
	// for a violation of a chain.
	Cycle []Edge
	// Txns are the transactions concerned, as indices into the history. Long
	// lists are cut.
	Txns []int
	// Detail says in one sentence what happened.
	Detail string

	txns  []history.Txn // the history of Txns
	lists []ListTxn     // the same, of CheckLists
	name  func(history.Key) string
}

// Report is the verdict on a history.
type Report struct {
	Level Level
	// Violations holds the first Options.MaxViolations of the Found ones:
	// those of chains first, then one shortest cycle found for each
	// strongly connected component.
	Violations []Violation
	Found      int
	// Txns counts the transactions in the graph, LeftOut those of unknown
	// outcome that no other one observed.
	Txns, LeftOut int
	// Ops counts the operations of all transactions, Versions the distinct
	// pairs of key and version among them.
	Ops, Versions int
	Edges         EdgeCounts
	// Ranges counts the range reads of the transactions in the graph, Missing the keys inside of
	// their bounds that they did not find, apart from those that real time explains.
	Ranges, Missing int
	// Ambiguous counts the observations of an absence without trace, or by a range read, whose
	// place among the versions of their key is not known. Zero means that the
	// verdict is exact; else a violation may have been missed.
	Ambiguous int
}

// OK says that no violation was found.
func (r *Report) OK() bool { return r.Found == 0 }

// Err returns nil, or an [*Error] that matches [ErrViolation].
func (r *Report) Err() error {
	if r.OK() {
		return nil
	}
	return &Error{Report: r}
}

// String is the whole report: a line of counts, then every violation kept.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "transactions: %d", r.Txns)
	if r.LeftOut > 0 {
		fmt.Fprintf(&b, " (left out with unknown outcome: %d)", r.LeftOut)
	}
	fmt.Fprintf(&b, ", operations: %d, edges: %d ww, %d wr, %d rw, %d rt", r.Ops, r.Edges.WW, r.Edges.WR,
		r.Edges.RW, r.Edges.RT)
	if r.Ranges > 0 {
		fmt.Fprintf(&b, ", ranges: %d, keys missing in them: %d", r.Ranges, r.Missing)
	}
	if r.Ambiguous > 0 {
		fmt.Fprintf(&b, ", ambiguous absences: %d", r.Ambiguous)
	}
	if r.OK() {
		fmt.Fprintf(&b, "\nno violation of %s\n", r.Level)
		return b.String()
	}
	fmt.Fprintf(&b, "\nviolations of %s: %d\n", r.Level, r.Found)
	for i := range r.Violations {
		fmt.Fprintf(&b, "\n%s", r.Violations[i].String())
	}
	if n := r.Found - len(r.Violations); n > 0 {
		fmt.Fprintf(&b, "\n%d more not shown (Options.MaxViolations)\n", n)
	}
	return b.String()
}

// String is the violation as a bug report: class, contradiction step by step,
// and what the transactions recorded.
func (v *Violation) String() string {
	var b strings.Builder
	b.WriteString(v.Class.String())
	if v.Phenomenon != "" {
		fmt.Fprintf(&b, " (%s)", v.Phenomenon)
	}
	if len(v.Cycle) > 0 {
		fmt.Fprintf(&b, ": %d transactions, each of which must come before the next", len(v.Cycle))
	}
	if v.Detail != "" {
		b.WriteString(": " + v.Detail)
	}
	b.WriteByte('\n')
	for _, e := range v.Cycle {
		b.WriteString("  " + v.edge(e) + "\n")
	}
	if len(v.Txns) > 0 {
		b.WriteString("  recorded:\n")
	}
	keys := v.keys()
	for i := range v.txns {
		var text string
		if v.lists != nil {
			text = formatListTxn(&v.lists[i], v.keyName, keys)
		} else {
			text = formatTxn(&v.txns[i], v.keyName, keys)
		}
		fmt.Fprintf(&b, "    %s %s\n", v.label(v.Txns[i]), text)
	}
	return b.String()
}

// keys are those that the violation is about: operations on others are
// summed up when a transaction is long.
func (v *Violation) keys() []history.Key {
	keys := []history.Key{v.Key}
	for _, e := range v.Cycle {
		if e.Kind != RT {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// label is the name of a transaction: its ID, or its place in the history
// when the IDs of the violation are not distinct.
func (v *Violation) label(t int) string {
	id, same := uint64(0), 0
	for i, u := range v.Txns {
		if u == t {
			id = v.txns[i].ID
		}
	}
	for i := range v.txns {
		if v.txns[i].ID == id {
			same++
		}
	}
	if same > 1 {
		return fmt.Sprintf("T%d#%d", id, t)
	}
	return fmt.Sprintf("T%d", id)
}

func (v *Violation) edge(e Edge) string {
	from, to, key := v.label(e.From), v.label(e.To), v.keyName(e.Key)
	s := fmt.Sprintf("%s -%s-> %s: ", from, e.Kind, to)
	state := fmt.Sprintf("version %d of %s", e.Version, key)
	switch {
	case v.lists != nil:
		state = fmt.Sprintf("%s up to element %d", key, e.Version)
		if e.Version == 0 {
			state = key + " empty"
		}
	case e.Range:
		state = fmt.Sprintf("a range without %s", key)
	case e.Version == 0:
		state = key + " absent"
	case e.Absent:
		state = fmt.Sprintf("%s absent (version %d)", key, e.Version)
	}
	switch e.Kind {
	case WW:
		return s + fmt.Sprintf("%s left %s, then %s installed %d", from, state, to, e.Next)
	case WR:
		return s + fmt.Sprintf("%s left %s, and %s read that", from, state, to)
	case RW:
		return s + fmt.Sprintf("%s read %s, then %s installed %d", from, state, to, e.Next)
	default:
		return s + fmt.Sprintf("%s ended at %d, %s started at %d", from, v.txn(e.From).End, to, v.txn(e.To).Start)
	}
}

func (v *Violation) keyName(k history.Key) string {
	if v.name == nil {
		return hexKey(k)
	}
	return v.name(k)
}

func (v *Violation) txn(t int) *history.Txn {
	for i, u := range v.Txns {
		if u == t {
			return &v.txns[i]
		}
	}
	return &history.Txn{}
}
