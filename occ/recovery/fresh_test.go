package recovery_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/verify"
)

// split is a committed transaction x that splits a node: the leaf is an Update, and the block of
// the right part a New. Its coordinator is dead.
type split struct {
	*world
	s           setting
	x           record.TxID // the transaction
	before      record.TxID // version of the leaf
	alive       record.TxID // a transaction of a coordinator that is alive, unless a blade is lost
	leaf, block layout.Addr
	class       layout.Class
	nodes       uint16            // the table of the nodes, if it is not that of the world
	al          *memory.Allocator // of both
	old, now    record.Image      // the leaf
	free, image record.Image      // the new block; free: the first line
	freed       uint64            // when the log was written
	touched     int               // WRITEs to the new block
	records     []byte            // the log record
}

// node is an image of a node.
func (p *split) node(a layout.Addr, v record.TxID, text string) record.Image {
	img := make(record.Image, record.Size(0, len(text)))
	img.Put(a, v, record.Node, cmp.Or(p.nodes, p.table.ID), p.class, 0, nil, []byte(text))
	return img
}

func newSplit(t *testing.T, s setting, size int) *split {
	t.Helper()
	return newSplitAfter(t, s, size, func(*split) {})
}

// newSplitAfter is newSplit of coordinators that begin after something has happened.
func newSplitAfter(t *testing.T, s setting, size int, happens func(p *split)) *split {
	t.Helper()
	p := &split{world: newWorldOn(t, max(3, s.backups+2), s, occ.Options{}, 64<<10), s: s}
	p.class, _ = record.ClassFor(0, size)
	c := p.ctl.Plain()
	var err error
	p.al, err = p.space.NewAllocator(p.ctl)
	must(t, err)
	for _, a := range []*layout.Addr{&p.leaf, &p.block} {
		*a, err = p.al.Alloc(c, p.class)
		must(t, err)
		p.al.Used(*a)
	}
	happens(p)
	id := func() record.TxID {
		se, _ := p.session()
		return record.MakeTxID(se.Coordinator(), 7)
	}
	p.before, p.alive, p.x = id(), id(), id()
	p.old, p.now = p.node(p.leaf, p.before, strings.Repeat("o", size)), p.node(p.leaf, p.x, strings.Repeat("l", size))
	p.image = p.node(p.block, p.x, strings.Repeat("r", size))
	p.free = make(record.Image, record.LineSize)
	p.free.PutFree(p.block, record.MakeTxID(p.before.Coordinator(), 5), cmp.Or(p.nodes, p.table.ID), p.class,
		p.space.CountFree(p.block))
	p.freed = p.space.Frees()
	p.records = p.logOf(p.x, []logged{
		{log.Update, p.leaf, p.before, p.freed, p.now},
		{log.New, p.block, 0, p.freed, p.image},
	})
	p.arrive = func(wr *rdma.WR, data []byte) {
		v := p.space.View()
		for k := range v.Written(p.block) {
			at := v.At(p.block, k)
			if wr.Blade == at.Blade && wr.Off < at.Off+uint64(p.class.Size()) && wr.Off+uint64(len(data)) > at.Off {
				p.touched++
			}
		}
	}
	return p
}

// logged is an entry of a log record.
type logged struct {
	kind  log.EntryKind
	addr  layout.Addr
	prev  record.TxID
	freed uint64
	image record.Image
}

// logOf lays out a redo record.
func (p *split) logOf(x record.TxID, entries []logged) []byte {
	var b log.Builder
	b.Reset()
	buf := make([]byte, 4<<10)
	for _, e := range entries {
		at := b.Add(buf, len(e.image))
		copy(buf[at:], e.image)
		b.Set(buf, at, e.kind, e.addr, e.prev, e.freed, len(e.image))
	}
	return buf[:b.Finish(buf, log.Redo, x, 0, 0)]
}

// writeLog writes a record to the logs of its coordinator, on all blades.
func (p *split) writeLog(x record.TxID, rec []byte) {
	p.t.Helper()
	cs, err := p.space.Coordinators()
	must(p.t, err)
	i := slices.IndexFunc(cs, func(c memory.Coordinator) bool { return c.ID == x.Coordinator() })
	for b, l := range cs[i].Logs {
		if l.Size == 0 {
			continue // the blade is lost
		}
		copy(p.f.Memory(rdma.BladeID(b))[l.Addr.Off:], rec)
	}
}

