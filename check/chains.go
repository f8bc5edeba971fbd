package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"txnode/history"
)

// maxShown is how many transactions a violation of a chain lists.
const maxShown = 6

// checkRecord reports what makes no sense in a transaction as such.
func (c *checker) checkRecord(t int) {
	x := &c.txns[t]
	if x.End < x.Start {
		c.report(Violation{Class: Malformed, Txns: []int{t},
			Detail: fmt.Sprintf("ended at %d before it started at %d; it is checked without real time",
				x.End, x.Start)})
	}
	if x.Outcome != history.Committed && x.Outcome != history.Unknown && x.Outcome != history.Failed {
		c.report(Violation{Class: Malformed, Txns: []int{t},
			Detail: fmt.Sprintf("outcome %d is none; it is taken as unknown", x.Outcome)})
	}
}

// wellFormed reports an operation that makes no sense as such, to be ignored.
func (c *checker) wellFormed(t int, op *history.Op) bool {
	why := ""
	switch op.Kind {
	case history.Read:
		if op.Version == 0 {
			why = "version zero was read as present"
		}
	case history.ReadAbsent:
	case history.Write, history.Delete:
		if op.Version == 0 {
			why = "a write installed version zero"
		} else if op.Version == op.Prev {
			why = "a write installed the version that it replaced"
		}
	case lateWrite:
		if c.lists == nil {
			why = "unknown kind of operation"
		}
	default:
		why = "unknown kind of operation"
	}
	if why == "" {
		return true
	}
	c.report(Violation{Class: Malformed, Key: op.Key, Versions: []history.Version{op.Version}, Txns: []int{t},
		Detail: why + "; the operation is ignored"})
	return false
}

// checkDuplicates reports versions that were installed twice, even by
// transactions that do not count: a version identifies its writer. The chain
// of such a key may be a loop, so this must come before anybody follows it.
func (c *checker) checkDuplicates() {
	for _, d := range c.duplicates {
		e := c.versions.all[d.version]
		c.reportChain(DuplicateVersion, "", d.version, c.ownersOf(d.one, d.two),
			fmt.Sprintf("version %d of %s was installed twice; versions of a key must never repeat",
				e.ver, c.opt.KeyName(e.key)))
	}
}

// checkForks reports versions that were replaced twice.
func (c *checker) checkForks() {
	for _, f := range c.forks {
		e := c.versions.all[f.version]
		c.reportChain(LostUpdate, "P4", f.version, c.ownersOf(f.one, f.two), fmt.Sprintf(
			"version %d of %s was replaced twice, by %d and by %d (or two keys share this 64-bit key)",
			e.ver, c.opt.KeyName(e.key), c.op(f.one).Version, c.op(f.two).Version))
	}
}

// checkVersions reports reads that no serial order allows, and replaced versions without a writer.
func (c *checker) checkVersions() {
	var rootless []int32 // second and further versions without installer of a key
	n := int32(len(c.versions.all))
	for v := range n {
		e := &c.versions.all[v]
		if e.ver == 0 || e.readers < 0 && e.successor < 0 {
			continue
		}
		if e.installer < 0 {
			rootless = c.checkInitial(v, rootless)
			continue
		}
		if e.readers >= 0 {
			c.checkReaders(v)
		}
		if e.successor >= 0 && c.owner[e.successor] == c.owner[e.installer] && e.successor < e.installer {
			c.reportChain(BrokenChain, "", v, c.ownersOf(e.installer), fmt.Sprintf(
				"the transaction replaced version %d of %s before it installed it", e.ver, c.opt.KeyName(e.key)))
		}
	}
	c.checkRootless(rootless)
}

// checkInitial handles a version without a writer.
func (c *checker) checkInitial(v int32, rootless []int32) []int32 {
	c.noteReaders(v)
	e := c.versions.all[v]
	if c.opt.FromEmpty {
		c.reportUninstalled([]int32{v}, "")
		return rootless
	}
	if e.flags&(flagPresent|flagAbsent) == flagPresent|flagAbsent {
		c.reportChain(WrongState, "", v, c.readersOf(v), fmt.Sprintf(
			"version %d of %s was read as present and as absent", e.ver, c.opt.KeyName(e.key)))
	}
	zero := &c.versions.all[c.versions.intern(e.key, 0)]
	if zero.installer >= 0 && zero.installer != v {
		return append(rootless, zero.installer, v)
	}
	zero.installer = v
	return rootless
}

