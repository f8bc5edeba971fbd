package main

import (
	"time"

	"txnode/benchmarks/smallbank"
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

// shape is what the default policy posts for a type of transaction: its records, those
// that are written first.
type shape struct {
	uses    []smallbank.Use
	written int
}

func shapes() (s [smallbank.NumTypes]shape) {
	for typ := range s {
		for _, mode := range []workload.Mode{workload.Update, workload.Read} {
			for _, u := range smallbank.Uses(typ) {
				if u.Mode == mode {
					s[typ].uses = append(s[typ].uses, u)
				}
			}
			if mode == workload.Update {
				s[typ].written = len(s[typ].uses)
			}
		}
	}
	return s
}

// smallbank posts what the default policy posts for the transactions drawn, of which
// those rolled back release their locks and do no more. It returns nanoseconds and verbs
// of a transaction. Nothing is encoded, verified or looked up. The records lie as the
// engine lays them: those of a customer on neighbouring lines, 64 lines of one segment
// at a time.
func (v *verbs) smallbank(draws smallbank.Draws, rolledBack []bool) (ns, verbs float64) {
	const run, first = 64, 1 << 20 / 64
	c, b, bg := v.t.Plain(), &v.b, &v.bg
	shapes := shapes()
	var records [4]rdma.RemoteAddr // the primaries
	before := v.t.Counters()
	start := time.Now()
	for n, gone := range rolledBack {
		t := draws.Next()
		s := &shapes[t.Type]
		written, id := s.written, 1<<40|2*uint64(n)
		b.Reset()
		for i, u := range s.uses {
			line := 2*t.Customer(u) + uint64(u.Table) + first
			a := rdma.RemoteAddr{Blade: rdma.BladeID(line / run & 1), Off: 64 * line}
			records[i&3] = a
			if i < written {
				b.LockRead(a, record.GuardOff, 0, id|record.HeldBit, v.masks, v.local+uint32(64*i), 64)
			} else {
				b.Read(a, v.local+uint32(64*i), 64)
			}
		}
		v.must(c.Do(b))
		if n := len(s.uses); n > 1 && n > written {
			b.Reset()
			for i := written; i < n; i++ {
				a := records[i&3]
				a.Off += record.GuardOff
				b.Read(a, v.local+uint32(8*i), 8)
			}
			v.must(c.Do(b))
		}
		if written == 0 {
			continue
		}
		bg.Reset()
		if gone {
			for i := range written {
				at := v.local + uint32(64*i+record.GuardOff)
				v.t.PutWord(at, id)
				a := records[i&3]
				a.Off += record.GuardOff
				bg.Write(a, at, 8)
			}
			c.Post(bg)
			continue
		}
		size := uint32(log.HeaderSize + written*(log.EntryHeaderSize+64))
		b.Reset()
		for k := range 2 {
			b.Write(rdma.RemoteAddr{Blade: rdma.BladeID(k), Off: uint64(n&1) * 512}, v.local+4096, size)
		}
		for i := range written {
			image := v.local + 4096 + uint32(log.HeaderSize+i*(log.EntryHeaderSize+64)+log.EntryHeaderSize)
			v.t.PutWord(image+record.GuardOff, id)
			a := records[i&3]
			bg.Write(a, image, 64)
			a.Blade ^= 1
			b.Write(a, image, 64)
		}
		v.must(c.Do(b))
		c.Post(bg)
	}
	ns = float64(time.Since(start)) / float64(len(rolledBack))
	after := v.t.Counters()
	return ns, float64(after.Total()-before.Total()) / float64(len(rolledBack))
}

func (v *verbs) must(err error) {
	if err != nil {
		panic(err) // the blades are this process's own
	}
}