// copyOf is the memory of a copy of a block.
func (p *split) copyOf(a layout.Addr, k int) []byte {
	at := p.space.View().At(a, k)
	return p.f.Memory(at.Blade)[at.Off:][:p.class.Size()]
}

// put has a copy of a block begin with some bytes.
func (p *split) put(a layout.Addr, k int, img []byte) { copy(p.copyOf(a, k), img) }

// locked is an image with a lock.
func locked(img record.Image, by record.TxID) record.Image {
	img = slices.Clone(img)
	img.SetGuard(record.HeldBy(by))
	return img
}

// words is a line, some of whose words have arrived over another one.
func words(over, line record.Image, arrived func(i int) bool) record.Image {
	out := slices.Clone(over[:record.LineSize])
	for i := range record.LineSize / 8 {
		if arrived(i) {
			copy(out[8*i:8*i+8], line[8*i:])
		}
	}
	return out
}

func first(n int) func(i int) bool { return func(i int) bool { return i < n } }

// splitCase is what the coordinator has left of the new block, on the primary and on backups.
type splitCase struct {
	name string
	// prepare puts the lines of the new block in place; all copies of it are free, and the leaf is
	// locked by x on the primary, before.
	prepare func(p *split)
	redone  bool // the image is on all copies afterwards; else nothing has touched the block
	weak    bool // of fabrics that do not order the words of a line; else of those that do; see both
	both    bool
	f       []int // numbers of backups; nil: all
}

// backups puts the image on all backups.
func (p *split) backups() {
	for k := 1; k < p.space.View().Copies(p.block); k++ {
		p.put(p.block, k, p.image)
	}
}

// body puts all but the first line on the primary.
func (p *split) body() {
	if len(p.image) > record.LineSize {
		copy(p.copyOf(p.block, 0)[record.LineSize:], p.image[record.LineSize:])
	}
}

// released is the leaf with its image, everywhere.
func (p *split) released() {
	for k := range p.space.View().Copies(p.leaf) {
		p.put(p.leaf, k, p.now)
	}
}

