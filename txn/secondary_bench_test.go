package txn_test

import (
	"context"
	"fmt"
	"testing"

	"txnode/txn"
)

// BenchmarkIndexed is what an index costs: a record is read, its value is changed, and its key in
// the index stays; or both change. One backup, two blades, one worker.
func BenchmarkIndexed(b *testing.B) {
	ctx := context.Background()
	const n = 3000
	for _, indexed := range []bool{false, true} {
		for _, renamed := range []bool{false, true} {
			b.Run(fmt.Sprintf("indexed=%v/renamed=%v", indexed, renamed), func(b *testing.B) {
				db, err := txn.Open(ctx, txn.Options{Blades: 2, BladeSize: 256 << 20, Backups: txn.F(1)})
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					if err := db.Close(ctx); err != nil {
						b.Error(err)
					}
				}()
				var indexes []txn.TableIndex[uint64, uint64]
				if indexed {
					indexes = append(indexes, txn.NewIndex("by_name", txn.Uint64, func(_, v uint64) []uint64 {
						return []uint64{v % 1000}
					}))
				}
				tab, err := txn.CreateTable(db, "customer", txn.Uint64, txn.Plain[uint64](), indexes...)
				if err != nil {
					b.Fatal(err)
				}
				add := uint64(1000)
				if renamed {
					add = 1001
				}
				pay := func(k uint64) {
					if err := db.Update(ctx, func(tx *txn.Tx) error {
						v, _, err := tab.Lookup(tx, k)
						if err != nil {
							return err
						}
						return tab.Put(tx, k, v+add)
					}); err != nil {
						b.Fatal(err)
					}
				}
				for k := range uint64(n) {
					pay(k)
				}
				before := db.Metrics()
				b.ResetTimer()
				for i := range b.N {
					pay(uint64(i) % n)
				}
				b.StopTimer()
				after := db.Metrics()
				verbs := uint64(0)
				for k := range after.Verbs.Verbs {
					verbs += after.Verbs.Verbs[k] - before.Verbs.Verbs[k]
				}
				b.ReportMetric(float64(verbs)/float64(b.N), "verbs/op")
				b.ReportMetric(float64(after.Verbs.RoundTrips-before.Verbs.RoundTrips)/float64(b.N), "trips/op")
			})
		}
	}
}
