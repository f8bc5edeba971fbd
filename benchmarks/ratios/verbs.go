package main

import (
	"time"

	"txnode/benchmarks/workload"
	"txnode/log"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// verbs is a thread on bare blades.
type verbs struct {
	f     *inproc.Fabric
	t     *rdma.Thread
	b     rdma.Batch
	bg    rdma.Batch
	local uint32
	masks uint32
	lines uint64
	port  rdma.Port
	plain []byte // its arena
	r     workload.Rand
	sum   byte
}

func newVerbs(size uint64, blades int) (*verbs, error) {
	o := inproc.Options{Seed: 1}
	for range blades {
		o.Blades = append(o.Blades, inproc.BladeOptions{Size: size})
	}
	f, err := inproc.New(o)
	if err != nil {
		return nil, err
	}
	t, err := rdma.NewThread(f, rdma.ThreadOptions{Techniques: rdma.AllTechniques})
	if err != nil {
		return nil, err
	}
	v := &verbs{f: f, t: t, lines: size / 64, r: workload.NewRand(1, 1)}
	if v.local, err = t.Alloc(1 << 20); err != nil {
		return nil, err
	}
	if v.masks, err = t.Alloc(64); err != nil {
		return nil, err
	}
	t.PutWord(v.masks, record.HeldBit)
	t.PutWord(v.masks+8, ^uint64(0))
	// Touch every page, so that none is found missing while the clock runs.
	c := t.Plain()
	for k := range blades {
		for off := uint64(0); off < size; off += 1 << 12 {
			v.b.Reset()
			v.b.Write(rdma.RemoteAddr{Blade: rdma.BladeID(k), Off: off}, v.local, 8)
			if err := c.Do(&v.b); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func (v *verbs) close() error {
	if v.port != nil {
		if err := v.port.Close(); err != nil {
			return err
		}
	}
	if err := v.t.Close(); err != nil {
		return err
	}
	return v.f.Close()
}

const perBatch = 16

// reads returns nanoseconds of a batch.
func (v *verbs) reads(n int) float64 {
	c := v.t.Plain()
	start := time.Now()
	for range n {
		v.b.Reset()
		for k := range uint32(perBatch) {
			v.b.Read(rdma.RemoteAddr{Off: v.r.Uint64() % v.lines * 64}, v.local+64*k, 64)
		}
		if err := c.Do(&v.b); err != nil {
			panic(err)
		}
	}
	return float64(time.Since(start)) / float64(n)
}

// loop returns nanoseconds of copying as many lines by a plain loop. The memory is
// the fabric's own kind: anonymous, on huge pages where there are some.
func (v *verbs) loop(n int) float64 {
	if v.plain == nil {
		// A second fabric's region would not be reachable as bytes: the arena of a
		// port is the same kind of memory.
		p, err := v.f.NewPort(rdma.PortConfig{Index: 1, Arena: 1 << 30})
		if err != nil {
			panic(err)
		}
		v.port, v.plain = p, p.Arena()
		for off := 0; off < len(v.plain); off += 1 << 12 {
			v.plain[off] = 1
		}
	}
	dst := v.t.Bytes(v.local, perBatch*64)
	lines := uint64(len(v.plain)) / 64
	start := time.Now()
	for range n {
		for k := range perBatch {
			off := v.r.Uint64() % lines * 64
			copy(dst[64*k:64*k+64], v.plain[off:off+64])
		}
		v.sum |= dst[0]
	}
	return float64(time.Since(start)) / float64(n)
}

// shapes are the written and only read records of SmallBank's transactions, and
// their share in percent: FORD's mix.
var shapes = [...]struct{ n, r, mix int }{
	{3, 0, 15}, {0, 2, 15}, {1, 0, 15}, {2, 0, 25}, {1, 0, 15}, {1, 1, 15},
}

// smallbank posts what the default policy posts for SmallBank: nanoseconds of a
// transaction. Nothing is encoded, verified or looked up.
func (v *verbs) smallbank(n int, seed uint64) float64 {
	const accounts, hot = 100_000, 4_000
	c, b, bg := v.t.Plain(), &v.b, &v.bg
	r := workload.NewRand(seed, 7)
	var where [4]uint64
	start := time.Now()
	for range n {
		x, s := r.Intn(100), 0
		for x >= shapes[s].mix {
			x -= shapes[s].mix
			s++
		}
		written, read := shapes[s].n, shapes[s].r
		limit := accounts
		if r.Intn(10) < 9 {
			limit = hot
		}
		for i := range written + read {
			where[i] = uint64(r.Intn(2)*accounts+r.Intn(limit))*64 + 1<<20
		}
		id := uint64(1)<<40 | seed<<20
		at := func(i, copyNo int) rdma.RemoteAddr {
			return rdma.RemoteAddr{Blade: rdma.BladeID((int(where[i]>>6) + copyNo) & 1), Off: where[i]}
		}
		b.Reset()
		for i := range written + read {
			if i < written {
				g := at(i, 0)
				g.Off += record.GuardOff
				b.MaskedCAS(g, 0, id|1, v.masks)
			}
			b.Read(at(i, 0), v.local+uint32(64*i), 64)
		}
		v.must(c.Do(b))
		if written+read > 1 && read > 0 {
			b.Reset()
			for i := written; i < written+read; i++ {
				g := at(i, 0)
				g.Off += record.GuardOff
				b.Read(g, v.local+uint32(8*i), 8)
			}
			v.must(c.Do(b))
		}
		if written == 0 {
			continue
		}
		size := uint32(log.HeaderSize + written*(log.EntryHeaderSize+64))
		b.Reset()
		for k := range 2 {
			b.Write(rdma.RemoteAddr{Blade: rdma.BladeID(k)}, v.local+4096, size)
		}
		bg.Reset()
		for i := range written {
			image := v.local + 4096 + uint32(log.HeaderSize+i*(log.EntryHeaderSize+64)+log.EntryHeaderSize)
			v.t.PutWord(image+record.GuardOff, id)
			b.Write(at(i, 1), image, 64)
			bg.Write(at(i, 0), image, 64)
		}
		v.must(c.Do(b))
		c.Post(bg)
	}
	return float64(time.Since(start)) / float64(n)
}

func (v *verbs) must(err error) {
	if err != nil {
		panic(err) // the blades are this process's own
	}
}
