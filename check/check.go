package check

import (
	"fmt"
	"math"

	"txnode/history"
)

// Options of a check. The zero value holds a history against strict
// serializability and allows each key one initial version.
type Options struct {
	// Level is the isolation to decide. Default StrictSerializable.
	Level Level
	// FromEmpty says that the history begins with an empty store and holds every transaction since.
	// A version without a writer in the history is then a violation, even the only one of its key.
	FromEmpty bool
	// Placeholders says that blocks without a record may carry versions of their own that no
	// transaction installed: those of an insert that aborted. A version without a writer that no
	// transaction read as present is then taken for an absence without trace, like version zero.
	Placeholders bool
	// MaxViolations is how many violations a report keeps. Default (zero) 16.
	MaxViolations int
	// KeyName prints a key. Default: in hexadecimal.
	KeyName func(history.Key) string
}

func (o Options) withDefaults() Options {
	if o.MaxViolations <= 0 {
		o.MaxViolations = 16
	}
	if o.KeyName == nil {
		o.KeyName = hexKey
	}
	return o
}

func hexKey(k history.Key) string { return fmt.Sprintf("key %#x", uint64(k)) }

// Limits of one check, from the widths of the indices.
const (
	maxOps  = 1 << opBits
	maxTxns = 1 << 29
)

// Check decides whether a history is explained by a serial order, and at the
// default level by one that agrees with real time. The order of txns does not
// matter. They are not changed, and only violations in the report refer to them afterwards.
//
// It never reports a violation of a correct history, and misses none in an
// incorrect one if the report's Ambiguous is zero. It does not panic, whatever the history holds.
func Check(txns []history.Txn, o Options) *Report {
	c := newChecker(txns, o)
	c.run()
	return c.rep
}

// lateWrite is the kind of an append whose place after Prev is not known
// (internal to CheckLists): somewhere after version Prev, in any order with other late ones.
const lateWrite history.Kind = 255

// checker is the state of one check. Transactions, operations, versions and
// graph nodes are 32-bit indices into flat slices.
type checker struct {
	opt   Options
	txns  []history.Txn
	rep   *Report
	lists []ListTxn // what txns was made from, of CheckLists; else nil

	// byStart lists the transactions by their start. Versions are numbered and
	// visited in that order, so that what is close in time is close in memory: a
	// history comes worker by worker, and a version is read by all of them.
	byStart []instant

	first []int32        // index of the first operation of each transaction, and their number at the end
	owner []int32        // transaction of each operation
	kind  []history.Kind // of each operation
	ver   []int32        // version that each operation read or installed; -1: ill-formed, ignored
	// aux is, for an operation that counts: of a read the next reader of the
	// same version; of a write of a version other than zero the version that it
	// replaced; of a write of version zero the next such write of the key. -1 ends a list.
	aux []int32

	versions versionTable
	counts   []bool          // whether a transaction is part of the graph
	pending  []int32         // transactions to count in
	failed   map[int32]int32 // by version: the failed transaction that would have installed it
	zeros    []int32         // version zero of each key that was observed absent without trace
	late     []int32         // operations of kind lateWrite

	duplicates []opPair // operations that installed one version
	forks      []opPair // operations that replaced one version

	extra    []graphEdge  // edges that do not follow from one version: see absent.go and ranges.go
	barriers int32        // auxiliary nodes that extra uses
	missed   []history.Op // what range reads did not find, as absent reads numbered behind all operations
}

type opPair struct {
	version  int32
	one, two int32
}

func newChecker(txns []history.Txn, o Options) *checker {
	c := &checker{opt: o.withDefaults(), txns: txns, rep: &Report{Level: o.Level}}
	if c.opt.Level != Serializable { // an unknown level gets the strongest verdict
		c.opt.Level, c.rep.Level = StrictSerializable, StrictSerializable
	}
	return c
}

func (c *checker) run() {
	if !c.measure() {
		return
	}
	c.intern()
	c.checkDuplicates()
	c.countIn()
	c.checkForks()
	c.checkVersions()
	c.orderAbsences()
	c.orderRanges()
	c.orderLate()
	g := c.buildGraph()
	c.findCycles(g)
}

