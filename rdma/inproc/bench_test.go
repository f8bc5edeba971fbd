package inproc_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"txnode/rdma"
	"txnode/rdma/inproc"
)

// bench is a thread on one blade whose memory has been touched.
type bench struct {
	t    *rdma.Thread
	c    *rdma.Coro
	b    rdma.Batch
	key  rdma.Key
	offs []uint64 // random lines of the region
	mem  []byte   // the region, or another one of its size, for plain loops
}

func newBench(b *testing.B, size uint64, plain bool) *bench {
	f := open(b, inproc.Options{Blades: blades(1, size, ""), Seed: 1})
	t, err := rdma.NewThread(f, rdma.ThreadOptions{Techniques: rdma.AllTechniques})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { t.Close(); f.Close() })
	s := &bench{t: t, c: t.Plain(), key: f.Blades()[0].Key}
	for off := uint64(0); off < size; off += 1 << 20 {
		s.b.Reset()
		s.b.Write(rdma.RemoteAddr{Key: s.key, Off: off}, 0, uint32(min(1<<20, size-off)))
		if err := s.c.Do(&s.b); err != nil {
			b.Fatal(err)
		}
	}
	s.offs = make([]uint64, 1<<16)
	for i := range s.offs { // with room for a few lines
		s.offs[i] = t.Rand() % (size/64 - 4) * 64
	}
	if plain {
		// An arena is memory of the same kind, on huge pages like the region.
		p, err := f.NewPort(rdma.PortConfig{Arena: int(size)})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { p.Close() })
		s.mem = p.Arena()
		for i := 0; i < len(s.mem); i += 4096 {
			s.mem[i] = 1
		}
	}
	return s
}

// batch is the offsets of batch k of n requests.
func (s *bench) batch(k, n int) []uint64 {
	at := k * n & (len(s.offs) - 1)
	if at+n > len(s.offs) {
		at = 0
	}
	return s.offs[at : at+n]
}

