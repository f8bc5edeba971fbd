package check

import (
	"cmp"
	"fmt"
	"slices"

	"txnode/history"
)

// ListTxn is a transaction on lists that only grow: it appends elements and
// reads whole lists. Times and outcome mean what they mean in [history.Txn].
type ListTxn struct {
	ID         uint64
	Start, End int64
	Outcome    history.Outcome
	Ops        []ListOp // in program order
}

// ListOp appends an element to the list of a key, or reads the list.
type ListOp struct {
	Key history.Key
	// Append is the element appended, never zero and unique within its key;
	// zero for a read.
	Append uint64
	// List is what a read returned, in order.
	List []uint64
}

// CheckLists decides the same question as [Check] from values alone: the reads of a key show the
// order of its appends, whatever the engine says about versions. (The idea is Elle's: Kingsbury and
// Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB 2020.) All
// reads of a key must be prefixes of the longest one; appends that no read contains come after
// those of the longest, in an order that is left open. Lists are empty at first. Reads of
// transactions of unknown outcome are ignored.
//
// Versions in the report are elements: "version 7 of a key" is the list that ends with 7.
func CheckLists(txns []ListTxn, o Options) *Report {
	l := &listChecker{in: txns, keys: map[history.Key]*listKey{}}
	c := newChecker(nil, o)
	c.lists, l.c = txns, c
	c.txns = make([]history.Txn, len(txns))
	for t := range txns {
		x := &txns[t]
		c.txns[t] = history.Txn{ID: x.ID, Start: x.Start, End: x.End, Outcome: x.Outcome}
	}
	l.collect()
	l.order()
	for t := range txns {
		c.txns[t].Ops = l.convert(t)
	}
	for _, v := range l.found {
		c.report(v)
	}
	c.run()
	return c.rep
}

// listChecker turns a history of lists into one of versions.
type listChecker struct {
	in    []ListTxn
	keys  map[history.Key]*listKey
	found []Violation
	c     *checker
}

type listKey struct {
	key      history.Key
	appender map[uint64]int    // element -> transaction
	longest  []uint64          // longest list that a committed transaction read
	reader   int               // and its reader
	prev     map[uint64]uint64 // element of the longest list -> the one before it that has an appender
	last     uint64            // last element of the longest list that has an appender
}

func (l *listChecker) key(k history.Key) *listKey {
	x := l.keys[k]
	if x == nil {
		x = &listKey{key: k, appender: map[uint64]int{}, prev: map[uint64]uint64{}}
		l.keys[k] = x
	}
	return x
}

// collect finds the appender of every element and the longest read of every key.
func (l *listChecker) collect() {
	for t := range l.in {
		for _, op := range l.in[t].Ops {
			k := l.key(op.Key)
			switch {
			case op.Append != 0:
				if other, dup := k.appender[op.Append]; dup {
					l.report(DuplicateVersion, "", op.Key, []int{other, t},
						fmt.Sprintf("element %d of %s was appended twice", op.Append, l.name(op.Key)))
				} else {
					k.appender[op.Append] = t
				}
			case l.in[t].Outcome == history.Committed && len(op.List) > len(k.longest):
				k.longest, k.reader = op.List, t
			}
		}
	}
}

// order checks the longest read of each key, and takes the order from it.
func (l *listChecker) order() {
	for _, k := range l.sorted() {
		for _, e := range k.longest {
			if k.has(e) {
				l.report(DuplicateVersion, "", k.key, []int{k.reader, k.appender[e]},
					fmt.Sprintf("element %d is in the list of %s twice", e, l.name(k.key)))
				continue
			}
			if _, ok := k.appender[e]; !ok {
				l.report(DirtyRead, "G1a", k.key, []int{k.reader},
					fmt.Sprintf("element %d of %s was read, but appended by no transaction", e, l.name(k.key)))
				continue
			}
			k.prev[e] = k.last
			k.last = e
		}
	}
}

func (k *listKey) has(e uint64) bool {
	_, ok := k.prev[e]
	return ok
}

func (l *listChecker) sorted() []*listKey {
	keys := make([]*listKey, 0, len(l.keys))
	for _, k := range l.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b *listKey) int { return cmp.Compare(a.key, b.key) })
	return keys
}

// convert turns a transaction into operations on versions.
func (l *listChecker) convert(t int) []history.Op {
	x := &l.in[t]
	ops := make([]history.Op, 0, len(x.Ops))
	var own []ownAppends
	for _, op := range x.Ops {
		k := l.keys[op.Key]
		if op.Append != 0 {
			mine := findOwn(&own, op.Key)
			mine.elements = append(mine.elements, op.Append)
			prev, placed := k.prev[op.Append]
			switch {
			case k.appender[op.Append] != t: // a duplicate, reported
			case placed:
				ops = append(ops, history.Op{
					Key: op.Key, Kind: history.Write, Prev: history.Version(prev), Version: history.Version(op.Append),
				})
			case !mine.late:
				mine.late = true
				ops = append(ops, history.Op{
					Key: op.Key, Kind: lateWrite, Prev: history.Version(k.last), Version: history.Version(op.Append),
				})
			}
			continue
		}
		if x.Outcome == history.Committed {
			ops = l.convertRead(ops, t, k, op.List, findOwn(&own, op.Key).elements)
		}
	}
	return ops
}

type ownAppends struct {
	key      history.Key
	elements []uint64
	late     bool
}

func findOwn(own *[]ownAppends, k history.Key) *ownAppends {
	for i := range *own {
		if (*own)[i].key == k {
			return &(*own)[i]
		}
	}
	*own = append(*own, ownAppends{key: k})
	return &(*own)[len(*own)-1]
}

// convertRead adds a read, as one of the state before the transaction's own appends.
func (l *listChecker) convertRead(ops []history.Op, t int, k *listKey, list, own []uint64) []history.Op {
	if !slices.Equal(list, k.longest[:min(len(list), len(k.longest))]) {
		l.report(IncompatibleOrder, "", k.key, []int{t, k.reader}, fmt.Sprintf(
			"two reads of %s are not prefixes of one another: %s and %s", l.name(k.key), formatList(list),
			formatList(k.longest)))
		return ops
	}
	base := len(list) - len(own)
	if base < 0 || !slices.Equal(list[base:], own) {
		l.report(Internal, "internal", k.key, []int{t}, fmt.Sprintf(
			"a read of %s returned %s, which does not end in the transaction's own appends %s",
			l.name(k.key), formatList(list), formatList(own)))
		return ops
	}
	for base > 0 { // elements without appender are not versions
		e := list[base-1]
		if k.has(e) {
			return append(ops, history.Op{Key: k.key, Kind: history.Read, Version: history.Version(e)})
		}
		base--
	}
	return append(ops, history.Op{Key: k.key, Kind: history.ReadAbsent})
}

// report keeps a violation until all transactions are converted.
func (l *listChecker) report(class Class, phenomenon string, k history.Key, txns []int, detail string) {
	if len(txns) == 2 && txns[0] == txns[1] {
		txns = txns[:1]
	}
	l.found = append(l.found, Violation{Class: class, Phenomenon: phenomenon, Key: k, Txns: txns, Detail: detail})
}

func (l *listChecker) name(k history.Key) string { return l.c.opt.KeyName(k) }
