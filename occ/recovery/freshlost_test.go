package recovery_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"txnode/log"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// lostCase is what is left of the new block when the blade of its primary is lost.
type lostCase struct {
	name string
	// prepare puts the backups in place, from 1 on: those of the new block are free, those of
	// the leaf as before.
	prepare func(p *split)
	// want is what all copies have afterwards; nil: what they had.
	want func(p *split) []byte
	f    int // least number of backups
	weak bool
	both bool
}

// each calls fn for the backups of the new block.
func (p *split) each(fn func(k int)) {
	for k := 1; k < p.space.View().Copies(p.block); k++ {
		fn(k)
	}
}

// later is a transaction of another coordinator that replaces the image of the new block, and
// has come to its log.
func (p *split) later() record.Image {
	img := p.node(p.block, p.alive, strings.Repeat("s", len(p.image.Value())))
	p.writeLog(p.alive, p.logOf(p.alive, []logged{{log.Update, p.block, p.x, p.freed, img}}))
	return img
}

func lostCases() []lostCase {
	image := func(p *split) []byte { return p.image }
	list := []lostCase{
		{name: "nothing but the log", prepare: func(*split) {}, want: image, f: 1, both: true},
		{name: "on all backups", prepare: (*split).backups, want: image, f: 1, both: true},
		{
			name: "on the first backup", prepare: func(p *split) { p.put(p.block, 1, p.image) },
			want: image, f: 2, both: true,
		},
		{
			name: "on the last backup", prepare: func(p *split) { p.put(p.block, p.s.backups, p.image) },
			want: image, f: 2, both: true,
		},
		{name: "its first line", prepare: func(p *split) {
			p.each(func(k int) { p.put(p.block, k, p.image[:record.LineSize]) })
		}, want: image, f: 1, both: true},
		{name: "changed by another", prepare: func(p *split) {
			p.released()
			img := p.node(p.block, p.alive, strings.Repeat("s", len(p.image.Value())))
			p.each(func(k int) { p.put(p.block, k, img) })
		}, f: 1, both: true},
		{name: "being changed by another", prepare: func(p *split) {
			p.released()
			p.backups()
			p.later()
		}, want: func(p *split) []byte {
			return p.node(p.block, p.alive, strings.Repeat("s", len(p.image.Value())))
		}, f: 1, both: true},
		{name: "freed since", prepare: func(p *split) {
			p.released()
			line := slices.Clone(p.free)
			line.PutFree(p.block, p.alive, p.table.ID, p.class, p.space.CountFree(p.block))
			p.each(func(k int) { p.put(p.block, k, line) })
		}, f: 1, both: true},
		{name: "guard first", prepare: func(p *split) {
			p.each(func(k int) { p.put(p.block, k, words(p.free, p.image, func(i int) bool { return i == 7 })) })
		}, want: image, f: 1, weak: true},
	}
	for n := 1; n < 8; n++ {
		list = append(list, lostCase{name: fmt.Sprintf("%d words", n), prepare: func(p *split) {
			p.put(p.block, 1, words(p.free, p.image, first(n)))
		}, want: image, f: 1})
	}
	return list
}

// TestNewLost is TestNew when the blade of the block's primary is lost: a backup is the
// primary, and says less.
func TestNewLost(t *testing.T) {
	for _, s := range defaultSettings(t) {
		for _, size := range []int{20, 300} {
			for _, c := range lostCases() {
				if s.backups < c.f || !c.both && c.weak == s.caps.OrderedLine {
					continue
				}
				t.Run(fmt.Sprintf("%v/%d bytes/%s", s, size, c.name), func(t *testing.T) {
					for stop := -1; !t.Failed(); stop += stride() {
						p := newSplit(t, s, size)
						for k := range p.space.View().Copies(p.block) {
							p.put(p.block, k, p.free)
							p.put(p.leaf, k, p.old)
						}
						p.put(p.leaf, 0, locked(p.old, p.x))
						p.writeLog(p.x, p.records)
						c.prepare(p)
						stopped := p.lose(stop)
						p.lostWith(fmt.Sprintf("stopped after %d verbs", stop), c.want)
						if stop >= 0 && !stopped {
							break
						}
					}
				})
			}
		}
	}
}

