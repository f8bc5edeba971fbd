package command

import (
	"errors"
	"slices"
	"strings"
	"time"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// top makes views of sights: rates are between two of them.
type top struct {
	leases leases
	before *cluster.Sight
	work   map[uint64]counted // by ProcessReport.Life
}

// counted is what a process has done between its last two reports that were seen.
type counted struct {
	last    cluster.ProcessReport
	since   txn.Metrics // what was added
	seconds float64     // 0: there was one report
}

// take makes the view of a sight, which is later than those before.
func (t *top) take(s *cluster.Sight) *topView {
	v := &topView{Catalog: s.Catalog, Time: s.At, Blades: []topBlade{}, Processes: []topProcess{}, Tables: []topTable{}}
	if s.Err != nil {
		v.Error = oneLine(s.Err)
	}
	t.blades(v, s)
	t.count(s.Processes)
	t.processes(v, s)
	t.tables(v)
	if l := s.Layout; l != nil {
		r := l.Redundancy()
		v.Database = &topDatabase{
			Epoch: uint32(l.Epoch), Workers: len(l.Coordinators), Tables: len(liveTables(l)), Segments: r.Segments,
			Lost: r.Lost, Missing: r.Missing, Building: r.Building, Unavailable: r.Unavailable,
			Build: buildOf(cluster.BuildOf(s.Processes)), Down: len(r.Down), Reporting: len(s.Processes),
		}
	}
	t.before = s
	return v
}

// perSecond is a rate of totals. One that has become less began anew.
func perSecond(now, was uint64, seconds float64) float64 {
	if now < was {
		was = 0
	}
	return float64(now-was) / seconds
}

func (t *top) blades(v *topView, s *cluster.Sight) {
	before := map[cluster.BladeAddress]*cluster.Report{}
	if t.before != nil {
		for i := range t.before.Servers {
			before[t.before.Servers[i].Address] = t.before.Servers[i].Report
		}
	}
	for i := range s.Servers {
		x := &s.Servers[i]
		was := before[x.Address]
		for b, size := range x.Blades {
			out := topBlade{Blade: len(v.Blades), Server: string(x.Address), Size: size, State: "up"}
			if l := s.Layout; l != nil && out.Blade < len(l.Blades) {
				out.State = stateOf(&l.Blades[out.Blade])
			}
			switch r := x.Report; {
			case x.Vacant():
				out.State = string(cluster.BladeVacant)
			case r == nil:
				out.State, out.Error, out.away = string(cluster.BladeSilent), oneLine(explainTLS(x.Err)), true
			case b >= len(r.Blades):
				out.State, out.Error, out.away = string(cluster.BladeSilent), "the server has other blades", true
			default:
				out.report(r, was, b)
			}
			v.Blades = append(v.Blades, out)
		}
	}
}

// stateOf is what the catalog says of a blade.
func stateOf(b *layout.Blade) string {
	switch down := b.State == layout.BladeDown; {
	case down && b.Leaving:
		return string(cluster.BladeDrained)
	case down:
		return string(cluster.BladeDown)
	case b.Leaving:
		return "leaving"
	}
	return "up"
}

// report takes over what the daemon says of its blade i, and has said before; was may be nil.
func (b *topBlade) report(r, was *cluster.Report, i int) {
	now := &r.Blades[i]
	b.Size, b.Provisioned, b.Connections = now.Size, now.Provisioned, now.Connections
	if now.Fault != "" {
		b.State, b.Error = string(cluster.BladeStopped), oneLine(errors.New(now.Fault))
	}
	if len(r.Full) > 0 && b.State == "up" {
		b.State, b.Error = string(cluster.BladeFull), oneLine(errors.New(strings.Join(r.Full, "; ")))
	}
	if !r.Counted || was == nil || i >= len(was.Blades) {
		return
	}
	then := was.Blades[i]
	if !r.Began.Equal(was.Began) { // it has restarted, and its totals began anew
		then = cluster.BladeReport{}
	}
	seconds := r.Time.Sub(was.Time).Seconds()
	if seconds <= 0 {
		return
	}
	b.Rates = &topRates{
		Verbs: map[string]float64{}, Failed: perSecond(now.Failed, then.Failed, seconds),
		Read:    perSecond(now.BytesRead, then.BytesRead, seconds),
		Written: perSecond(now.BytesWritten, then.BytesWritten, seconds),
	}
	for op := range rdma.NumOps {
		b.verbs[op] = perSecond(now.Verbs[op], then.Verbs[op], seconds)
		b.Rates.Verbs[op.String()] = b.verbs[op]
	}
}

// count takes note of what processes report.
func (t *top) count(reports []cluster.ProcessReport) {
	work := map[uint64]counted{}
	for _, r := range reports {
		c, known := t.work[r.Life]
		switch {
		case !known:
			c = counted{last: r}
		case r.At > c.last.At:
			c = counted{last: r, since: added(&r.Metrics, &c.last.Metrics), seconds: float64(r.At-c.last.At) / 1e9}
		} // otherwise it has said nothing new yet
		work[r.Life] = c
	}
	t.work = work
}

// complete reports whether the rates of all processes that report are known.
func (t *top) complete() bool {
	for _, c := range t.work {
		if c.seconds == 0 {
			return false
		}
	}
	return true
}

// added is what was added to totals that are shown.
func added(now, was *txn.Metrics) (d txn.Metrics) {
	less := func(a, b uint64) uint64 { return a - min(a, b) }
	d.Committed, d.RolledBack, d.Failed = less(now.Committed, was.Committed), less(now.RolledBack, was.RolledBack),
		less(now.Failed, was.Failed)
	for i := range d.Conflicts {
		d.Conflicts[i] = less(now.Conflicts[i], was.Conflicts[i])
	}
	for i := range d.Verbs.Verbs {
		d.Verbs.Verbs[i] = less(now.Verbs.Verbs[i], was.Verbs.Verbs[i])
	}
	d.Verbs.RoundTrips = less(now.Verbs.RoundTrips, was.Verbs.RoundTrips)
	for k := range d.Latency {
		for i := range d.Latency[k].Buckets {
			d.Latency[k].Buckets[i] = less(now.Latency[k].Buckets[i], was.Latency[k].Buckets[i])
		}
	}
	for _, x := range now.Tables {
		i := slices.IndexFunc(was.Tables, func(y txn.TableMetrics) bool { return y.Table == x.Table })
		y := &txn.TableMetrics{} // it was opened since
		if i >= 0 {
			y = &was.Tables[i]
		} else if len(was.Tables) >= cluster.ReportedTables { // or was not reported, and its totals are not known
			continue
		}
		d.Tables = append(d.Tables, txn.TableMetrics{Table: x.Table, TableCounts: txn.TableCounts{
			Reads: less(x.Reads, y.Reads), Updates: less(x.Updates, y.Updates), Inserts: less(x.Inserts, y.Inserts),
			Deletes: less(x.Deletes, y.Deletes), Conflicts: less(x.Conflicts, y.Conflicts),
		}})
	}
	return d
}

// processes are those that the catalog has, and that report.
func (t *top) processes(v *topView, s *cluster.Sight) {
	var known []processLook
	if s.Layout != nil {
		known = t.leases.look(s.Layout.Processes, s.Beats, s.At)
	}
	seen := map[uint32]bool{}
	for _, r := range s.Processes {
		p := topProcess{
			Process: r.Process, Host: r.Host, PID: r.PID, Program: r.Program, Reports: true,
			Lease: topLease{State: "none"},
		}
		p.Workers = r.Metrics.Workers.Open + r.Metrics.Workers.Own
		if i := slices.IndexFunc(known, func(k processLook) bool { return k.ID == r.Process }); i >= 0 {
			p.Lease = leaseOf(&known[i])
		}
		seen[r.Process] = true
		if c := t.work[r.Life]; c.seconds > 0 {
			p.Work = c.work()
		}
		v.Processes = append(v.Processes, p)
	}
	for i := range known {
		if k := &known[i]; !seen[k.ID] && !k.Closed {
			v.Processes = append(v.Processes, topProcess{Process: k.ID, Lease: leaseOf(k)})
		}
	}
	slices.SortStableFunc(v.Processes, func(a, b topProcess) int { return int(int64(a.Process) - int64(b.Process)) })
}

func leaseOf(k *processLook) topLease {
	l := topLease{State: "live", TermNs: int64(k.Term), AgeNs: int64(k.Since)}
	switch {
	case k.Closed:
		l.State = "closed"
	case !k.Live:
		l.State = "expired"
	}
	return l
}

// work is what a process does a second.
func (c *counted) work() *topWork {
	m := &c.since
	rate := func(n uint64) float64 { return float64(n) / c.seconds }
	k := &topWork{
		Committed: rate(m.Committed), RolledBack: rate(m.RolledBack), Failed: rate(m.Failed),
		Aborts: map[string]float64{}, Latency: map[string]topSpan{},
	}
	for r, n := range m.Conflicts {
		k.Aborts[txn.AbortReason(r).String()] = rate(n)
	}
	if n := m.Committed; n > 0 {
		k.Verbs, k.Trips = float64(m.Verbs.Total())/float64(n), float64(m.Verbs.RoundTrips)/float64(n)
	}
	for kind := range m.Latency {
		if h := &m.Latency[kind]; h.Count() > 0 {
			k.Latency[txn.Kind(kind).String()] = topSpan{int64(quantile(h, 0.5)), int64(quantile(h, 0.99))}
		}
	}
	return k
}

// quantile estimates the duration that a part q of those in a histogram is below, as if they were
// spread evenly in each bucket.
func quantile(h *txn.Histogram, q float64) time.Duration {
	rank := q * float64(h.Count())
	for i, n := range h.Buckets {
		if float64(n) < rank {
			rank -= float64(n)
			continue
		}
		from, to := time.Duration(0), h.Bound(i)
		if i > 0 {
			from = h.Bound(i - 1)
		}
		if to == 0 { // the last one has no bound
			return from
		}
		return from + time.Duration(float64(to-from)*rank/max(float64(n), 1))
	}
	return 0
}

// tables are those of all processes.
func (t *top) tables(v *topView) {
	all := map[string]*topTable{}
	for _, c := range t.work {
		for i := range c.since.Tables {
			x := &c.since.Tables[i]
			sum := all[x.Table]
			if sum == nil {
				sum = &topTable{Table: x.Table}
				all[x.Table] = sum
			}
			sum.Reads += float64(x.Reads) / c.seconds
			sum.Updates += float64(x.Updates) / c.seconds
			sum.Inserts += float64(x.Inserts) / c.seconds
			sum.Deletes += float64(x.Deletes) / c.seconds
			sum.Conflicts += float64(x.Conflicts) / c.seconds
		}
	}
	for _, x := range all {
		v.Tables = append(v.Tables, *x)
	}
	slices.SortFunc(v.Tables, func(a, b topTable) int { return strings.Compare(a.Table, b.Table) })
}