// BenchmarkReadAgainstLoop compares batches of 16 random 64-byte READs with a
// loop that copies lines at the same addresses of other memory, in turns. It
// reports medians over the turns, and their ratio.
func BenchmarkReadAgainstLoop(b *testing.B) {
	for _, size := range []uint64{1 << 18, 1 << 24, 1 << 30} {
		b.Run(fmt.Sprintf("MiB=%g", float64(size)/(1<<20)), func(b *testing.B) {
			const n, turn = 16, 64
			s := newBench(b, size, true)
			dst := s.t.Bytes(1<<20, n*64)
			var verbs, loop []time.Duration
			b.ResetTimer()
			for k := 0; k < b.N; k += turn {
				t0 := time.Now()
				for i := k; i < k+turn; i++ {
					s.b.Reset()
					for j, off := range s.batch(i, n) {
						s.b.Read(rdma.RemoteAddr{Key: s.key, Off: off}, uint32(j)*64, 64)
					}
					if err := s.c.Do(&s.b); err != nil {
						b.Fatal(err)
					}
				}
				t1 := time.Now()
				for i := k; i < k+turn; i++ {
					for j, off := range s.batch(i, n) {
						copy(dst[j*64:j*64+64], s.mem[off:off+64])
					}
				}
				verbs = append(verbs, t1.Sub(t0))
				loop = append(loop, time.Since(t1))
			}
			slices.Sort(verbs)
			slices.Sort(loop)
			v, l := float64(verbs[len(verbs)/2])/turn/n, float64(loop[len(loop)/2])/turn/n
			b.ReportMetric(v, "ns/verb")
			b.ReportMetric(l, "ns/copy")
			b.ReportMetric(v/l, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkPost measures batches of one verb, per verb.
func BenchmarkPost(b *testing.B) {
	kinds := []struct {
		name string
		add  func(s *bench, off uint64, j int)
	}{
		{"READ0", func(s *bench, off uint64, j int) {
			s.b.Read(rdma.RemoteAddr{Key: s.key, Off: off}, uint32(j)*64, 0)
		}},
		{"READ8", func(s *bench, off uint64, j int) {
			s.b.Read(rdma.RemoteAddr{Key: s.key, Off: off}, uint32(j)*64, 8)
		}},
		{"READ64", func(s *bench, off uint64, j int) {
			s.b.Read(rdma.RemoteAddr{Key: s.key, Off: off}, uint32(j)*64, 64)
		}},
		{"READ128", func(s *bench, off uint64, j int) {
			s.b.Read(rdma.RemoteAddr{Key: s.key, Off: off &^ 127}, uint32(j)*128, 128)
		}},
		{"WRITE64", func(s *bench, off uint64, j int) {
			s.b.Write(rdma.RemoteAddr{Key: s.key, Off: off}, uint32(j)*64, 64)
		}},
		{"WRITE128", func(s *bench, off uint64, j int) {
			s.b.Write(rdma.RemoteAddr{Key: s.key, Off: off &^ 127}, uint32(j)*128, 128)
		}},
		{"CAS", func(s *bench, off uint64, j int) { s.b.CAS(rdma.RemoteAddr{Key: s.key, Off: off}, 0, 0) }},
		{"unaligned", func(s *bench, off uint64, j int) {
			s.b.Read(rdma.RemoteAddr{Key: s.key, Off: off}, uint32(j)*64+1, 63)
		}},
	}
	for _, size := range []uint64{1 << 18, 1 << 30} {
		s := newBench(b, size, false)
		for _, kind := range kinds {
			for _, n := range []int{1, 4, 16} {
				b.Run(fmt.Sprintf("MiB=%g/%s/batch=%d", float64(size)/(1<<20), kind.name, n), func(b *testing.B) {
					b.ReportAllocs()
					for i := 0; i < b.N; i += n {
						s.b.Reset()
						for j, off := range s.batch(i, n) {
							kind.add(s, off, j)
						}
						if err := s.c.Do(&s.b); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkTransaction runs the verbs of a transaction that writes two records of
// 64 bytes with one backup, in its three doorbells: lock and read, log and
// backups, release.
func BenchmarkTransaction(b *testing.B) {
	for _, size := range []uint64{1 << 18, 1 << 24, 1 << 30} {
		b.Run(fmt.Sprintf("MiB=%g", float64(size)/(1<<20)), func(b *testing.B) {
			s := newBench(b, size, false)
			at := func(off uint64) rdma.RemoteAddr { return rdma.RemoteAddr{Key: s.key, Off: off} }
			b.ReportAllocs()
			b.ResetTimer()
			for k := range b.N {
				o := s.batch(k, 8)
				s.b.Reset()
				for j := range 2 {
					s.b.CAS(at(o[j]+56), 0, 0)
					s.b.Read(at(o[j]), uint32(j)*64, 64)
				}
				if err := s.c.Do(&s.b); err != nil {
					b.Fatal(err)
				}
				line := (*[32]uint64)(unsafe.Pointer(&s.t.Bytes(256, 256)[0]))
				for i := range line {
					line[i] = uint64(k)
				}
				line[7], line[15] = 0, 0
				s.b.Reset()
				s.b.Write(at(o[2]), 256, 192)
				s.b.Write(at(o[3]), 256, 192)
				s.b.Write(at(o[4]), 256, 64)
				s.b.Write(at(o[5]), 320, 64)
				if err := s.c.Do(&s.b); err != nil {
					b.Fatal(err)
				}
				s.b.Reset()
				s.b.Write(at(o[0]), 256, 64)
				s.b.Write(at(o[1]), 320, 64)
				s.c.Post(&s.b)
				if err := s.c.Drain(&s.b); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/10, "ns/verb")
		})
	}
}

// BenchmarkFiles: what a batch costs on a fabric with files, where a fault is looked
// after, and in memory.
func BenchmarkFiles(b *testing.B) {
	for name, dir := range map[string]string{"memory": "", "file": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			c := connect(b, open(b, inproc.Options{Blades: blades(1, 1<<20, dir), Seed: 1}))
			defer c.close()
			at := c.at(0, 0)
			for b.Loop() {
				c.b.Reset()
				for i := range uint64(3) {
					at.Off = i * 64
					c.b.Read(at, 0, 64)
				}
				if err := c.Plain().Do(&c.b); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
