package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"txnode/benchmarks/report/published"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
)

// Schema of Explanation.
const (
	ExplanationSchema  = "txnode/explanation"
	ExplanationVersion = 1
)

// Explanation says what each transaction type costs, counted by running it,
// beside what FORD needs for it and the most that our design allows.
type Explanation struct {
	Schema        string          `json:"schema"`
	SchemaVersion int             `json:"schema_version"`
	Workload      string          `json:"workload"`
	Store         Store           `json:"store"`
	Parameters    []Parameter     `json:"parameters"`
	Samples       int             `json:"samples"` // transactions per type
	Phased        bool            `json:"phased"`  // phases are known
	Types         []ExplainedType `json:"types"`
	// MixCommitted is the mean of Types' committed transactions, weighted by their
	// shares: as if all committed. MixAttempts is counted over transactions drawn by
	// the mix, of whatever outcome.
	MixCommitted ExplainedMix `json:"mix_committed"`
	MixAttempts  ExplainedMix `json:"mix_attempts"`
}

// ExplainedType is one transaction type.
type ExplainedType struct {
	Name         string         `json:"name"`
	SharePercent float64        `json:"share_percent"`
	Committed    uint64         `json:"committed"`   // of the samples
	RolledBack   uint64         `json:"rolled_back"` // of them
	RowAbsent    uint64         `json:"row_absent"`  // of them
	PerCommitted Cost           `json:"per_committed"`
	MinVerbs     uint64         `json:"min_verbs"` // of a committed one
	MaxVerbs     uint64         `json:"max_verbs"`
	MinTrips     uint64         `json:"min_round_trips"`
	MaxTrips     uint64         `json:"max_round_trips"`
	Phases       []PhaseCost    `json:"phases,omitempty"` // of committed ones
	PerAttempt   Cost           `json:"per_attempt"`
	FORD         *PublishedCost `json:"ford,omitempty"`  // none for workloads that FORD does not have
	Bound        *PublishedCost `json:"bound,omitempty"` // of the default policy, by design
}

// PhaseCost is the mean of one phase.
type PhaseCost struct {
	Phase string `json:"phase"`
	Cost
}

// PublishedCost is a cost that follows from a protocol. Max differs from Min for
// a type that reads more or fewer records.
type PublishedCost struct {
	MinVerbs   float64     `json:"min_verbs"`
	MaxVerbs   float64     `json:"max_verbs"`
	RoundTrips float64     `json:"round_trips"`
	Phases     []PhaseCost `json:"phases,omitempty"` // of Min
}

// ExplainedMix is a mean over the mix, with FORD's and the bound where they are known; else zero.
type ExplainedMix struct {
	Cost
	FORDVerbs       float64 `json:"ford_verbs,omitempty"`
	FORDRoundTrips  float64 `json:"ford_round_trips,omitempty"`
	BoundVerbs      float64 `json:"bound_verbs,omitempty"`
	BoundRoundTrips float64 `json:"bound_round_trips,omitempty"`
}

// fordPhases are the published phases as phases of package workload.
var fordPhases = [published.NumPhases]workload.Phase{
	published.Read:     workload.PhaseRead,
	published.Validate: workload.PhaseValidate,
	published.Log:      workload.PhaseLog,
	published.Commit:   workload.PhaseCommit,
	published.Release:  workload.PhaseRelease,
}

// NewExplanation converts what runner.Explain has counted. The caller fills in
// Parameters.
func NewExplanation(name string, store Store, x *runner.Explanation) *Explanation {
	e := &Explanation{
		Schema: ExplanationSchema, SchemaVersion: ExplanationVersion,
		Workload: name, Store: store, Parameters: []Parameter{}, Phased: x.Phased, Types: []ExplainedType{},
	}
	layout := published.Layout{Backups: store.Replicas, Blades: store.Blades}
	for i := range x.Types {
		t := explainedType(&x.Types[i], x.Phased)
		if p, ok := published.Lookup(name, t.Name); ok {
			t.FORD = publishedCost(p, func(x published.Transaction) published.Cost {
				return published.Sum(x.FORD(layout))
			})
			for ph, c := range p.FORD(layout) {
				t.FORD.Phases = append(t.FORD.Phases,
					PhaseCost{fordPhases[ph].String(), Cost{Verbs: c.Verbs, RoundTrips: c.RoundTrips}})
			}
			t.Bound = publishedCost(p, func(x published.Transaction) published.Cost { return x.Bound(layout) })
		}
		e.Samples = max(e.Samples, int(t.Committed+t.RolledBack+t.RowAbsent))
		e.Types = append(e.Types, t)
	}
	drawn := explainedType(&x.Mix, false)
	e.MixAttempts.Cost = drawn.PerAttempt
	e.mix(layout)
	return e
}