// noteReaders notes at an initial version what its readers found.
func (c *checker) noteReaders(v int32) {
	e := &c.versions.all[v]
	for r := e.readers; r >= 0; r = c.aux[r] {
		if c.kind[r] == history.Read {
			e.flags |= flagPresent
		} else {
			e.flags |= flagAbsent
		}
	}
}

// checkRootless reports, per key, several versions without a writer.
func (c *checker) checkRootless(vs []int32) {
	slices.SortFunc(vs, func(a, b int32) int {
		x, y := &c.versions.all[a], &c.versions.all[b]
		return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.ver, y.ver))
	})
	vs = slices.Compact(vs)
	for i := 0; i < len(vs); {
		j := i
		for j < len(vs) && c.versions.all[vs[j]].key == c.versions.all[vs[i]].key {
			j++
		}
		c.reportUninstalled(vs[i:j], "; at most one of them can be the initial version")
		i = j
	}
}

// reportUninstalled reports versions of one key that were observed and have no writer.
func (c *checker) reportUninstalled(vs []int32, more string) {
	var txns []int
	var vers []history.Version
	var names []string
	class, phenomenon := BrokenChain, ""
	for _, v := range vs {
		e := &c.versions.all[v]
		if e.readers >= 0 {
			class, phenomenon = DirtyRead, "G1a"
		}
		for _, t := range append(c.readersOf(v), c.ownersOf(e.successor)...) {
			if len(txns) < maxShown && !slices.Contains(txns, t) {
				txns = append(txns, t)
			}
		}
		if len(vers) < maxShown {
			vers = append(vers, e.ver)
			names = append(names, fmt.Sprint(e.ver))
		}
	}
	noun := "version "
	if len(vs) > 1 {
		noun = "versions "
	}
	if len(vs) > maxShown {
		names = append(names, "...")
	}
	c.markBroken(c.versions.all[vs[0]].key)
	c.report(Violation{Class: class, Phenomenon: phenomenon, Key: c.versions.all[vs[0]].key, Versions: vers, Txns: txns,
		Detail: fmt.Sprintf("%s%s of %s: observed, but installed by no transaction%s",
			noun, strings.Join(names, ", "), c.opt.KeyName(c.versions.all[vs[0]].key), more)})
}

// checkReaders checks the reads of a version against what its installer did.
func (c *checker) checkReaders(v int32) {
	e := c.versions.all[v]
	deleted := c.kind[e.installer] == history.Delete
	intermediate := e.successor >= 0 && c.owner[e.successor] == c.owner[e.installer]
	wrong, early := int32(-1), int32(-1)
	for r := e.readers; r >= 0; r = c.aux[r] {
		if deleted == (c.kind[r] == history.Read) {
			wrong = r
		}
		early = r // readers other than the installer only: see register
	}
	if wrong >= 0 {
		was, read := "a record", "absent"
		if deleted {
			was, read = "a tombstone", "present"
		}
		c.reportChain(WrongState, "", v, c.ownersOf(e.installer, wrong), fmt.Sprintf(
			"version %d of %s is %s and was read as %s", e.ver, c.opt.KeyName(e.key), was, read))
	}
	if intermediate && early >= 0 {
		c.reportChain(IntermediateRead, "G1b", v, c.ownersOf(e.installer, early), fmt.Sprintf(
			"version %d of %s was replaced by the transaction that installed it, and yet read by another",
			e.ver, c.opt.KeyName(e.key)))
	}
}

// reportChain reports a violation at one version, and stops further reasoning about
// absences of its key.
func (c *checker) reportChain(class Class, phenomenon string, v int32, txns []int, detail string) {
	e := &c.versions.all[v]
	c.markBroken(e.key)
	c.report(Violation{Class: class, Phenomenon: phenomenon, Key: e.key,
		Versions: []history.Version{e.ver}, Txns: txns, Detail: detail})
}

func (c *checker) markBroken(k history.Key) {
	c.versions.all[c.versions.intern(k, 0)].flags |= flagBroken
}

// ownersOf lists the transactions of operations (-1: none), each once.
func (c *checker) ownersOf(ops ...int32) []int {
	var txns []int
	for _, o := range ops {
		if o >= 0 && !slices.Contains(txns, int(c.owner[o])) {
			txns = append(txns, int(c.owner[o]))
		}
	}
	return txns
}

// readersOf lists the first few transactions that read a version.
func (c *checker) readersOf(v int32) []int {
	var txns []int
	for r := c.versions.all[v].readers; r >= 0 && len(txns) < maxShown; r = c.aux[r] {
		if t := int(c.owner[r]); !slices.Contains(txns, t) {
			txns = append(txns, t)
		}
	}
	return txns
}