// lose loses the blade of the new block's primary. The first to decide what that means is stopped
// after so many verbs, negative: not. It reports whether that was so.
func (p *split) lose(stop int) (stopped bool) {
	p.t.Helper()
	b := p.space.View().At(p.block, 0).Blade
	must(p.t, p.f.StopBlade(b))
	p.touched = 0
	change := p.space.DeclareDead(b)
	if stop >= 0 {
		p.arm(stop)
		_, err := recovery.FailOver(p.newThread().Plain(), p.eng.Recovery(), change)
		if stopped = p.disarm(); !stopped {
			must(p.t, err)
			return false
		}
		change = nil
		must(p.t, recovery.Reconnect(p.ctl.Plain(), p.space))
	}
	_, err := recovery.FailOver(p.ctl.Plain(), p.eng.Recovery(), change)
	must(p.t, err)
	return stopped
}

// lostWith demands what copies have when everything is decided.
func (p *split) lostWith(what string, want func(p *split) []byte) {
	p.t.Helper()
	v := p.space.View()
	for k := range v.Copies(p.leaf) {
		if got := p.copyOf(p.leaf, k)[:len(p.now)]; !bytes.Equal(got, p.now) {
			p.t.Errorf("%s: copy %d of the leaf is\n%x and not\n%x", what, k, got, p.now)
		}
	}
	if want == nil {
		if p.touched > 0 {
			p.t.Errorf("%s: %d WRITEs to a block that is at rest", what, p.touched)
		}
		return
	}
	for k := range v.Copies(p.block) {
		if img := want(p); !bytes.Equal(p.copyOf(p.block, k)[:len(img)], img) {
			p.t.Errorf("%s: copy %d of the new block is\n%x and not\n%x", what, k, p.copyOf(p.block, k)[:len(img)], img)
		}
	}
}

// freeing is a committed transaction x that frees the new block, which is a node of before.
func newFreeing(t *testing.T, s setting, size int) (p *split, old, free record.Image) {
	t.Helper()
	p = newSplit(t, s, size)
	old = p.node(p.block, p.before, strings.Repeat("o", size))
	free = make(record.Image, record.LineSize)
	free.PutFree(p.block, p.x, p.table.ID, p.class, p.space.CountFree(p.block))
	for k := range p.space.View().Copies(p.block) {
		p.put(p.block, k, old)
		p.put(p.leaf, k, p.old)
	}
	p.put(p.block, 0, locked(old, p.x))
	p.put(p.leaf, 0, locked(p.old, p.x))
	p.writeLog(p.x, p.logOf(p.x, []logged{
		{log.Update, p.leaf, p.before, p.space.Frees(), p.now},
		{log.Update, p.block, p.before, p.space.Frees(), free},
	}))
	return p, old, free
}

// freeingCase is what the coordinator has left of the block that it frees.
type freeingCase struct {
	name    string
	lost    bool // the blade of the primary
	f       int  // least number of backups
	prepare func(p *split, old, free record.Image)
	// want is what all copies have afterwards; nil: the block is free.
	want func(p *split) []byte
	same bool // and nothing was written
}

func freeingCases() []freeingCase {
	next := func(p *split) record.Image {
		return p.node(p.block, p.alive, strings.Repeat("n", len(p.image.Value())))
	}
	list := []freeingCase{
		{name: "nothing but the log", prepare: func(*split, record.Image, record.Image) {}},
		{name: "backups", f: 1, prepare: func(p *split, _, free record.Image) {
			p.each(func(k int) { p.put(p.block, k, free) })
		}},
		{name: "first backup, lost", lost: true, f: 2, prepare: func(p *split, _, free record.Image) {
			p.put(p.block, 1, free)
		}},
		{name: "last backup, lost", lost: true, f: 2, prepare: func(p *split, _, free record.Image) {
			p.put(p.block, 2, free)
		}},
		{name: "nothing but the log, lost", lost: true, f: 1, prepare: func(*split, record.Image, record.Image) {}},
		{name: "all backups, lost", lost: true, f: 1, same: true, prepare: func(p *split, _, free record.Image) {
			p.each(func(k int) { p.put(p.block, k, free) })
		}},
		// Somebody has the block already: its first image has reached one backup, or none.
		{name: "used again, lost", lost: true, f: 1, want: func(p *split) []byte { return next(p) },
			prepare: func(p *split, _, free record.Image) {
				p.each(func(k int) { p.put(p.block, k, free) })
				p.released()
				p.put(p.block, p.s.backups, next(p))
				p.writeLog(p.alive, p.logOf(p.alive, []logged{{log.New, p.block, 0, p.space.Frees(), next(p)}}))
			}},
	}
	for n := 1; n < 8; n++ {
		list = append(list,
			freeingCase{name: fmt.Sprintf("%d words, lost",
				n), lost: true, f: 1, prepare: func(p *split, old, free record.Image) {
				p.put(p.block, 1, words(old, free, first(n)))
			}}, freeingCase{name: fmt.Sprintf("%d words of another, lost", n), lost: true, f: 2,
				prepare: func(p *split, old, free record.Image) {
					p.put(p.block, 1, free)
					p.put(p.block, 2, words(old, free, first(n)))
				}})
	}
	return list
}

