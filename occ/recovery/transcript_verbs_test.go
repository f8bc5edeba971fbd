package recovery_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"txnode/index"
	"txnode/index/tree"
	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// tapped is a fabric whose ports note in a story what an actor posts.
type tapped struct {
	*rdmatest.Fabric
	s    *story
	next *actor // whose ports are made; nil: those of no actor
}

// NewPort makes a port that notes what is posted.
func (f *tapped) NewPort(cfg rdma.PortConfig) (rdma.Port, error) {
	p, err := f.Fabric.NewPort(cfg)
	if err != nil || f.next == nil {
		return p, err
	}
	return &tap{Port: p, s: f.s, a: f.next, waited: true}, nil
}

// tap is a port that notes what is posted.
type tap struct {
	rdma.Port
	s      *story
	a      *actor
	open   []*doorbell
	waited bool // since the last post: the next one begins a round trip
}

// doorbell is what was posted together, or a remark.
type doorbell struct {
	actor  string
	trip   int // round trip of the step; 0: the doorbell goes with the one before
	verbs  []*verb
	remark string
	batch  *rdma.Batch
	first  int
	done   bool
}

// verb is a work request, where it goes, and its data.
type verb struct {
	wr    rdma.WR
	place place
	data  []byte // what a WRITE places, or a READ has got
	old   []byte // what was there before a WRITE
}

// Post notes the requests; a pause may come first.
func (p *tap) Post(b *rdma.Batch, first int) {
	if p.s.quiet {
		p.Port.Post(b, first)
		return
	}
	d := &doorbell{actor: p.a.name, batch: b, first: first}
	if p.waited {
		p.a.trips++
		d.trip = p.a.trips
		if d.trip == p.a.pauseAt {
			p.a.pause()
			d.actor = p.a.name
		}
	}
	p.waited = false
	for _, wr := range b.WRs()[first:] {
		v := &verb{wr: wr, place: p.s.locate(wr.Blade, wr.Off)}
		if wr.Op == rdma.OpWrite {
			v.data = slices.Clone(p.Arena()[wr.Local:][:wr.Len])
			if v.place.block != 0 && v.place.within == 0 {
				p.s.learn(v.place.block, v.data)
			}
		}
		d.verbs = append(d.verbs, v)
	}
	p.s.told = append(p.s.told, d)
	p.open = append(p.open, d)
	p.Port.Post(b, first)
	p.reap()
}

// Poll is Port's.
func (p *tap) Poll() {
	p.waited = true
	p.Port.Poll()
	p.reap()
}

// Wait is Port's.
func (p *tap) Wait(until int64) {
	p.waited = true
	p.Port.Wait(until)
	p.reap()
}

// reap takes the results of batches that are complete.
func (p *tap) reap() {
	p.open = slices.DeleteFunc(p.open, func(d *doorbell) bool {
		if !d.batch.Done() {
			return false
		}
		for i, v := range d.verbs {
			wr := d.batch.WR(d.first + i)
			v.wr.Status, v.wr.Result = wr.Status, wr.Result
			if wr.Op == rdma.OpRead && wr.Status == rdma.StatusOK {
				v.data = slices.Clone(p.Arena()[wr.Local:][:wr.Len])
				if v.place.block != 0 && v.place.within == 0 {
					p.s.learn(v.place.block, v.data)
				}
			}
		}
		d.done = true
		return true
	})
}

// place is where a verb goes.
type place struct {
	block  layout.Addr // 0: not to a block
	within uint32      // bytes from the start of the block
	copy   int
	other  string // what it is, if it is no block
}

// locate says what is at an offset of a blade.
func (s *story) locate(b rdma.BladeID, off uint64) place {
	l := s.w.space.Layout()
	for i := range l.Segments {
		g := &l.Segments[i]
		for k, r := range g.Placement.Replicas {
			if r.Base == 0 || r.Blade != b || off < r.Base || off >= r.Base+uint64(l.SegmentSize) {
				continue
			}
			at := uint32(off - r.Base)
			switch g.Kind {
			case layout.KindBlocks:
				in := at % g.Class.Size()
				return place{block: layout.MakeAddr(layout.SegmentID(i), at-in), within: in, copy: k}
			case layout.KindLog:
				slot := g.Row*l.LogsPerSegment() + at/l.LogArea
				return place{other: "log of " + s.slots[slot]}
			}
		}
	}
	return place{other: "header of the region"}
}

