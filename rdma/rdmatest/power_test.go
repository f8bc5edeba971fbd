package rdmatest_test

import (
	"bytes"
	"testing"

	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// What was flushed survives; what was not is, line by line, what it was when it was
// flushed, or anything that it was since.
func TestLosePower(t *testing.T) {
	const line = rdma.LineSize
	outcomes := map[[2]byte]int{}
	for seed := range uint64(300) {
		f := rdmatest.New(rdmatest.Options{
			Blades: 1, Size: 1 << 16, Volatile: true, Caps: rdma.Caps{OrderedLine: true}, Seed: seed,
		})
		th, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		key := f.Blades()[0].Key
		var b rdma.Batch
		write := func(l uint64, v byte) {
			buf, err := th.Alloc(line)
			if err != nil {
				t.Fatal(err)
			}
			for i := range th.Bytes(buf, line) {
				th.Bytes(buf, line)[i] = v
			}
			b.Reset()
			b.Write(rdma.RemoteAddr{Key: key, Off: l * line}, buf, line)
			if err := th.Plain().Do(&b); err != nil {
				t.Fatal(err)
			}
			b.Reset()
			b.Read(rdma.RemoteAddr{Key: key, Off: l * line}, buf, 8) // now it is placed
			if err := th.Plain().Do(&b); err != nil {
				t.Fatal(err)
			}
		}
		for l := range uint64(3) {
			write(l, 1)
		}
		b.Reset()
		b.Flush(rdma.RemoteAddr{Key: key, Off: 0}, 3*line)
		if err := th.Plain().Do(&b); err != nil {
			t.Fatal(err)
		}
		write(0, 2)
		write(0, 3)
		write(1, 2)
		if n := f.Unflushed(0); n != 2 {
			t.Fatalf("%d lines are not flushed, 2 are", n)
		}
		m := f.LosePower(seed).Memory(0)
		for l, allowed := range [][]byte{{1, 2, 3}, {1, 2}, {1}, {0}} {
			// A WRITE that is cut within a line has been there in part.
			if !bytes.Contains(allowed, m[l*line:][:1]) || !bytes.Contains(allowed, m[l*line+line-1:][:1]) {
				t.Fatalf("seed %d: line %d holds %d ... %d, allowed are %v",
					seed, l, m[l*line], m[l*line+line-1], allowed)
			}
		}
		outcomes[[2]byte{m[0], m[line]}]++
	}
	if len(outcomes) < 6 {
		t.Errorf("the lines are not independent: %v", outcomes)
	}
}
