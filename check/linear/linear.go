package linear

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"txnode/history"
)

// ErrViolation is what [Result.Err] is, by errors.Is, when a key is not linearizable.
var ErrViolation = errors.New("linear: not linearizable")

// Options of a check. The zero value has useful defaults.
type Options struct {
	// Window is how many operations a window has at least, unless the key has
	// fewer. Default (zero) 64.
	Window int
	// Timeout bounds the search in one window. Default (zero): none.
	Timeout time.Duration
	// KeyName prints a key. Default: in hexadecimal.
	KeyName func(history.Key) string
}

// Violation is a window of a key that has no linearization.
type Violation struct {
	Key history.Key
	// Txns are the transactions of the window, as indices into the history, by start.
	Txns   []int
	Detail string
}

// Result is the verdict on all keys of a history.
type Result struct {
	Keys, Windows int
	Violations    []Violation
	// Undecided counts windows whose search was given up at the timeout.
	Undecided int
}

// Err returns nil, or an error that matches [ErrViolation] and shows the first violation.
func (r *Result) Err() error {
	if len(r.Violations) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d window(s), the first:\n%s", ErrViolation, len(r.Violations), r.Violations[0].Detail)
}

// Check looks for a linearization of every key. What a transaction did to a key counts as one
// operation: it read the state before its own writes, and left the last of them.
// Absence without trace (version zero) is the state of a key before its first
// insert, and of one that was deleted. Transactions of unknown outcome may take effect at any time
// after their start, or not at all.
func Check(txns []history.Txn, o Options) *Result {
	if o.Window <= 0 {
		o.Window = 64
	}
	if o.KeyName == nil {
		o.KeyName = func(k history.Key) string { return fmt.Sprintf("key %#x", uint64(k)) }
	}
	keys := project(txns)
	r := &Result{Keys: len(keys)}
	for _, k := range keys {
		k.check(o, r)
	}
	return r
}

// access is what one transaction did to one key.
type access struct {
	txn        int
	start, end int64
	committed  bool
	observed   []observation // before its own writes
	writes     bool
	left       state // behind them, if writes
	installs   []history.Version
	malformed  bool // its own writes are not a chain
}

type observation struct {
	ver     history.Version
	kind    history.Kind // Read or ReadAbsent; Write: replaced, present or not
	replace bool
}

// register is the accesses of one key.
type register struct {
	key       history.Key
	accesses  []access
	installed map[history.Version]bool
}

// project splits a history into the accesses of its keys, by key.
func project(txns []history.Txn) []*register {
	index := map[history.Key]*register{}
	var keys []*register
	for t := range txns {
		x := &txns[t]
		for _, op := range x.Ops {
			r := index[op.Key]
			if r == nil {
				r = &register{key: op.Key, installed: map[history.Version]bool{}}
				index[op.Key] = r
				keys = append(keys, r)
			}
			if n := len(r.accesses); n == 0 || r.accesses[n-1].txn != t {
				r.accesses = append(r.accesses, access{
					txn: t, start: x.Start, end: max(x.Start, x.End), committed: x.Outcome == history.Committed,
				})
			}
			a := &r.accesses[len(r.accesses)-1]
			a.add(op)
			if op.Kind == history.Write || op.Kind == history.Delete {
				r.installed[op.Version] = true
			}
		}
	}
	slices.SortFunc(keys, func(a, b *register) int { return cmp.Compare(a.key, b.key) })
	for _, r := range keys {
		for i := range r.accesses {
			r.accesses[i].dropOwnReads()
		}
	}
	return keys
}

func (a *access) add(op history.Op) {
	switch op.Kind {
	case history.Read, history.ReadAbsent:
		a.observed = append(a.observed, observation{ver: op.Version, kind: op.Kind})
	case history.Write, history.Delete:
		if !a.writes {
			a.observed = append(a.observed, observation{ver: op.Prev, kind: op.Kind, replace: true})
		} else if op.Prev != a.left.ver {
			a.malformed = true
		}
		a.writes = true
		a.left = state{known: true, ver: op.Version, absent: op.Kind == history.Delete}
		a.installs = append(a.installs, op.Version)
	}
}

func (a *access) dropOwnReads() {
	a.observed = slices.DeleteFunc(a.observed, func(o observation) bool {
		return !o.replace && o.ver != 0 && slices.Contains(a.installs, o.ver)
	})
}

// state of a register. The zero value is not known yet: the first access says what it was.
type state struct {
	known  bool
	ver    history.Version
	absent bool
	gone   bool // absent, and the tombstone was removed
	any    bool // unknown because of a cut: versions of earlier windows are possible, too
}

// apply returns the state behind an access, or false if it cannot follow s.
func (r *register) apply(s state, a *access) (state, bool) {
	if a.malformed {
		return s, false
	}
	for _, o := range a.observed {
		switch {
		case !s.known:
			if o.ver != 0 && r.installed[o.ver] && !s.any {
				return s, false
			}
			s = state{
				known: true, ver: o.ver, absent: o.kind == history.ReadAbsent || o.ver == 0,
				gone: o.ver == 0, any: s.any,
			}
		case o.ver == 0:
			if !s.absent {
				return s, false
			}
			s.gone = true
		case s.ver != o.ver:
			// An absence of unknown origin may turn out to be that of a tombstone.
			if s.ver != 0 || o.replace || r.installed[o.ver] && !s.any {
				return s, false
			}
			s.ver = o.ver
		case o.replace && s.gone:
			return s, false
		}
		if !o.replace && s.absent != (o.kind == history.ReadAbsent) {
			return s, false
		}
	}
	if a.writes {
		s = a.left
	}
	return s, true
}

