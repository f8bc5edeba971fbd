package tatp

import (
	"context"
	"fmt"
	"sync"

	"txnode/benchmarks/workload"
)

// rule is one that rows must keep by themselves.
type rule uint8

const (
	ruleSubscriber rule = iota
	ruleSecondary
	ruleFacility
	ruleAccess
	ruleKinds
	ruleParent
	ruleForwarding
	ruleReference
	numRules
)

var ruleNames = [numRules]string{
	ruleSubscriber: "every subscriber has a row with its number",
	ruleSecondary:  "every number leads to its subscriber",
	ruleFacility:   "special facilities are well-formed",
	ruleAccess:     "access info is well-formed",
	ruleKinds:      "every subscriber has 1 to 4 special facilities and access infos",
	ruleParent:     "every special facility and access info has a subscriber",
	ruleForwarding: "call forwarding ends at an hour from 1 to 24, and has a number",
	ruleReference:  "every call forwarding has a special facility",
}

// audit is what reading all rows has found.
type audit struct {
	rows   [numTables]int
	beyond bool // the subscriber after the last one exists
	broken [numRules]struct {
		count int
		first uint32 // the lowest subscriber concerned
	}
}

func (a *audit) breaks(r rule, s uint32, count int) {
	b := &a.broken[r]
	if b.count == 0 || s < b.first {
		b.first = s
	}
	b.count += count
}

func (a *audit) merge(b *audit) {
	for t, n := range b.rows {
		a.rows[t] += n
	}
	a.beyond = a.beyond || b.beyond
	for r, x := range b.broken {
		if x.count > 0 {
			a.breaks(rule(r), x.first, x.count)
		}
	}
}

// report adds a check for each rule.
func (a *audit) report(r *workload.VerifyReport) {
	for i, b := range a.broken {
		detail := "without exception"
		if b.count > 0 {
			detail = fmt.Sprintf("%d exceptions, the first of subscriber %d", b.count, b.first)
		}
		if rule(i) == ruleSubscriber && a.beyond {
			detail += ", and there is a row beyond the last subscriber"
		}
		r.Add(ruleNames[i], b.count == 0 && !(rule(i) == ruleSubscriber && a.beyond), "%s", detail)
	}
}

// audit reads every row that may exist, in transactions of batch subscribers,
// while no client runs.
func (d *Driver) audit(ctx context.Context, store workload.Store, progress func(done, total int)) (*audit, error) {
	var (
		sum audit
		mu  sync.Mutex // guards sum
		n   = d.options.Subscribers
	)
	err := workload.Scan(ctx, store, n, batch, progress,
		func(w workload.Worker) func(context.Context, int, int) error {
			return func(ctx context.Context, lo, hi int) error {
				var part audit
				err := w.View(ctx, func(tx workload.Tx) error {
					part = audit{} // of this attempt
					for s := lo; s < hi; s++ {
						stageAll(tx, uint32(s))
					}
					for s := lo; s < hi; s++ {
						if err := part.inspect(tx, uint32(s)); err != nil {
							return err
						}
					}
					if hi < n {
						return nil
					}
					var err error
					_, part.beyond, err = workload.Find(tx, Subscriber, subscriberKey(uint32(n)))
					return err
				})
				if err != nil {
					return err
				}
				mu.Lock()
				sum.merge(&part)
				mu.Unlock()
				return nil
			}
		})
	return &sum, err
}

// stageAll announces all rows that subscriber s may have, in the order in which
// inspect reads them.
func stageAll(tx workload.Tx, s uint32) {
	tx.Stage(Subscriber, subscriberKey(s), workload.Read)
	tx.Stage(Secondary, subscriberNumber(s), workload.Read)
	for kind := uint64(1); kind <= numKinds; kind++ {
		tx.Stage(AccessInfo, accessKey(s, kind), workload.Read)
		tx.Stage(SpecialFacility, facilityKey(s, kind), workload.Read)
		for _, start := range starts {
			tx.Stage(CallForwarding, forwardingKey(s, kind, start), workload.Read)
		}
	}
}

// inspect reads and checks the rows of subscriber s.
func (a *audit) inspect(tx workload.Tx, s uint32) error {
	var (
		subscriber subscriberRow
		secondary  secondaryRow
		access     accessRow
		facility   facilityRow
		forwarding forwardingRow
	)
	present, whole, err := a.read(tx, Subscriber, subscriberKey(s), subscriber[:])
	if err != nil {
		return err
	}
	if !whole || !subscriber.whole(s) {
		a.breaks(ruleSubscriber, s, 1)
	}
	_, whole, err = a.read(tx, Secondary, subscriberNumber(s), secondary[:])
	if err != nil {
		return err
	}
	if !whole || !secondary.whole(s) {
		a.breaks(ruleSecondary, s, 1)
	}
	var numAccess, numFacility int
	for kind := uint64(1); kind <= numKinds; kind++ {
		hasAccess, whole, err := a.read(tx, AccessInfo, accessKey(s, kind), access[:])
		if err != nil {
			return err
		}
		if hasAccess {
			numAccess++
			if !whole || !access.whole() {
				a.breaks(ruleAccess, s, 1)
			}
		}
		hasFacility, whole, err := a.read(tx, SpecialFacility, facilityKey(s, kind), facility[:])
		if err != nil {
			return err
		}
		if hasFacility {
			numFacility++
			if !whole || !facility.whole() {
				a.breaks(ruleFacility, s, 1)
			}
		}
		for _, start := range starts {
			has, whole, err := a.read(tx, CallForwarding, forwardingKey(s, kind, start), forwarding[:])
			if err != nil {
				return err
			}
			if !has {
				continue
			}
			if !whole || !forwarding.whole() {
				a.breaks(ruleForwarding, s, 1)
			}
			if !hasFacility {
				a.breaks(ruleReference, s, 1)
			}
		}
	}
	if numAccess == 0 || numFacility == 0 {
		a.breaks(ruleKinds, s, 1)
	}
	if !present && numAccess+numFacility > 0 {
		a.breaks(ruleParent, s, numAccess+numFacility)
	}
	return nil
}

// read copies a row, if it is present and, then, whole in length.
func (a *audit) read(tx workload.Tx, table int, key uint64, row []byte) (present, whole bool, err error) {
	v, found, err := workload.Find(tx, table, key)
	if err != nil || !found {
		return false, false, err
	}
	a.rows[table]++
	if len(v) != len(row) {
		return true, false, nil
	}
	copy(row, v)
	return true, true, nil
}
