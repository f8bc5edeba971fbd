package rdmatest

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"txnode/rdma"
)

// power is what a fabric with Options.Volatile knows about the loss of power.
type power struct {
	disk []([]byte)            // what is durable, by blade
	past []map[uint64][][]byte // by blade and line: contents since it was last flushed, oldest first
}

// maxPast bounds the contents of one line that are remembered.
const maxPast = 8

func (f *Fabric) initPower() {
	if !f.o.Volatile {
		return
	}
	f.power = &power{}
	for _, m := range f.mem {
		f.power.disk = append(f.power.disk, slices.Clone(m))
		f.power.past = append(f.power.past, map[uint64][][]byte{})
	}
}

// changed notes that a range of memory has been changed.
func (f *Fabric) changed(b rdma.BladeID, off, n uint64) {
	if f.power == nil {
		return
	}
	past := f.power.past[b]
	for l := off / rdma.LineSize; l*rdma.LineSize < off+n; l++ {
		p := past[l]
		if len(p) == maxPast {
			p = slices.Delete(p, 0, 1)
		}
		past[l] = append(p, slices.Clone(f.bytes(b, l*rdma.LineSize, rdma.LineSize)))
	}
}

// persist makes the lines of a range durable.
func (f *Fabric) persist(b rdma.BladeID, off, n uint64) {
	if f.power == nil {
		return
	}
	past := f.power.past[b]
	if uint64(len(past)) < n/rdma.LineSize {
		for l := range past {
			if at := l * rdma.LineSize; at < off+n && at+rdma.LineSize > off {
				f.persistLine(b, l)
			}
		}
		return
	}
	for l := off / rdma.LineSize; l*rdma.LineSize < off+n; l++ {
		if past[l] != nil {
			f.persistLine(b, l)
		}
	}
}

func (f *Fabric) persistLine(b rdma.BladeID, l uint64) {
	copy(f.power.disk[b][l*rdma.LineSize:], f.bytes(b, l*rdma.LineSize, rdma.LineSize))
	delete(f.power.past[b], l)
}

// LosePower ends the fabric, which had Options.Volatile, and returns the one that
// is there when the power is back, with the same options but for Fail and Arrive, and the
// clock going on: every line of memory that was changed since it was last flushed
// holds what it held then, or any of the last contents that it had since (that of
// a WRITE which had come half-way included), independently of all others, drawn from
// seed. Nothing that ran on the old fabric
// may use it any more.
func (f *Fabric) LosePower(seed uint64) *Fabric {
	if f.power == nil {
		panic("rdmatest: LosePower of a fabric without Options.Volatile")
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	o := f.o
	o.Fail, o.Arrive, o.Seed = nil, nil, seed
	mem := f.power.disk
	for b, past := range f.power.past {
		lines := make([]uint64, 0, len(past))
		for l := range past {
			lines = append(lines, l)
		}
		slices.Sort(lines)
		// Sometimes nearly everything is lost, sometimes nearly nothing.
		keep := rng.IntN(5)
		for _, l := range lines {
			if p := past[l]; rng.IntN(4) < keep {
				pick := len(p) - 1
				if rng.IntN(2) == 0 {
					pick = rng.IntN(len(p))
				}
				copy(mem[b][l*rdma.LineSize:], p[pick])
			}
		}
	}
	o.Volatile = false
	n := New(o)
	n.mem, n.o.Volatile = mem, true
	for b, life := range f.lives {
		n.lives[b], n.keys[b] = life+1, f.keys[b]
		n.keys[b].Renew()
	}
	n.now = f.now + 1
	n.initPower()
	return n
}

// Fail sets Options.Fail.
func (f *Fabric) Fail(fn func(w *rdma.WR) rdma.Status) { f.o.Fail = fn }

// Unflushed is how many lines of a blade would be lost, or not, with the power.
func (f *Fabric) Unflushed(b rdma.BladeID) int {
	if f.power == nil {
		return 0
	}
	n := 0
	for l := range f.power.past[b] {
		if !bytes.Equal(f.power.disk[b][l*rdma.LineSize:][:rdma.LineSize], f.bytes(b, l*rdma.LineSize, rdma.LineSize)) {
			n++
		}
	}
	return n
}
