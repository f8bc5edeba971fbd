package sim

import (
	"encoding/binary"
	"slices"

	"txnode/rdma"
)

// effect lets a request take effect on the blade's memory, or its first part
// when it is divided.
func (f *Fabric) effect(g *group, i int) {
	v, q := &g.verbs[i], g.q
	if v.state == verbPending {
		f.perform(g, v, q)
		if v.state == verbLate {
			q.late = append(q.late, lateWrite{g, i})
			if len(q.late) == 1 {
				q.blade.latePut = append(q.blade.latePut, q)
			}
		}
	}
	f.drop(g, 1)
}

func (f *Fabric) perform(g *group, v *verb, q *queuePair) {
	w, bl := &v.wr, q.blade
	switch {
	case v.seq >= q.failAt && v.conn == q.inc:
		w.Status, v.state = rdma.StatusFlushed, verbDone
	case v.conn != q.inc || q.conn != bl.epoch || f.now < bl.down:
		// Its connection is gone; what had to be said of it is said already.
		if w.Status == rdma.StatusOK {
			w.Status = rdma.StatusNoBlade
			f.fail(q, v)
		}
		v.state = verbDone
	case !bl.keys.Opens(w.Key):
		if w.Status == rdma.StatusOK {
			w.Status = rdma.StatusKey
			f.fail(q, v)
		}
		v.state = verbDone
	default:
		if len(q.late) > 0 {
			f.placeAll(q)
		}
		switch {
		case v.place > 0:
			v.state = verbLate
		case v.eff2 > 0:
			v.state = verbHalf
			f.part(g.p, v, bl, 0)
		default:
			v.state = verbDone
			f.execute(g.p, v, bl)
		}
	}
	f.trace.verb(f, traceEffect, g, v)
}

// fail puts the queue pair into the error state behind v.
func (f *Fabric) fail(q *queuePair, v *verb) {
	if v.conn == q.inc {
		q.failAt = min(q.failAt, v.seq+1)
	}
}

// effect2 is the second part of a divided request.
func (f *Fabric) effect2(g *group, i int) {
	f.finish(g, &g.verbs[i])
	f.drop(g, 1)
}

func (f *Fabric) finish(g *group, v *verb) {
	if v.state != verbHalf {
		return
	}
	v.state = verbDone
	f.part(g.p, v, g.q.blade, 1)
	f.trace.verb(f, traceEffect, g, v)
}

// place is the time at which a late WRITE is placed unless it was before.
func (f *Fabric) place(g *group, i int) {
	if g.verbs[i].state == verbLate {
		f.placeAll(g.q)
	}
	f.drop(g, 1)
}

// placeAll places the late WRITEs of a queue pair, in order.
func (f *Fabric) placeAll(q *queuePair) {
	if len(q.late) == 0 {
		return
	}
	for _, l := range q.late {
		v := &l.g.verbs[l.i]
		v.state = verbDone
		f.execute(l.g.p, v, q.blade)
		f.trace.verb(f, tracePlace, l.g, v)
	}
	q.forget()
}

// forget drops the late WRITEs.
func (q *queuePair) forget() {
	q.late = q.late[:0]
	b := q.blade
	if i := slices.Index(b.latePut, q); i >= 0 {
		b.latePut = slices.Delete(b.latePut, i, i+1)
	}
}

// force lets everything that has arrived at the blade take effect now.
func (f *Fabric) force(bl *blade) {
	var due []event
	for _, e := range f.queue.all() {
		if k := e.kind(); k != evEffect && k != evEffect2 {
			continue
		}
		g := f.groups.all[e.a()]
		if g.q.blade == bl && g.verbs[e.b()].arrive <= f.now {
			due = append(due, e)
		}
	}
	for _, e := range due {
		g := f.groups.all[e.a()]
		if e.kind() == evEffect {
			g.refs++
			f.effect(g, int(e.b()))
		} else {
			f.finish(g, &g.verbs[e.b()])
		}
	}
	for len(bl.latePut) > 0 {
		f.placeAll(bl.latePut[0])
	}
}

// execute carries out a request in one piece.
func (f *Fabric) execute(p *port, v *verb, bl *blade) {
	w, m := &v.wr, &bl.mem
	switch w.Op {
	case rdma.OpRead:
		if w.Len > 0 && w.Status == rdma.StatusOK {
			m.read(p.arena[w.Local:w.Local+w.Len], w.Off)
		}
	case rdma.OpWrite:
		if v.kept {
			m.write(w.Off, v.data)
		} else {
			m.write(w.Off, p.arena[w.Local:w.Local+w.Len])
		}
	case rdma.OpCAS:
		if w.Result = m.word(w.Off); w.Result == w.Cmp {
			m.setWord(w.Off, w.Swap)
		}
	case rdma.OpFAA:
		w.Result = m.word(w.Off)
		m.setWord(w.Off, w.Result+w.Swap)
	case rdma.OpMaskedCAS:
		masks := v.data
		if !v.kept {
			masks = p.arena[w.Local : w.Local+16]
		}
		cmpMask, swapMask := binary.LittleEndian.Uint64(masks), binary.LittleEndian.Uint64(masks[8:])
		if w.Result = m.word(w.Off); w.Result&cmpMask == w.Cmp&cmpMask {
			m.setWord(w.Off, w.Result&^swapMask|w.Swap&swapMask)
		}
	}
}

// part copies one of the two parts of a divided READ or WRITE. A line belongs to
// one part, except one line, which is divided between two words: the lower ones
// come first, so that words of a line are copied in increasing address order.
func (f *Fabric) part(p *port, v *verb, bl *blade, which uint64) {
	w := &v.wr
	if w.Op == rdma.OpRead && w.Status != rdma.StatusOK {
		return
	}
	local := p.arena
	base := uint64(w.Local)
	if v.kept {
		local, base = v.data, 0
	}
	first, last := w.Off/rdma.LineSize, (w.Off+uint64(w.Len)-1)/rdma.LineSize
	divided := first + v.split>>32%(last-first+1)
	at := v.split >> 8 & 7 * 8 // words of that line before this offset are first
	for line := first; line <= last; line++ {
		lo, hi := max(line*rdma.LineSize, w.Off), min((line+1)*rdma.LineSize, w.Off+uint64(w.Len))
		switch {
		case f.opt.UnorderedLines && w.Op == rdma.OpWrite:
			for a := lo; a < hi; {
				b := min(a&^7+8, hi)
				if v.split>>(a/8%56)&1 == which {
					bl.mem.write(a, local[base+a-w.Off:base+b-w.Off])
				}
				a = b
			}
			continue
		case line == divided && which == 0:
			hi = min(hi, line*rdma.LineSize+at)
		case line == divided:
			lo = max(lo, line*rdma.LineSize+at)
		case v.split>>(line%56)&1 != which:
			continue
		}
		if lo >= hi {
			continue
		}
		b := local[base+lo-w.Off : base+hi-w.Off]
		if w.Op == rdma.OpRead {
			bl.mem.read(b, lo)
		} else {
			bl.mem.write(lo, b)
		}
	}
}
