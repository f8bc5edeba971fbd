package tcp_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// matrix runs a benchmark on networks and depths. The blade, or the echo, is in a process of its own. One
// operation is one READ of 64 bytes, in batches of so many, each of which is waited for.
func matrix(b *testing.B, run func(b *testing.B, network string, depth int)) {
	for _, network := range []string{"unix", "tcp"} {
		for _, depth := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", network, depth), func(b *testing.B) { run(b, network, depth) })
		}
	}
}

func BenchmarkReads(b *testing.B) { matrix(b, reads) }

// BenchmarkReadsPoll waits as systems do that are not Linux.
func BenchmarkReadsPoll(b *testing.B) {
	tcp.UsePoll(b)
	matrix(b, reads)
}

func reads(b *testing.B, network string, depth int) {
	const size = 16 << 20
	f := dial(b, tcp.Options{}, spawn(b, "serve", network, 1, size).addr)
	defer f.Close()
	t, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer t.Close()
	key := f.Blades()[0].Key
	var batch rdma.Batch
	rng := uint64(1)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += depth {
		batch.Reset()
		for i := range depth {
			rng = rng*6364136223846793005 + 1442695040888963407
			batch.Read(rdma.RemoteAddr{Key: key, Off: rng >> 33 % (size / 64) * 64}, uint32(i)*64, 64)
		}
		if err := t.Plain().Do(&batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEcho exchanges as many bytes as BenchmarkReads with a process that does nothing else.
func BenchmarkEcho(b *testing.B) {
	matrix(b, func(b *testing.B, network string, depth int) {
		out, in := tcp.RequestSize*depth, (tcp.ReplySize+64)*depth
		_, address, _ := strings.Cut(spawn(b, "echo", network, out, in).addr, ":")
		c, err := net.Dial(network, address)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		to, from := make([]byte, out), make([]byte, in)
		b.ResetTimer()
		for n := 0; n < b.N; n += depth {
			if _, err := c.Write(to); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, from); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkTransfers moves so many bytes by one request.
func BenchmarkTransfers(b *testing.B) {
	for _, size := range []uint32{1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		for _, op := range []rdma.Op{rdma.OpRead, rdma.OpWrite} {
			b.Run(fmt.Sprintf("%v/%d", op, size), func(b *testing.B) {
				f := dial(b, tcp.Options{}, spawn(b, "serve", "unix", 1, 16<<20).addr)
				defer f.Close()
				t, err := rdma.NewThread(f, rdma.ThreadOptions{})
				if err != nil {
					b.Fatal(err)
				}
				defer t.Close()
				at := rdma.RemoteAddr{Key: f.Blades()[0].Key}
				var batch rdma.Batch
				b.SetBytes(int64(size))
				b.ResetTimer()
				for range b.N {
					batch.Reset()
					if op == rdma.OpRead {
						batch.Read(at, 0, size)
					} else {
						batch.Write(at, 0, size)
					}
					if err := t.Plain().Do(&batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