func splitCases() []splitCase {
	list := []splitCase{
		{name: "nothing but the log", prepare: func(*split) {}, redone: true, both: true},
		{name: "never used", prepare: func(p *split) {
			for k := range p.space.View().Copies(p.block) {
				clear(p.copyOf(p.block, k))
			}
		}, redone: true, both: true},
		{name: "on the backups", prepare: (*split).backups, redone: true, both: true},
		{name: "on the backups, and the free block locked by a late session", prepare: func(p *split) {
			p.backups()
			p.put(p.block, 0, locked(p.free, p.alive))
		}, redone: true, both: true},
		{name: "all but the first line", prepare: func(p *split) { p.backups(); p.body() }, redone: true, both: true},
		{name: "written, and not released", prepare: func(p *split) {
			p.backups()
			p.put(p.block, 0, locked(p.image, p.x))
		}, redone: true, both: true},
		{name: "a placeholder", prepare: func(p *split) {
			line := make(record.Image, record.LineSize)
			line.Put(p.block, record.MakeTxID(p.x.Coordinator(), 6), record.Absent, p.table.ID, p.class, p.x, nil, nil)
			p.put(p.block, 0, line)
		}, redone: true, both: true},
		{name: "freed by its own transaction before", prepare: func(p *split) {
			line := slices.Clone(p.free)
			line.PutFree(p.block, p.x, p.table.ID, p.class, p.freed)
			p.put(p.block, 0, line)
		}, redone: true, both: true},

		{name: "installed", prepare: func(p *split) { p.backups(); p.put(p.block, 0, p.image) }, both: true},
		{name: "in place, and locked by another with an old address", prepare: func(p *split) {
			p.backups()
			p.put(p.block, 0, locked(p.image, p.alive))
		}, both: true},
		{name: "published, and locked by another", prepare: func(p *split) {
			p.backups()
			p.put(p.block, 0, locked(p.image, p.alive))
			p.released()
		}, both: true},
		{name: "changed by another", prepare: func(p *split) {
			p.released()
			for k := range p.space.View().Copies(p.block) {
				p.put(p.block, k, p.node(p.block, p.alive, strings.Repeat("s", len(p.image.Value()))))
			}
		}, both: true},
		{name: "freed since", prepare: func(p *split) {
			p.released()
			line := slices.Clone(p.free)
			line.PutFree(p.block, p.alive, p.table.ID, p.class, p.space.CountFree(p.block))
			for k := range p.space.View().Copies(p.block) {
				p.put(p.block, k, line)
			}
		}, both: true},
		{name: "damaged", prepare: func(p *split) {
			line := slices.Clone(p.free)
			line[record.ChecksumOff] ^= 1
			p.put(p.block, 0, line)
		}},
		{name: "changed by another, and zeroed on the primary", prepare: func(p *split) {
			p.released()
			for k := range p.space.View().Copies(p.block) {
				p.put(p.block, k, p.node(p.block, p.alive, strings.Repeat("s", len(p.image.Value()))))
			}
			clear(p.copyOf(p.block, 0))
		}, both: true, f: []int{1, 2}},
		{name: "freed since, and zeroed on the primary", prepare: func(p *split) {
			p.released()
			line := slices.Clone(p.free)
			line.PutFree(p.block, p.alive, p.table.ID, p.class, p.space.CountFree(p.block))
			for k := range p.space.View().Copies(p.block) {
				p.put(p.block, k, line)
			}
			clear(p.copyOf(p.block, 0))
		}, both: true, f: []int{1, 2}},
		{name: "without a backup, and changed by another since", prepare: func(p *split) {
			p.put(p.block, 0, p.node(p.block, p.alive, strings.Repeat("s", len(p.image.Value()))))
		}, weak: true, f: []int{0}},
	}
	for n := 1; n < 8; n++ {
		list = append(list, splitCase{name: fmt.Sprintf("published, and %d words of a READ before another image",
			n), prepare: func(p *split) {
			p.released()
			next := p.node(p.block, p.alive, strings.Repeat("s", len(p.image.Value())))
			for k := range p.space.View().Copies(p.block) {
				p.put(p.block, k, next)
			}
			p.put(p.block, 0, words(next, p.image, first(n)))
		}, both: true}, splitCase{name: fmt.Sprintf("%d words", n), prepare: func(p *split) {
			p.backups()
			p.body()
			p.put(p.block, 0, words(p.free, p.image, first(n)))
		}, redone: true})
	}
	for _, mask := range []int{
		0b1, 0b10, 0b100, 0b1000, 0b1111110, 0b10000000, 0b10101010, 0b01010101, 0b11111110, 0b1111111,
	} {
		arrived := func(i int) bool { return mask>>i&1 != 0 }
		list = append(list, splitCase{name: fmt.Sprintf("words %08b", mask), prepare: func(p *split) {
			p.backups()
			p.body()
			p.put(p.block, 0, words(p.free, locked(p.image, p.x), arrived))
		}, redone: true, weak: true}, splitCase{name: fmt.Sprintf("words %08b, before the backups", mask),
			prepare: func(p *split) {
				p.put(p.block, 0, words(p.free, locked(p.image, p.x), arrived)) // a copy is being built
			}, redone: true, weak: true, f: []int{1, 2}})
	}
	return list
}

// atRest demands what is to be when the transaction is recovered.
func (p *split) atRest(what string, redone bool, before [][]byte) {
	p.t.Helper()
	v := p.space.View()
	for k := range v.Copies(p.leaf) {
		if got := p.copyOf(p.leaf, k)[:len(p.now)]; !bytes.Equal(got, p.now) {
			p.t.Errorf("%s: copy %d of the leaf is\n%x and not\n%x", what, k, got, p.now)
		}
	}
	for k := range v.Copies(p.block) {
		want := []byte(p.image)
		if !redone {
			want = before[k]
		}
		if got := p.copyOf(p.block, k)[:len(want)]; !bytes.Equal(got, want) {
			p.t.Errorf("%s: copy %d of the new block is\n%x and not\n%x", what, k, got, want)
		}
	}
	if !redone && p.touched > 0 {
		p.t.Errorf("%s: %d WRITEs to a block that is at rest", what, p.touched)
	}
	if verdict, ok := p.space.Verdict(p.x.Coordinator()); !ok || verdict.Of(p.x.Seq()) == layout.OutcomeAborted {
		p.t.Errorf("%s: the verdict is %v", what, verdict)
	}
}

// ordered demands that no lock of the leaf is released before the new block is whole.
func (p *split) ordered(what string) {
	before := p.arrive
	p.arrive = func(wr *rdma.WR, data []byte) {
		before(wr, data)
		at := p.space.View().At(p.leaf, 0)
		guard := at.Off + record.GuardOff
		if wr.Blade != at.Blade || wr.Off > guard || wr.Off+uint64(len(data)) < guard+8 {
			return
		}
		if record.Guard(binary.LittleEndian.Uint64(data[guard-wr.Off:])).Held() {
			return
		}
		for k := range p.space.View().Copies(p.block) {
			if got := p.copyOf(p.block, k)[:len(p.image)]; !bytes.Equal(got, p.image) {
				p.t.Errorf("%s: the leaf is released, and copy %d of the new block is\n%x", what, k, got)
			}
		}
	}
}

