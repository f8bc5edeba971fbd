package prom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"txnode/txn"
	"txnode/txn/prom"
)

// small are options of a database that a test can afford.
func small() txn.Options {
	return txn.Options{
		SegmentSize: 256 << 10, LogArea: 64 << 10, BladeSize: 16 << 20, Arena: 1 << 20,
		CacheBytes: 64 << 10, Workers: 3, Seed: 1, LatencySample: 1,
	}
}

func open(t *testing.T, o txn.Options) *txn.DB {
	t.Helper()
	db, err := txn.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(context.Background()); err != nil && !errors.Is(err, txn.ErrClosed) {
			t.Error(err)
		}
	})
	return db
}

// busy makes every kind of metric that a database without faults can have differ from zero.
func busy(t *testing.T, db *txn.DB) {
	t.Helper()
	ctx := t.Context()
	tab, err := txn.CreateTable(db, "accounts", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	errOwn := errors.New("no")
	for i, fn := range []func(tx *txn.Tx) error{
		func(tx *txn.Tx) error { return errors.Join(tab.Put(tx, 1, []byte("a")), tab.Put(tx, 2, []byte("b"))) },
		func(tx *txn.Tx) error { return tab.Put(tx, 1, []byte("c")) },
		func(tx *txn.Tx) error { return tab.Delete(tx, 2) },
		func(tx *txn.Tx) error { return errOwn },
	} {
		if err := db.Update(ctx, fn); err != nil && !errors.Is(err, errOwn) {
			t.Fatal(i, err)
		}
	}
	if err := db.View(ctx, func(tx *txn.Tx) error { _, err := tab.Get(tx, 1); return err }); err != nil {
		t.Fatal(err)
	}
	holder, err := db.Begin(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.GetForUpdate(holder, 1); err != nil {
		t.Fatal(err)
	}
	attempts := 0
	if err := db.Update(ctx, func(tx *txn.Tx) error {
		if attempts++; attempts == 2 {
			if err := holder.Rollback(); err != nil {
				t.Error(err)
			}
		}
		_, err := tab.GetForUpdate(tx, 1)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// scrape returns every sample by its name and labels, as name{label=value,...}; a histogram is its
// count, sum and buckets.
func scrape(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := func(suffix string, more ...string) string {
				return f.GetName() + suffix + "{" + strings.Join(append(slices.Clone(labels), more...), ",") + "}"
			}
			if h := m.GetHistogram(); h != nil {
				samples[name("_count")], samples[name("_sum")] = float64(h.GetSampleCount()), h.GetSampleSum()
				for _, b := range h.GetBucket() {
					samples[name("_bucket", fmt.Sprintf("le=%g", b.GetUpperBound()))] = float64(b.GetCumulativeCount())
				}
				continue
			}
			samples[name("")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return samples
}

// TestCollector: what is scraped is what db.Metrics and db.Redundancy tell, each figure
// under its own name.
func TestCollector(t *testing.T) {
	db := open(t, small())
	busy(t, db)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prom.NewCollector(db, prom.Options{}))
	got, m := scrape(t, registry), db.Metrics()

	want := map[string]float64{
		"txnode_transactions_total{outcome=committed}":          float64(m.Committed),
		"txnode_transactions_total{outcome=rolled_back}":        float64(m.RolledBack),
		"txnode_transactions_total{outcome=failed}":             float64(m.Failed),
		"txnode_retries_total{}":                                float64(m.Retries),
		"txnode_workers_limit{}":                                3,
		"txnode_workers{state=idle}":                            float64(m.Workers.Idle),
		"txnode_workers{state=busy}":                            0,
		"txnode_worker_waiters{}":                               0,
		"txnode_worker_waits_total{}":                           float64(m.Workers.Waits),
		"txnode_worker_wait_seconds_total{}":                    m.Workers.Waited.Seconds(),
		"txnode_rejoins_total{}":                                float64(m.Rejoins),
		"txnode_recovered_coordinators_total{}":                 float64(m.Recovery.Coordinators),
		"txnode_recovered_transactions_total{outcome=finished}": float64(m.Recovery.Finished),
		"txnode_recovered_transactions_total{outcome=undone}":   float64(m.Recovery.Undone),
		"txnode_blades_lost_total{}":                            float64(m.Recovery.Outages),
		"txnode_damage_total{met_by=transaction}":               float64(m.Damage),
		"txnode_damage_total{met_by=recovery}":                  float64(m.Recovery.Damage),
		"txnode_mended_records_total{}":                         float64(m.Mended),
		"txnode_segments{}":                                     float64(db.Redundancy().Segments),
		"txnode_segments_lost{}":                                0,
		"txnode_segments_unavailable{}":                         0,
		"txnode_segment_copies_missing{}":                       0,
		"txnode_segment_copies_building{}":                      0,
		"txnode_copied_bytes{}":                                 0,
		"txnode_copied_target_bytes{}":                          0,
		"txnode_copied_left_seconds{}":                          0,
	}
	for r, n := range m.Conflicts {
		want[fmt.Sprintf("txnode_conflicts_total{reason=%v}", txn.AbortReason(r))] = float64(n)
	}
	for p, x := range m.Phases {
		phase := txn.Phase(p)
		for v, n := range x.Verbs {
			want[fmt.Sprintf("txnode_verbs_total{phase=%v,verb=%v}", phase, txn.Verb(v))] = float64(n)
		}
		want[fmt.Sprintf("txnode_round_trips_total{phase=%v}", phase)] = float64(x.RoundTrips)
		want[fmt.Sprintf("txnode_read_bytes_total{phase=%v}", phase)] = float64(x.BytesRead)
		want[fmt.Sprintf("txnode_written_bytes_total{phase=%v}", phase)] = float64(x.BytesWrite)
	}
	for k, h := range m.Latency {
		n := uint64(0)
		for i := range len(h.Buckets) - 1 {
			n += h.Buckets[i]
			want[fmt.Sprintf("txnode_transaction_duration_seconds_bucket{kind=%v,le=%g}",
				txn.Kind(k), h.Bound(i).Seconds())] = float64(n)
		}
		want[fmt.Sprintf("txnode_transaction_duration_seconds_count{kind=%v}", txn.Kind(k))] = float64(h.Count())
		want[fmt.Sprintf("txnode_transaction_duration_seconds_sum{kind=%v}", txn.Kind(k))] = h.Sum.Seconds()
	}
	for _, b := range m.Blades {
		want[fmt.Sprintf("txnode_blade_up{blade=%d}", b.Blade)] = 1
		want[fmt.Sprintf("txnode_blade_size_bytes{blade=%d}", b.Blade)] = 16 << 20
		want[fmt.Sprintf("txnode_blade_used_bytes{blade=%d}", b.Blade)] = float64(b.Used)
		want[fmt.Sprintf("txnode_blade_free_bytes{blade=%d}", b.Blade)] = float64(b.Free)
	}
	for op, n := range map[string]float64{"read": 2, "update": 1, "insert": 2, "delete": 1} {
		want[fmt.Sprintf("txnode_table_operations_total{operation=%s,table=accounts}", op)] = n
	}
	want["txnode_table_conflicts_total{table=accounts}"] = 1
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[name]; !ok || v != want[name] {
			t.Errorf("%s is %v (there: %v) instead of %v", name, v, ok, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s was not expected", name)
		}
	}
	if m.Committed != 5 || m.RolledBack != 2 || m.Retries != 1 || m.Latency[txn.KindUpdate].Count() != 6 ||
		m.Verbs.Total() == 0 {
		t.Errorf("little has happened: %+v", m)
	}
}

// TestTableMadeAgain: a table that is dropped and made again under its name has one series of each
// kind, which goes on.
func TestTableMadeAgain(t *testing.T) {
	db := open(t, small())
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prom.NewCollector(db, prom.Options{}))
	for n := 1; n <= 2; n++ {
		tab, err := txn.CreateTable(db, "daily", txn.Uint64, txn.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Insert(tx, 1, nil) }); err != nil {
			t.Fatal(err)
		}
		if got := scrape(t,
			registry)["txnode_table_operations_total{operation=insert,table=daily}"]; got != float64(n) {
			t.Errorf("made %d times: %v inserts", n, got)
		}
		if err := db.DropTable(t.Context(), "daily"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNothingIsForgotten: a field of Metrics that is new in package txn fails here until it has a
// metric, which TestCollector then compares.
func TestNothingIsForgotten(t *testing.T) {
	shown := map[string]bool{
		"Committed": true, "RolledBack": true, "Failed": true, "Conflicts": true, "Retries": true, "Phases": true,
		"Latency": true, "Rejoins": true, "Damage": true, "Mended": true,
		"Workers": true, "Recovery": true, "Copies": true, "Blades": true, "Tables": true,
		"Verbs": false, // the sum of Phases
	}
	for f := range reflect.TypeFor[txn.Metrics]().Fields() {
		if _, known := shown[f.Name]; !known {
			t.Errorf("Metrics.%s has no metric", f.Name)
		}
		delete(shown, f.Name)
	}
	for name := range shown {
		t.Errorf("Metrics has no field %s any more", name)
	}
}

// TestNames: the linter of Prometheus finds nothing to say against names, units and help.
func TestNames(t *testing.T) {
	db := open(t, small())
	busy(t, db)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prom.NewCollector(db, prom.Options{}))
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestTwoDatabases: two databases of a process are told apart by a label; a name that is no UTF-8
// spoils no scrape, and tables can be left out. A database that is closed goes on being told of.
func TestTwoDatabases(t *testing.T) {
	one, two := open(t, small()), open(t, small())
	busy(t, one)
	busy(t, two)
	if _, err := txn.CreateRawTable(one, "caf\xe9"); err == nil { // if it is taken at all
		t.Log("a name that is not UTF-8 is taken")
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prom.NewCollector(one, prom.Options{Labels: prometheus.Labels{"database": "one"}}))
	registry.MustRegister(prom.NewCollector(two, prom.Options{
		Labels: prometheus.Labels{"database": "two"}, WithoutTables: true,
	}))
	if err := two.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	tables := map[string]int{}
	for name, v := range scrape(t, registry) {
		for _, db := range []string{"one", "two"} {
			if strings.HasPrefix(name, "txnode_table_") && strings.Contains(name, "database="+db) {
				tables[db]++
			}
			if name == "txnode_transactions_total{database="+db+",outcome=committed}" && v != 5 {
				t.Errorf("%s is %v", name, v)
			}
		}
	}
	if tables["one"] < 5 || tables["two"] != 0 {
		t.Errorf("series of tables: %v", tables)
	}
}