// TestFreedByCommit: a block that a committed transaction frees is free on all copies when
// its coordinator is recovered, and somebody gets it. If another transaction has it since, it
// is not freed again.
func TestFreedByCommit(t *testing.T) {
	list := defaultSettings(t)
	if two := (setting{occ.PolicyDefault, 2, strong}); !slices.Contains(list, two) {
		list = append(list, two) // backups that differ
	}
	for _, s := range list {
		for _, c := range freeingCases() {
			if s.backups < c.f || strings.Contains(c.name, "words") && !s.caps.OrderedLine {
				continue
			}
			t.Run(fmt.Sprintf("%v/%s", s, c.name), func(t *testing.T) {
				for stop := -1; !t.Failed(); stop += stride() {
					what := fmt.Sprintf("stopped after %d verbs", stop)
					p, old, free := newFreeing(t, s, 300)
					c.prepare(p, old, free)
					stopped := false
					if c.lost {
						stopped = p.lose(stop)
					} else {
						if stop >= 0 {
							stopped = p.decideUntil(p.x.Coordinator(), stop)
						}
						p.decideUntil(p.x.Coordinator(), -1)
					}
					want := c.want
					if want == nil {
						want = func(*split) []byte { return free }
					}
					p.lostWith(what, want)
					if c.same && p.touched > 0 {
						t.Errorf("%s: %d WRITEs", what, p.touched)
					}
					p.sweep()
					if is := slices.Contains(p.space.Spare(), p.block); is != (c.want == nil) {
						t.Errorf("%s: the block is in a pool: %v", what, is)
					}
					if stop >= 0 && !stopped {
						break
					}
				}
			})
		}
	}
}

// TestNewBesideCopy: while a copy of the new block is being built, which has been compared already,
// recovery locks the primary before it writes that copy. When it counts, it has the image.
func TestNewBesideCopy(t *testing.T) {
	for _, s := range defaultSettings(t) {
		if s.backups == 0 {
			continue
		}
		for _, size := range []int{20, 300} {
			t.Run(fmt.Sprintf("%v/%d bytes", s, size), func(t *testing.T) {
				for stop := -1; !t.Failed(); stop += stride() {
					what := fmt.Sprintf("stopped after %d verbs", stop)
					copier, p := newSplitBesideCopy(t, s, size)
					stopped := stop >= 0 && p.decideUntil(p.x.Coordinator(), stop)
					p.decideUntil(p.x.Coordinator(), -1)
					for idle := false; !idle; {
						var err error
						idle, err = copier.Step(p.ctl.Plain())
						must(t, err)
					}
					if v := p.space.View(); v.Copies(p.block) <= s.backups {
						t.Fatalf("%s: %d copies of the block", what, v.Copies(p.block))
					}
					p.lostWith(what, func(p *split) []byte { return p.image })
					if stop >= 0 && !stopped {
						break
					}
				}
			})
		}
	}
}

func newSplitBesideCopy(t *testing.T, s setting, size int) (*memory.Copier, *split) {
	t.Helper()
	p := newSplitAfter(t, s, size, func(p *split) { p.loseBlade(p.space.View().At(p.block, 1).Blade) })
	p.all(p.block, p.free)
	p.all(p.leaf, p.old)
	copier := p.space.NewCopier()
	for g := copier.Progress(); g.Total == 0 || g.Done < g.Total; g = copier.Progress() {
		idle, err := copier.Step(p.ctl.Plain())
		if must(t, err); idle {
			t.Fatal("no copy is being built")
		}
	}
	v := p.space.View()
	if v.Written(p.block) == v.Copies(p.block) {
		t.Fatal("no copy of the block is being built")
	}
	p.put(p.leaf, 0, locked(p.old, p.x))
	p.writeLog(p.x, p.records)
	counted := v.Copies(p.block)
	p.arrive = func(wr *rdma.WR, data []byte) {
		for k := counted; k < v.Written(p.block); k++ {
			at := v.At(p.block, k)
			if wr.Blade != at.Blade || wr.Off != at.Off || record.Image(data).Version() != p.x {
				continue
			}
			if line := record.Image(p.copyOf(p.block, 0)); line.Guard() != record.HeldBy(p.x) &&
				line.Guard() != record.FreeAt(p.x) {
				t.Error("a copy that is being built is written, and the primary is not locked")
			}
		}
	}
	return copier, p
}
