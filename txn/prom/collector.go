package prom

import (
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"txnode/txn"
)

// Options of a collector. The zero value is the default.
type Options struct {
	// Labels are on every metric, as to tell two databases of a process apart.
	Labels prometheus.Labels
	// WithoutTables leaves out the figures of single tables: five series for each table that was
	// opened.
	WithoutTables bool
}

// Collector is a prometheus.Collector of one database. Safe for concurrent use.
type Collector struct {
	db     *txn.DB
	tables bool
	described
}

// NewCollector makes a collector of a database, which must have come from txn.Open. The caller
// registers it, and closes the database whenever it likes.
func NewCollector(db *txn.DB, o Options) *Collector {
	return &Collector{db: db, tables: !o.WithoutTables, described: describe(o.Labels)}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.all {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	m := c.db.Metrics()
	s := sink{to}
	c.collectTransactions(s, &m)
	c.collectVerbs(s, &m)
	c.collectWorkers(s, &m)
	c.collectRecovery(s, &m)
	c.collectBlades(s, &m)
	if c.tables {
		c.collectTables(s, &m)
	}
}

// sink is where metrics go.
type sink struct{ to chan<- prometheus.Metric }

func (s sink) count(d *prometheus.Desc, v uint64, labels ...string) {
	s.total(d, float64(v), labels...)
}

func (s sink) total(d *prometheus.Desc, v float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (c *Collector) collectTransactions(s sink, m *txn.Metrics) {
	s.count(c.transactions, m.Committed, "committed")
	s.count(c.transactions, m.RolledBack, "rolled_back")
	s.count(c.transactions, m.Failed, "failed")
	s.count(c.retries, m.Retries)
	for r, n := range m.Conflicts {
		s.count(c.conflicts, n, txn.AbortReason(r).String())
	}
	for k := range m.Latency {
		h := &m.Latency[k]
		buckets, sum := make(map[float64]uint64, len(h.Buckets)), uint64(0)
		for i := range len(h.Buckets) - 1 { // the last one has no bound, and is Prometheus' +Inf
			sum += h.Buckets[i]
			buckets[h.Bound(i).Seconds()] = sum
		}
		s.to <- prometheus.MustNewConstHistogram(c.duration, h.Count(), h.Sum.Seconds(), buckets, txn.Kind(k).String())
	}
}

func (c *Collector) collectVerbs(s sink, m *txn.Metrics) {
	for p := range m.Phases {
		x, phase := &m.Phases[p], txn.Phase(p).String()
		for v, n := range x.Verbs {
			s.count(c.verbs, n, txn.Verb(v).String(), phase)
		}
		s.count(c.roundTrips, x.RoundTrips, phase)
		s.count(c.bytesRead, x.BytesRead, phase)
		s.count(c.bytesWritten, x.BytesWrite, phase)
	}
}

func (c *Collector) collectWorkers(s sink, m *txn.Metrics) {
	w := &m.Workers
	s.gauge(c.workersLimit, float64(w.Limit))
	s.gauge(c.workers, float64(w.Idle), "idle")
	s.gauge(c.workers, float64(w.Open-w.Idle), "busy")
	s.gauge(c.waiters, float64(w.Waiting))
	s.count(c.waits, w.Waits)
	s.total(c.waited, w.Waited.Seconds())
}

func (c *Collector) collectRecovery(s sink, m *txn.Metrics) {
	r := &m.Recovery
	s.count(c.rejoins, m.Rejoins)
	s.count(c.coordinators, r.Coordinators)
	s.count(c.recovered, r.Finished, "finished")
	s.count(c.recovered, r.Undone, "undone")
	s.count(c.bladesLost, r.Outages)
	s.count(c.damage, m.Damage, "transaction")
	s.count(c.damage, r.Damage, "recovery")
	s.count(c.mended, m.Mended)
	red := c.db.Redundancy()
	s.gauge(c.segments, float64(red.Segments))
	s.gauge(c.segmentsLost, float64(red.Lost))
	s.gauge(c.segmentsUnavailable, float64(red.Unavailable))
	s.gauge(c.copiesMissing, float64(red.Missing))
	s.gauge(c.copiesBuilding, float64(red.Building))
	s.gauge(c.copyDone, float64(m.Copies.Done))
	s.gauge(c.copyTotal, float64(m.Copies.Total))
	s.gauge(c.copyLeft, m.Copies.Left.Seconds())
}

func (c *Collector) collectBlades(s sink, m *txn.Metrics) {
	for i := range m.Blades {
		b := &m.Blades[i]
		label, up := strconv.Itoa(b.Blade), 1.0
		if b.Down {
			up = 0
		}
		s.gauge(c.bladeUp, up, label)
		s.gauge(c.bladeSize, float64(b.Total), label)
		s.gauge(c.bladeUsed, float64(b.Used), label)
		s.gauge(c.bladeFree, float64(b.Free), label)
	}
}

func (c *Collector) collectTables(s sink, m *txn.Metrics) {
	for i := range m.Tables {
		t := &m.Tables[i]
		name := labelOf(t.Table)
		s.count(c.tableOps, t.Reads, name, "read")
		s.count(c.tableOps, t.Updates, name, "update")
		s.count(c.tableOps, t.Inserts, name, "insert")
		s.count(c.tableOps, t.Deletes, name, "delete")
		s.count(c.tableConflicts, t.Conflicts, name)
	}
}

// labelOf is the name of a table as a label, which has to be UTF-8: one that is not is quoted.
func labelOf(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}
