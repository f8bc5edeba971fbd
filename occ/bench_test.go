package occ_test

import (
	"encoding/binary"
	"testing"

	"txnode/memory"
	"txnode/occ"
)

// BenchmarkTransactions runs warm single-thread transactions on 100,000 records,
// below the public API: what the protocol costs.
func BenchmarkTransactions(b *testing.B) {
	for _, p := range policies {
		for _, n := range []struct {
			name          string
			reads, writes int
		}{{"read1", 1, 0}, {"read2", 2, 0}, {"write1", 0, 1}, {"read1-write1", 1, 1}, {"write3", 0, 3}} {
			b.Run(p.String()+"/"+n.name, func(b *testing.B) {
				const keys = 100_000
				bd := newBedSized(b, 2, memory.Options{Backups: 1, SegmentSize: 16 << 20, LogArea: 64 << 10},
					occ.Options{Policy: p})
				_, tx := bd.session()
				var key, value [8]byte
				for k := range uint64(keys) {
					binary.LittleEndian.PutUint64(key[:], k)
					must(b, tx.Begin())
					i, err := tx.Stage(bd.table, key[:], true)
					must(b, err)
					must(b, tx.Put(i, value[:]))
					must(b, tx.Commit())
				}
				r := uint64(1)
				b.ReportAllocs()
				for b.Loop() {
					if err := tx.Begin(); err != nil {
						b.Fatal(err)
					}
					var it [4]int
					for j := range n.reads + n.writes {
						r = r*6364136223846793005 + 1442695040888963407
						binary.LittleEndian.PutUint64(key[:], (r>>33)%keys)
						it[j], _ = tx.Stage(bd.table, key[:], j >= n.reads)
					}
					if err := tx.Execute(); err != nil {
						b.Fatal(err)
					}
					for j := n.reads; j < n.reads+n.writes; j++ {
						v, _ := tx.Read(it[j])
						binary.LittleEndian.PutUint64(value[:], binary.LittleEndian.Uint64(v)+1)
						if err := tx.Put(it[j], value[:]); err != nil {
							b.Fatal(err)
						}
					}
					if err := tx.Commit(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
