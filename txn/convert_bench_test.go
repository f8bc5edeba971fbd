package txn_test

import (
	"bytes"
	"testing"

	"txnode/txn"
)

const benchRecords = 1_000_000

// benchOptions are those of a database in memory with a backup of each record, and room for
// benchRecords.
func benchOptions(leaves bool) txn.Options {
	return txn.Options{Blades: 2, Backups: txn.F(1), BladeSize: 2 << 30, LeafIndex: leaves}
}

// loaded1M is such a database, whose records have 100 bytes.
func loaded1M(b *testing.B, o txn.Options) *txn.DB {
	b.Helper()
	db := mustOpen(b, o)
	value := bytes.Repeat([]byte{7}, 100)
	if _, err := table(b, db, "t").Load(b.Context(), func(yield func(uint64, []byte) bool) {
		for k := range uint64(benchRecords) {
			if !yield(k, value) {
				return
			}
		}
	}, txn.LoadOptions{}); err != nil {
		b.Fatal(err)
	}
	return db
}

// BenchmarkConvert is what the conversion of a million records takes.
func BenchmarkConvert(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		db := loaded1M(b, benchOptions(false))
		b.StartTimer()
		db.Convert(b.Context())
		b.StopTimer()
		if indexed(b, "converted", db, true) != 1 {
			b.Fatal("it was not converted")
		}
		closed(b, db)
		b.StartTimer()
	}
}

// BenchmarkRestore is what a restore of a million records takes to either kind of index.
func BenchmarkRestore(b *testing.B) {
	var file bytes.Buffer
	db := loaded1M(b, benchOptions(true))
	if _, err := db.Backup(b.Context(), &file, txn.BackupOptions{}); err != nil {
		b.Fatal(err)
	}
	closed(b, db)
	for _, x := range []struct {
		name   string
		leaves bool
	}{{"slots", false}, {"leaves", true}} {
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db := mustOpen(b, benchOptions(x.leaves))
				b.StartTimer()
				if _, err := db.Restore(b.Context(), bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				closed(b, db)
				b.StartTimer()
			}
		})
	}
}