// start is the state of c, with the log.
func (c *splitCase) start(t *testing.T, s setting, size int) (p *split, before [][]byte) {
	t.Helper()
	p = newSplit(t, s, size)
	for k := range p.space.View().Copies(p.block) {
		p.put(p.block, k, p.free)
		p.put(p.leaf, k, p.old)
	}
	p.put(p.leaf, 0, locked(p.old, p.x))
	c.prepare(p)
	p.writeLog(p.x, p.records)
	for k := range p.space.View().Copies(p.block) {
		before = append(before, bytes.Clone(p.copyOf(p.block, k)))
	}
	return p, before
}

// TestNew: a new block of a transaction that is committed has its image when its coordinator is
// recovered, on all copies, before anything leads to it; and one that is at rest is not touched.
func TestNew(t *testing.T) {
	for _, s := range defaultSettings(t) {
		for _, size := range []int{20, 300} {
			for _, c := range splitCases() {
				if !c.both && c.weak == s.caps.OrderedLine || c.f != nil && !slices.Contains(c.f, s.backups) {
					continue
				}
				t.Run(fmt.Sprintf("%v/%d bytes/%s", s, size, c.name), func(t *testing.T) {
					for stop := -1; ; stop += stride() {
						p, before := c.start(t, s, size)
						what := fmt.Sprintf("stopped after %d verbs", stop)
						if c.redone {
							p.ordered(what)
						}
						if stop >= 0 && !p.decideUntil(p.x.Coordinator(), stop) {
							break
						}
						p.decideUntil(p.x.Coordinator(), -1)
						p.atRest(what, c.redone, before)
						if t.Failed() {
							break
						}
					}
				})
			}
		}
	}
}

// TestNewBesideWriter: a new block whose transaction has released what leads to it was written
// whole. Without a backup, where the words of a line arrive in any order, it may look torn since,
// because a live coordinator is writing to it. Recovery leaves it alone.
func TestNewBesideWriter(t *testing.T) {
	for _, mask := range []int{0b1, 0b11, 0b111, 0b1111101, 0b111111} {
		for _, size := range []int{20, 300} {
			c := splitCase{prepare: func(p *split) {
				p.released()
				next := p.node(p.block, p.alive, strings.Repeat("s", size))
				p.put(p.block, 0, p.image)
				p.put(p.block, 0, words(p.image, locked(next, p.alive), func(i int) bool { return mask>>i&1 != 0 }))
			}}
			p, before := c.start(t, setting{occ.PolicyDefault, 0, weak}, size)
			p.decideUntil(p.x.Coordinator(), -1)
			p.atRest(fmt.Sprintf("words %08b, %d bytes", mask, size), false, before)
		}
	}
}

// stride is how many verbs lie between the stops that a test tries.
func stride() int { return byRun(5, 1, 13) }

// defaultSettings are settings of policy default, for backups of all numbers, on both kinds of
// fabric.
func defaultSettings(t *testing.T) []setting {
	t.Helper()
	var list []setting
	for f := range 3 {
		list = append(list, setting{occ.PolicyDefault, f, strong}, setting{occ.PolicyDefault, f, weak})
	}
	if testing.Short() {
		return list[2:4]
	}
	return list
}

// TestNewUnfinished: a check of the database as the coordinator has left it calls nothing damage
// that recovery finishes, and repairs nothing of that.
func TestNewUnfinished(t *testing.T) {
	for _, s := range defaultSettings(t) {
		if !s.caps.OrderedLine {
			continue // a line in which words are missing need not say whose it is
		}
		for _, c := range splitCases() {
			if !c.redone || c.weak || c.f != nil && !slices.Contains(c.f, s.backups) {
				continue
			}
			p, before := c.start(t, s, 300)
			n := 0
			p.examine(verify.Options{Repair: true, Report: func(f verify.Finding) error {
				if n++; !f.Unfinished {
					t.Errorf("%v, %s: %v", s, c.name, f)
				}
				return nil
			}})
			if n == 0 {
				t.Errorf("%v, %s: nothing was found", s, c.name)
			}
			for k := range before {
				if !bytes.Equal(p.copyOf(p.block, k), before[k]) {
					t.Errorf("%v, %s: copy %d was repaired", s, c.name, k)
				}
			}
		}
	}
}