// measure lays out the operation indices and the order in time. False: the history is too large.
func (c *checker) measure() bool {
	ops := 0
	c.first = make([]int32, len(c.txns)+1)
	for t := range c.txns {
		ops += len(c.txns[t].Ops)
		if ops >= maxOps || t >= maxTxns {
			c.report(Violation{Class: Malformed, Detail: fmt.Sprintf(
				"the history has more than %d operations or %d transactions, check it in parts", maxOps-1, maxTxns)})
			return false
		}
		c.first[t+1] = int32(ops)
	}
	c.rep.Ops = ops
	c.byStart = make([]instant, len(c.txns))
	for t := range c.txns {
		c.byStart[t] = instant{c.start(int32(t)), int32(t)}
	}
	sortInstants(c.byStart)
	return true
}

// intern numbers the versions, and finds the writer of each.
func (c *checker) intern() {
	ops, writes := c.rep.Ops, 0
	for t := range c.txns {
		for i := range c.txns[t].Ops {
			if isWrite(c.txns[t].Ops[i].Kind) {
				writes++
			}
		}
	}
	c.owner, c.ver, c.aux = make([]int32, ops), make([]int32, ops), make([]int32, ops)
	c.kind = make([]history.Kind, ops)
	c.failed = map[int32]int32{}
	c.versions = newVersionTable(min(writes+ops/8, ops) + 16)
	for _, s := range c.byStart {
		t := int(s.txn)
		txn := &c.txns[t]
		c.checkRecord(t)
		for i := range txn.Ops {
			o, op := c.first[t]+int32(i), &txn.Ops[i]
			c.owner[o], c.kind[o], c.ver[o], c.aux[o] = int32(t), op.Kind, -1, -1
			if !c.wellFormed(t, op) {
				continue
			}
			if op.Kind == lateWrite {
				c.ver[o] = c.versions.intern(op.Key, op.Prev)
				continue
			}
			v := c.versions.intern(op.Key, op.Version)
			c.ver[o] = v
			if isWrite(op.Kind) && txn.Outcome == history.Failed {
				c.ver[o], c.failed[v] = -1, int32(t)
				continue
			}
			if isWrite(op.Kind) {
				c.aux[o] = c.versions.intern(op.Key, op.Prev)
				c.installs(v, o)
			}
		}
	}
	c.rep.Versions = len(c.versions.all)
	if c.opt.Placeholders {
		c.erasePlaceholders()
	}
}

// erasePlaceholders replaces versions that no transaction installed or read as present by version
// zero.
func (c *checker) erasePlaceholders() {
	for o, v := range c.ver {
		if v >= 0 && c.kind[o] == history.Read {
			c.versions.all[v].flags |= flagRecord
		}
	}
	erased := func(v int32) int32 {
		e := &c.versions.all[v]
		if e.ver == 0 || e.installer >= 0 || e.flags&flagRecord != 0 {
			return v
		}
		return c.versions.intern(e.key, 0)
	}
	for o, v := range c.ver {
		switch {
		case v < 0:
		case isWrite(c.kind[o]):
			c.aux[o] = erased(c.aux[o])
		default:
			c.ver[o] = erased(v)
		}
	}
}

// installs notes that operation o installed version v. Of two installers, which
// is a violation, a committed one is believed rather than one of unknown outcome.
func (c *checker) installs(v, o int32) {
	e := &c.versions.all[v]
	if e.installer < 0 {
		e.installer = o
		return
	}
	c.duplicates = append(c.duplicates, opPair{v, e.installer, o})
	if !c.committed(c.owner[e.installer]) && c.committed(c.owner[o]) {
		e.installer = o
	}
}

// countIn decides which transactions count: the committed ones, and those
// of unknown outcome that one that counts has observed.
func (c *checker) countIn() {
	c.counts = make([]bool, len(c.txns))
	for _, s := range c.byStart {
		if c.committed(s.txn) {
			c.count(s.txn)
		}
	}
	c.countForced()
	for t, in := range c.counts {
		if in {
			c.rep.Txns++
		} else if c.txns[t].Outcome != history.Failed {
			c.rep.LeftOut++
		}
	}
}