// learn gives a block a name by what it holds.
func (s *story) learn(a layout.Addr, data []byte) {
	if len(data) < record.LineSize {
		return
	}
	img := record.Image(data)
	if _, err := img.Check(a); err != nil {
		return
	}
	switch m := img.Meta(); {
	case m.State() == record.Node && a == s.w.table.Index.(*tree.Tree).Root():
		s.called[a] = "root"
	case m.State() == record.Node:
		if strings.HasPrefix(s.called[a], "leaf") || strings.HasPrefix(s.called[a], "inner") {
			return
		}
		kind := "leaf"
		if img.Value()[0] > 0 {
			kind = "inner node"
		}
		s.call(a, kind, 1)
	case m.KeyLen() > 0 && m.State() != record.Free:
		if name := "row " + string(img.Key()); strings.TrimRight(s.called[a], "'") != name {
			s.call(a, name, 0)
		}
	}
}

// call gives a block a name, with the first free number behind it, or so many primes.
func (s *story) call(a layout.Addr, name string, from int) {
	for n := max(from, 1); ; n++ {
		full := fmt.Sprintf("%s %d", name, n)
		if from == 0 {
			full = name + strings.Repeat("'", n-1)
		}
		taken := false
		for b, x := range s.called {
			taken = taken || x == full && b != a
		}
		if !taken {
			s.called[a] = full
			return
		}
	}
}

// name is that of a block.
func (s *story) name(a layout.Addr) string {
	if s.called[a] == "" {
		for k := range s.w.space.View().Copies(a) {
			s.learn(a, s.memory(a, k))
		}
	}
	if s.called[a] == "" {
		s.call(a, "block", 1)
	}
	return s.called[a]
}

// memory is a copy of a block.
func (s *story) memory(a layout.Addr, k int) []byte {
	v := s.w.space.View()
	at := v.At(a, k)
	return s.w.f.Memory(at.Blade)[at.Off:][:v.Class(a).Size()]
}

// tx names a transaction: a.1 is the first of a.
func (s *story) tx(id record.TxID) string {
	if id == 0 {
		return "nothing"
	}
	if n, ok := s.txs[id]; ok {
		return n
	}
	c := id.Coordinator()
	who := s.coordinators[c]
	if who == "" {
		who = "sweep" // which locks in the name of a process
	}
	if id.Seq() == record.MaxSequence || who == "load" {
		return who
	}
	s.drawn[c]++
	s.txs[id] = fmt.Sprintf("%s.%d", who, s.drawn[c])
	return s.txs[id]
}

func (s *story) guard(g record.Guard) string {
	if g.Held() {
		return "held by " + s.tx(g.Owner())
	}
	return "free at " + s.tx(g.Version())
}

// image is what a block holds, in words.
func (s *story) image(a layout.Addr, data []byte) string {
	if len(data) < record.LineSize {
		return fmt.Sprintf("%d bytes", len(data))
	}
	img := record.Image(data)
	if img.Version() == 0 && img.Meta() == 0 && img.Guard() == 0 {
		return "never used"
	}
	need, err := img.Check(a)
	var out string
	switch m := img.Meta(); {
	case err != nil && need > len(data):
		out = fmt.Sprintf("first line, %v,", m.State())
	case err != nil:
		return "not whole"
	case m.State() == record.Live:
		out = "live " + short(string(img.Value()))
	case m.State() == record.Absent:
		out = "absent"
	case m.State() == record.Node:
		out = s.node(a, img.Value())
	default:
		out = m.State().String()
	}
	out += " of " + s.tx(img.Version())
	if !img.Stable() {
		out += ", " + s.guard(img.Guard())
	}
	return out
}

func short(v string) string {
	if len(v) > 12 {
		return fmt.Sprintf("%s... (%d bytes)", v[:5], len(v))
	}
	return v
}