func explainedType(x *runner.Explained, phased bool) ExplainedType {
	n := x.Outcomes[workload.Committed]
	t := ExplainedType{
		Name: x.Name, SharePercent: x.Share,
		Committed: n, RolledBack: x.Outcomes[workload.RolledBack], RowAbsent: x.Outcomes[workload.RowAbsent],
		PerCommitted: costPer(x.Total[workload.Committed], n),
		MinVerbs:     x.MinVerbs, MaxVerbs: x.MaxVerbs, MinTrips: x.MinTrips, MaxTrips: x.MaxTrips,
	}
	var total workload.Counters
	attempts := uint64(0)
	for o := range x.Total {
		total.Verbs += x.Total[o].Verbs
		total.RoundTrips += x.Total[o].RoundTrips
		total.BytesRead += x.Total[o].BytesRead
		total.BytesWrite += x.Total[o].BytesWrite
		attempts += x.Outcomes[o]
	}
	t.PerAttempt = costPer(total, attempts)
	if phased {
		for p := range workload.NumPhases {
			c := x.Phases[workload.Committed][p]
			t.Phases = append(t.Phases, PhaseCost{p.String(), costPer(workload.Counters{
				Verbs: c.Verbs, RoundTrips: c.RoundTrips, BytesRead: c.BytesRead, BytesWrite: c.BytesWrite,
			}, n)})
		}
	}
	return t
}

func publishedCost(p published.Transaction, cost func(published.Transaction) published.Cost) *PublishedCost {
	least, most := cost(p), cost(p.Most())
	return &PublishedCost{MinVerbs: least.Verbs, MaxVerbs: most.Verbs, RoundTrips: least.RoundTrips}
}

// mix computes the means. FORD's mean over committed transactions is known where
// no type is a range; its mean over attempts was measured for its own mix.
func (e *Explanation) mix(layout published.Layout) {
	known, ranged := len(e.Types) > 0, false
	for i := range e.Types {
		t := &e.Types[i]
		w := t.SharePercent / 100
		e.MixCommitted.add(t.PerCommitted, w)
		known = known && t.FORD != nil
		if t.FORD == nil {
			continue
		}
		ranged = ranged || t.FORD.MinVerbs != t.FORD.MaxVerbs
		e.MixCommitted.FORDVerbs += w * t.FORD.MinVerbs
		e.MixCommitted.FORDRoundTrips += w * t.FORD.RoundTrips
		e.MixCommitted.BoundVerbs += w * t.Bound.MinVerbs
		e.MixCommitted.BoundRoundTrips += w * t.Bound.RoundTrips
	}
	if !known || ranged {
		m := &e.MixCommitted
		m.FORDVerbs, m.FORDRoundTrips, m.BoundVerbs, m.BoundRoundTrips = 0, 0, 0, 0
	}
	if layout == (published.Layout{Backups: 1, Blades: 2}) && e.fordMix() {
		e.MixAttempts.FORDVerbs, e.MixAttempts.BoundVerbs = published.PerAttempt(e.Workload)
	}
}

// fordMix says whether the mix is FORD's.
func (e *Explanation) fordMix() bool {
	return !slices.ContainsFunc(e.Types, func(t ExplainedType) bool {
		p, ok := published.Lookup(e.Workload, t.Name)
		return !ok || p.Share != t.SharePercent
	})
}

func (m *ExplainedMix) add(c Cost, weight float64) {
	m.Verbs += weight * c.Verbs
	m.RoundTrips += weight * c.RoundTrips
	m.BytesRead += weight * c.BytesRead
	m.BytesWritten += weight * c.BytesWritten
}

