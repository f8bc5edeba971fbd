package race

import (
	"fmt"
	"testing"

	"txnode/index"
	"txnode/index/indextest"
	"txnode/memory/record"
	"txnode/rdma"
)

func benchFixture(b *testing.B, keys int, copies int) (*Index, *indextest.Client) {
	b.Helper()
	_, ix, k := fixture(b, indextest.MemoryOptions{Copies: copies, SegmentSize: 16 << 20, Segments: 64}, Options{})
	for i := range keys {
		if _, err := k.Insert(key(i), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return ix, k
}

// BenchmarkLookup is Search, Post and Resolve, of so many keys per round trip.
func BenchmarkLookup(b *testing.B) {
	for _, keys := range []int{1000, 1_000_000} {
		for _, batch := range []int{1, 8} {
			b.Run(fmt.Sprintf("keys=%d/batch=%d", keys, batch), func(b *testing.B) {
				ix, k := benchFixture(b, keys, 1)
				t := k.C.Thread()
				size := ix.BufferSize()
				buf, err := t.Alloc(batch * size)
				if err != nil {
					b.Fatal(err)
				}
				defer t.Free(buf, batch*size)
				q := make([]index.Query, batch)
				names := make([][]byte, 4096)
				for i := range names {
					names[i] = key(i * 7919 % keys)
				}
				for i := range q {
					q[i].Local, q[i].View = buf+uint32(i*size), ix.space.View()
				}
				var wr rdma.Batch
				n := 0
				for b.Loop() {
					wr.Reset()
					for i := range q {
						n++
						q[i].Key = names[n&4095]
						q[i].Hash = record.Hash(7, q[i].Key)
						ix.Search(&wr, &q[i])
					}
					if err := k.C.Do(&wr); err != nil {
						b.Fatal(err)
					}
					for i := range q {
						if _, err := ix.Resolve(k.C, &q[i]); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/lookup")
			})
		}
	}
}

// BenchmarkInsertRemove links and unlinks a block that is there, splits apart.
func BenchmarkInsertRemove(b *testing.B) {
	for _, copies := range []int{1, 2} {
		b.Run(fmt.Sprintf("copies=%d", copies), func(b *testing.B) {
			ix, k := benchFixture(b, 50_000, copies)
			name := []byte("one more")
			a, class, err := k.NewBlock(1, name, nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := k.Resolve(name); err != nil {
					b.Fatal(err)
				}
				if err := ix.Insert(k.C, &k.Query, a, class); err != nil {
					b.Fatal(err)
				}
				if err := ix.Remove(k.C, &k.Query, a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoad inserts keys one by one into an index that starts with one
// sub-table, writing of the blocks included.
func BenchmarkLoad(b *testing.B) {
	const keys = 200_000
	names := make([][]byte, keys)
	for i := range names {
		names[i] = key(i)
	}
	var moved uint64
	for b.Loop() {
		b.StopTimer()
		_, ix, k := fixture(b, indextest.MemoryOptions{Copies: 2, SegmentSize: 16 << 20, Segments: 16}, Options{})
		b.StartTimer()
		for i := range keys {
			if _, err := k.Insert(names[i], nil); err != nil {
				b.Fatal(err)
			}
		}
		moved = ix.Events().Moved
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/insert")
	b.ReportMetric(float64(moved)/keys, "moved/insert")
}