// complete reports whether an image is whole.
func complete(a layout.Addr, data []byte) bool {
	_, err := record.Image(data).Check(a)
	return err == nil
}

// node is a node in words: the keys of its entries, or the rows that they lead to.
func (s *story) node(a layout.Addr, value []byte) string {
	t := s.w.table.Index.(*tree.Tree)
	if a == t.Root() {
		return "root"
	}
	list, rest, more, err := t.Keys(slices.Clone(value), index.Bound{})
	if err != nil {
		return "node that is not whole"
	}
	var keys []string
	for _, x := range list {
		k := string(x.Key)
		switch {
		case value[0] > 0:
			k = fmt.Sprintf("%q to %s", k, s.name(x.Addr))
		case x.Key == nil || strings.TrimPrefix(s.name(x.Addr), "row ") != k:
			k = strings.TrimPrefix(s.name(x.Addr), "row ")
		}
		keys = append(keys, k)
	}
	if len(keys) > 6 {
		keys = append(keys[:3], fmt.Sprintf("... %d in all", len(list)))
	}
	out := "[" + strings.Join(keys, " ") + "]"
	if more && !s.w.table.Hashed {
		out += fmt.Sprintf(" below %q", rest.Key)
	}
	return out
}

// logged is a log record in words.
func (s *story) logged(p []byte) string {
	r, err := log.Decode(p)
	switch {
	case err != nil && slices.Max(append([]byte{0}, p...)) == 0:
		return "zeroes"
	case err != nil:
		return "no whole record"
	case r.Kind == log.Mark:
		return "mark of " + s.tx(r.Tx)
	}
	var parts []string
	for _, e := range r.Entries {
		if e.Kind == log.Dead {
			continue
		}
		what := s.name(e.Addr) + " " + s.image(e.Addr, e.Image)
		if e.Kind == log.New {
			what = "new " + what
		}
		parts = append(parts, what)
	}
	kind := map[log.Kind]string{log.Redo: "redo", log.Undo: "undo"}[r.Kind]
	return fmt.Sprintf("%s record of %s: %s", kind, s.tx(r.Tx), strings.Join(parts, "; "))
}

// beyond is the last block that a verb reaches, which is that of its place but for READs of
// neighbors.
func (s *story) beyond(v *verb) layout.Addr {
	size := s.w.space.View().Class(v.place.block).Size()
	return v.place.block + layout.Addr((v.place.within+v.wr.Len-1)/size*size)
}

// several are the images, or guards, of a READ of neighbors.
func (s *story) several(v *verb) string {
	var out []string
	size := s.w.space.View().Class(v.place.block).Size()
	for a, at := v.place.block, uint32(0); a <= s.beyond(v); a, at = a+layout.Addr(size), at+size {
		if v.place.within == record.GuardOff {
			out = append(out, s.guard(record.Guard(binary.LittleEndian.Uint64(v.data[at:]))))
		} else {
			out = append(out, s.image(a, v.data[at:min(at+size, uint32(len(v.data)))]))
		}
	}
	return strings.Join(out, "; ")
}