// count takes transaction t into the graph, and every one it proves to have happened.
func (c *checker) count(t int32) {
	if c.counts[t] || c.txns[t].Outcome == history.Failed {
		return
	}
	c.counts[t] = true
	c.pending = append(c.pending, t)
	for len(c.pending) > 0 {
		t := c.pending[len(c.pending)-1]
		c.pending = c.pending[:len(c.pending)-1]
		for o := c.first[t]; o < c.first[t+1]; o++ {
			if c.ver[o] >= 0 {
				c.register(t, o)
			}
		}
	}
}

// register enters an operation that counts at the version that it observed.
func (c *checker) register(t, o int32) {
	v := c.ver[o]
	if c.kind[o] == lateWrite {
		c.late = append(c.late, o)
		c.proves(v)
		return
	}
	if isWrite(c.kind[o]) {
		v = c.aux[o]
		e := &c.versions.all[v]
		switch {
		case e.ver == 0:
			c.aux[o] = e.successor
			e.successor = o
			c.listZero(v)
		case e.successor < 0:
			e.successor = o
		default:
			c.forks = append(c.forks, opPair{v, e.successor, o})
		}
		c.proves(v)
		return
	}
	e := &c.versions.all[v]
	if e.ver != 0 && e.installer >= 0 && c.owner[e.installer] == t {
		return // its own write
	}
	if by, ok := c.failed[v]; ok && c.kind[o] == history.Read && e.installer < 0 {
		c.report(Violation{Class: DirtyRead, Key: e.key, Versions: []history.Version{e.ver},
			Txns:   []int{int(by), int(t)},
			Detail: "a transaction that has failed would have written what another one has read"})
	}
	c.aux[o] = e.readers
	e.readers = o
	if e.ver == 0 {
		c.listZero(v)
	}
	c.proves(v)
}

// proves counts in the installer of a version that was observed.
func (c *checker) proves(v int32) {
	e := &c.versions.all[v]
	if e.ver == 0 || e.installer < 0 {
		return
	}
	if t := c.owner[e.installer]; !c.counts[t] {
		c.counts[t] = true
		c.pending = append(c.pending, t)
	}
}

func (c *checker) listZero(v int32) {
	if e := &c.versions.all[v]; e.flags&flagListed == 0 {
		e.flags |= flagListed
		c.zeros = append(c.zeros, v)
	}
}

func isWrite(k history.Kind) bool { return k == history.Write || k == history.Delete }

// op is an operation of the history, or one that stands for a key which a range read did not find.
func (c *checker) op(o int32) *history.Op {
	if n := o - int32(c.rep.Ops); n >= 0 {
		return &c.missed[n]
	}
	t := c.owner[o]
	return &c.txns[t].Ops[o-c.first[t]]
}

func (c *checker) committed(t int32) bool { return c.txns[t].Outcome == history.Committed }

// start and end of a transaction in real time, or no bounds at all for a
// record that makes no sense. What has an unknown outcome may take effect at
// any time after its start.
func (c *checker) start(t int32) int64 {
	if x := &c.txns[t]; x.Start <= x.End {
		return x.Start
	}
	return math.MinInt64
}

func (c *checker) end(t int32) int64 {
	if x := &c.txns[t]; x.Start <= x.End && x.Outcome == history.Committed {
		return x.End
	}
	return math.MaxInt64
}

// report adds a violation. The transactions are those of Txns, or else of Cycle.
func (c *checker) report(v Violation) {
	c.rep.Found++
	if len(c.rep.Violations) >= c.opt.MaxViolations {
		return
	}
	v.name = c.opt.KeyName
	for _, e := range v.Cycle {
		v.Txns = append(v.Txns, e.From)
	}
	v.txns = make([]history.Txn, len(v.Txns))
	for i, t := range v.Txns {
		v.txns[i] = c.txns[t]
		if c.lists != nil {
			v.lists = append(v.lists, c.lists[t])
		}
	}
	c.rep.Violations = append(c.rep.Violations, v)
}