// WriteTable prints the explanation for people.
func (e *Explanation) WriteTable(w io.Writer, theme Theme) error {
	var b strings.Builder
	b.WriteString(theme.bold("what "+e.Workload+" transactions cost on "+e.Store.Name) + "\n")
	b.WriteString(labelled(theme, "counted", fmt.Sprintf(
		"by running %s of each type with one worker: no conflicts, addresses cached",
		plural(int64(e.Samples), "transaction"))))
	b.WriteString(labelled(theme, "store", e.Store.String()))
	if p := parameters(e.Parameters); p != "" {
		b.WriteString(labelled(theme, "options", p))
	}
	b.WriteString("\n" + e.totals(theme))
	if e.Phased {
		b.WriteString("\n" + e.phases(theme))
	} else {
		b.WriteString("\n" + wrap("this store does not say what each phase costs", "  ", "  "))
	}
	b.WriteString("\n")
	for _, n := range e.notes() {
		b.WriteString(wrap(n, "  ", "  "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// totals is the table of verbs, round trips and bytes of committed transactions.
func (e *Explanation) totals(theme Theme) string {
	const verbs, trips, size = "verbs", "round trips", "bytes"
	g := grid{theme: theme}
	g.column("", "committed transaction")
	g.column("", "mix %")
	for _, group := range []string{verbs, trips} {
		g.column(group, "ours")
		g.column(group, "FORD")
		g.column(group, "bound")
	}
	g.column(size, "read")
	g.column(size, "written")
	for i := range e.Types {
		t := &e.Types[i]
		c := &t.PerCommitted
		g.row(t.Name, exact(t.SharePercent),
			spanned(c.Verbs, t.MinVerbs, t.MaxVerbs), t.FORD.verbs(), t.Bound.verbs(),
			spanned(c.RoundTrips, t.MinTrips, t.MaxTrips), t.FORD.trips(), t.Bound.trips(),
			whole(c.BytesRead), dotZero(c.BytesWritten, whole))
	}
	g.rule()
	mix := func(name string, m *ExplainedMix) {
		opt := func(x float64) string { return dotZero(x, exact) }
		g.row(name, "", exact(m.Verbs), opt(m.FORDVerbs), opt(m.BoundVerbs),
			exact(m.RoundTrips), opt(m.FORDRoundTrips), opt(m.BoundRoundTrips), whole(m.BytesRead),
			whole(m.BytesWritten))
		g.embolden()
	}
	mix("mix, committed", &e.MixCommitted)
	mix("mix, all attempts", &e.MixAttempts)
	return g.String()
}

// phases is the table of verbs and round trips by phase, ours above FORD's.
func (e *Explanation) phases(theme Theme) string {
	g := grid{theme: theme, left: 2}
	g.column("", "verbs / round trips")
	g.column("", "")
	phases := workload.NumPhases
	other := workload.PhaseOther
	if !slices.ContainsFunc(e.Types, func(t ExplainedType) bool {
		return t.Phases[other].Verbs > 0 || t.Phases[other].RoundTrips > 0
	}) {
		phases = other // nothing of it: no column
	}
	for p := range phases {
		g.column("", p.String())
	}
	g.column("", "all")
	line := func(costs []PhaseCost) []string {
		var cells []string
		for p := range phases {
			i := slices.IndexFunc(costs, func(c PhaseCost) bool { return c.Phase == p.String() })
			if i < 0 {
				cells = append(cells, none)
				continue
			}
			cells = append(cells, verbsAndTrips(costs[i].Verbs, costs[i].RoundTrips))
		}
		var sum Cost
		for _, c := range costs {
			sum.Verbs += c.Verbs
			sum.RoundTrips += c.RoundTrips
		}
		return append(cells, verbsAndTrips(sum.Verbs, sum.RoundTrips))
	}
	for i := range e.Types {
		t := &e.Types[i]
		g.row(append([]string{t.Name, "ours"}, line(t.Phases)...)...)
		g.embolden()
		if t.FORD != nil {
			g.row(append([]string{"", "FORD"}, line(t.FORD.Phases)...)...)
		}
	}
	return g.String()
}

func (e *Explanation) notes() []string {
	notes := []string{
		fmt.Sprintf("FORD: counted in its code, with %s and %s: 2r + 2n + M + 3n(f+1) + f verbs for r records read "+
			"and n written (f backups, M blades).",
			plural(int64(e.Store.Replicas), "backup"), plural(int64(e.Store.Blades), "blade")),
		"bound: the most that the default policy may need by design, 2r + 2n + (f+1) + n(f+1) + n verbs.",
		"A round trip is waited for before the client may say committed; releasing is not.",
	}
	if e.MixAttempts.FORDVerbs > 0 {
		notes = append(notes,
			"All attempts: those that end for lack of funds, or of a row, are counted, too; FORD's as measured at "+
				"one thread, figure 10 of SMART.")
	}
	if slices.ContainsFunc(e.Types, func(t ExplainedType) bool { return t.Phases != nil && t.FORD != nil }) {
		notes = append(notes, "A round trip that phases share is counted in the later one.")
	}
	if slices.ContainsFunc(e.Types, func(t ExplainedType) bool { return t.MinVerbs != t.MaxVerbs }) {
		notes = append(notes, "Where transactions of a type differ, the mean is followed by the least and the most.")
	}
	return notes
}

// verbs writes a range or a number; a dot for none.
func (c *PublishedCost) verbs() string {
	switch {
	case c == nil:
		return none
	case c.MinVerbs != c.MaxVerbs:
		return exact(c.MinVerbs) + "–" + exact(c.MaxVerbs)
	}
	return exact(c.MinVerbs)
}

func (c *PublishedCost) trips() string {
	if c == nil {
		return none
	}
	return exact(c.RoundTrips)
}

// spanned writes a mean, with its range if there is one.
func spanned(mean float64, least, most uint64) string {
	if least == most {
		return dotZero(mean, exact)
	}
	return fmt.Sprintf("%s (%d–%d)", exact(mean), least, most)
}

func verbsAndTrips(verbs, trips float64) string {
	if verbs == 0 && trips == 0 {
		return none
	}
	return exact(verbs) + " / " + exact(trips)
}

// parameters writes those out that are not the default.
func parameters(ps []Parameter) string {
	var out []string
	for _, p := range ps {
		if !p.Default {
			out = append(out, p.Name+" "+p.Value)
		}
	}
	return strings.Join(out, ", ")
}