// words says what a verb is about, and what came of it.
func (s *story) words(v *verb) (what, result string) {
	p := v.place
	switch {
	case p.other != "":
		what = p.other
	case p.within == record.GuardOff && v.wr.Len == 8:
		what = "guard of " + s.name(p.block)
	case v.wr.Len == 1:
		what = "one byte of " + s.name(p.block)
	case s.beyond(v) > p.block+8*layout.Addr(record.LineSize):
		what = "many blocks"
	case s.beyond(v) != p.block:
		what = s.name(p.block) + " to " + s.name(s.beyond(v))
		if p.within == record.GuardOff {
			what = "guards of " + what
		}
	default:
		what = s.name(p.block)
		if p.within >= record.LineSize {
			what += ", lines behind the first"
		} else if p.within > 0 {
			what += fmt.Sprintf(", from byte %d", p.within)
		}
	}
	if p.copy > 0 {
		what += fmt.Sprintf(" (backup %d)", p.copy)
		if s.w.space.Backups() == 1 {
			what = strings.Replace(what, "(backup 1)", "(backup)", 1)
		}
	}
	switch v.wr.Op {
	case rdma.OpCAS, rdma.OpMaskedCAS:
		from, to := record.Guard(v.wr.Cmp), record.Guard(v.wr.Swap)
		what += fmt.Sprintf(": %s", s.guard(to))
		if v.wr.Op == rdma.OpCAS {
			what += fmt.Sprintf(", if it is %s", s.guard(from))
		} else {
			what += ", if it is free"
		}
		was := record.Guard(v.wr.Result)
		switch {
		case v.wr.Op == rdma.OpCAS && was == from:
			result = "done"
		case v.wr.Op == rdma.OpMaskedCAS && !was.Held():
			result = "done, it was " + s.guard(was)
		default:
			result = "no, it is " + s.guard(was)
		}
	case rdma.OpWrite:
		switch {
		case strings.HasPrefix(p.other, "log"):
			what += ": " + s.logged(v.data)
		case p.block == 0:
		case p.within == record.GuardOff && v.wr.Len == 8:
			what += ": " + s.guard(record.Guard(binary.LittleEndian.Uint64(v.data)))
		case p.within == 0 && v.wr.Len == record.LineSize && len(s.memory(p.block, 0)) > record.LineSize &&
			!complete(p.block, v.data):
			what += ", first line: " + s.guard(record.Image(v.data).Guard())
		case p.within == 0 && v.wr.Len >= record.LineSize:
			what += ": " + s.image(p.block, v.data)
		}
	case rdma.OpRead:
		switch {
		case strings.HasPrefix(p.other, "log"):
			result = s.logged(v.data)
		case p.block == 0 || v.data == nil || v.wr.Len == 1 || what == "many blocks":
		case s.beyond(v) != p.block:
			result = s.several(v)
		case p.within == record.GuardOff && v.wr.Len == 8:
			result = s.guard(record.Guard(binary.LittleEndian.Uint64(v.data)))
		case p.within == 0:
			result = s.image(p.block, v.data)
		}
	}
	if v.wr.Status != rdma.StatusOK {
		result = "refused: " + v.wr.Status.String()
	}
	return what, result
}

// render prints what was posted since, and forgets it.
func (s *story) render(out *strings.Builder) {
	var last, before string // log record; line, without the round trip
	again := 0
	more := func() {
		if again > 0 {
			fmt.Fprintf(out, "         ... %d times more\n", again)
		}
		again = 0
	}
	defer more()
	for _, d := range s.told {
		if d.remark != "" {
			more()
			fmt.Fprintf(out, "    %s\n", d.remark)
			continue
		}
		trip := ""
		if d.trip > 0 {
			trip = fmt.Sprint(d.trip)
		}
		for _, v := range d.verbs {
			if v.wr.Status == rdma.StatusFlushed || v.wr.Status == rdma.StatusNoBlade {
				continue // behind the end of its coordinator
			}
			what, result := s.words(v)
			if strings.HasPrefix(what, "log of ") && strings.Contains(what, " record of ") {
				if what == last {
					what = what[:strings.Index(what, ":")] + ": the same record"
				} else {
					last = what
				}
			}
			if result != "" {
				result = " -> " + result
			}
			verb := fmt.Sprintf("  %-5s %d  ", v.wr.Op, v.wr.Blade)
			now := verb + what + result
			if len(d.verbs) == 1 && now == before {
				again++
				continue
			}
			before = now
			more()
			fmt.Fprint(out, wrap(fmt.Sprintf("    %3s", trip)+verb, what+result))
			trip = ""
		}
	}
	s.told = nil
}

// wrap lays out text behind a prefix, in lines of 100 columns, the further ones indented.
func wrap(prefix, text string) string {
	var out strings.Builder
	line := prefix
	for i, w := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(w) > 100 {
			fmt.Fprintln(&out, line)
			line = strings.Repeat(" ", len(prefix)+1)
		}
		if i > 0 {
			line += " "
		}
		line += w
	}
	return out.String() + line + "\n"
}