func (r *register) model(initial state) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{initial} },
		Step: func(s, input, _ interface{}) []interface{} {
			a := input.(*access)
			var next []interface{}
			if after, ok := r.apply(s.(state), a); ok {
				next = append(next, after)
			}
			if !a.committed { // or it did not happen
				next = append(next, s)
			}
			return next
		},
	}
	return m.ToModel()
}

// check splits the accesses of a key into windows and checks each.
func (r *register) check(o Options, res *Result) {
	r.settle()
	slices.SortStableFunc(r.accesses, func(a, b access) int { return cmp.Compare(a.start, b.start) })
	initial := state{}
	for len(r.accesses) > 0 {
		n := cut(r.accesses, o.Window)
		window := r.accesses[:n]
		r.accesses = r.accesses[n:]
		res.Windows++
		if !r.checkWindow(window, initial, o, res) {
			return // what follows would be found wrong for the same reason
		}
		initial = r.carry(initial, window)
	}
}

// settle bounds the time of transactions of unknown outcome: one that a committed
// transaction observed happened, and before that one ended. One that nobody observed
// needs no place, unless an absence without trace could be its doing.
func (r *register) settle() {
	traceless, deletes := false, false
	observer := map[history.Version]int64{} // earliest end of a committed observer
	for i := range r.accesses {
		a := &r.accesses[i]
		deletes = deletes || !a.committed && a.writes && a.left.absent
		for _, o := range a.observed {
			traceless = traceless || o.ver == 0
			if a.committed {
				if end, ok := observer[o.ver]; !ok || a.end < end {
					observer[o.ver] = a.end
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range r.accesses {
			a := &r.accesses[i]
			if a.committed || traceless && deletes {
				continue
			}
			for _, v := range a.installs {
				if end, ok := observer[v]; ok {
					a.committed, a.end, changed = true, end, true
					for _, o := range a.observed {
						if before, ok := observer[o.ver]; !ok || end < before {
							observer[o.ver] = end
						}
					}
					break
				}
			}
		}
	}
	if !(traceless && deletes) {
		r.accesses = slices.DeleteFunc(r.accesses, func(a access) bool { return !a.committed })
	}
	for i := range r.accesses {
		a := &r.accesses[i]
		if !a.committed {
			a.end = math.MaxInt64
		}
		a.end = max(a.start, a.end)
	}
}

// cut returns the length of the first window: at least minimum accesses, and none
// under way at its end.
func cut(accesses []access, minimum int) int {
	latest := int64(math.MinInt64)
	for i := range accesses {
		if i >= minimum && accesses[i].start > latest {
			return i
		}
		latest = max(latest, accesses[i].end)
	}
	return len(accesses)
}

// carry is the state behind a window, if there is no choice.
func (r *register) carry(initial state, window []access) state {
	var last []state
	replaced := map[history.Version]bool{}
	seen := state{known: true, absent: true, any: initial.any} // by a window that only reads
	gone := false
	for i := range window {
		a := &window[i]
		for _, o := range a.observed {
			replaced[o.ver] = replaced[o.ver] || o.replace
			gone = gone || o.ver == 0
			if o.ver != 0 {
				seen = state{known: true, ver: o.ver, absent: o.kind == history.ReadAbsent, any: initial.any}
			}
		}
		if a.writes {
			last = append(last, a.left)
		}
	}
	if len(last) == 0 {
		if initial.known {
			seen = initial
		}
		seen.gone = seen.gone || gone
		return seen
	}
	last = slices.DeleteFunc(last, func(s state) bool { return replaced[s.ver] })
	if len(last) == 1 {
		return last[0]
	}
	return state{any: true}
}

func (r *register) checkWindow(window []access, initial state, o Options, res *Result) bool {
	ops := make([]porcupine.Operation, len(window))
	for i := range window {
		ops[i] = porcupine.Operation{ClientId: i, Input: &window[i], Call: window[i].start, Return: window[i].end}
	}
	switch porcupine.CheckOperationsTimeout(r.model(initial), ops, o.Timeout) {
	case porcupine.Ok:
		return true
	case porcupine.Unknown:
		res.Undecided++
		return true
	}
	v := Violation{Key: r.key}
	var b strings.Builder
	fmt.Fprintf(&b, "%s has no linearization from %s:", o.KeyName(r.key), initial)
	for i := range window {
		v.Txns = append(v.Txns, window[i].txn)
		if i < 32 {
			fmt.Fprintf(&b, "\n  transaction %s", &window[i])
		}
	}
	if n := len(window) - 32; n > 0 {
		fmt.Fprintf(&b, "\n  and %d more", n)
	}
	v.Detail = b.String()
	res.Violations = append(res.Violations, v)
	return false
}

func (s state) String() string {
	switch {
	case !s.known:
		return "any version"
	case s.absent:
		return fmt.Sprintf("version %d (absent)", s.ver)
	default:
		return fmt.Sprintf("version %d", s.ver)
	}
}

func (a *access) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d [%d,%d]", a.txn, a.start, a.end)
	for _, o := range a.observed {
		switch {
		case o.replace:
			fmt.Fprintf(&b, " replaced %d", o.ver)
		case o.kind == history.ReadAbsent:
			fmt.Fprintf(&b, " read %d (absent)", o.ver)
		default:
			fmt.Fprintf(&b, " read %d", o.ver)
		}
	}
	if a.writes {
		fmt.Fprintf(&b, " left %s", a.left)
	}
	return b.String()
}
