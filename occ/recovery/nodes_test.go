package recovery_test

import (
	"bytes"
	"slices"
	"testing"

	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ/recovery"
)

// dead is a transaction of a coordinator that is not registered any more.
func (p *split) dead() record.TxID {
	p.t.Helper()
	se, _ := p.session()
	id := record.MakeTxID(se.Coordinator(), 9)
	must(p.t, se.Close())
	return id
}

// all puts an image on all copies of a block.
func (p *split) all(a layout.Addr, img record.Image) {
	for k := range p.space.View().Copies(a) {
		p.put(a, k, img)
	}
}

// TestLockOfNode: a lock of nobody's on a node is released at the node's version, by the session
// that meets it and by the sweep, and the node stays.
func TestLockOfNode(t *testing.T) {
	for _, s := range defaultSettings(t) {
		for _, how := range []string{"met", "swept"} {
			t.Run(s.String()+"/"+how, func(t *testing.T) {
				p := newSplit(t, s, 300)
				p.all(p.leaf, p.old)
				p.all(p.block, p.free)
				p.put(p.leaf, 0, locked(p.old, p.dead()))
				if how == "met" {
					got, err := recovery.Unlock(p.ctl.Plain(), p.eng.Recovery(), p.leaf)
					must(t, err)
					if got != recovery.UnlockedNow {
						t.Errorf("it says %v", got)
					}
				} else {
					p.sweep()
				}
				for k := range p.space.View().Copies(p.leaf) {
					if got := p.copyOf(p.leaf, k)[:len(p.old)]; !bytes.Equal(got, p.old) {
						t.Errorf("copy %d is\n%x and not\n%x", k, got, p.old)
					}
				}
				if slices.Contains(p.space.Spare(), p.leaf) {
					t.Error("a node is in a pool")
				}
			})
		}
	}
}

// TestPlaceholderOfNode: the placeholder of a node, whose transaction has not come to its log,
// becomes free, without a lookup: it has no key.
func TestPlaceholderOfNode(t *testing.T) {
	for _, s := range defaultSettings(t) {
		t.Run(s.String(), func(t *testing.T) {
			p := newSplit(t, s, 300)
			by := p.dead()
			p.all(p.block, p.free)
			line := make(record.Image, record.LineSize)
			line.Put(p.block, record.MakeTxID(by.Coordinator(), 8), record.Absent, p.table.ID, p.class, by, nil, nil)
			p.put(p.block, 0, line)
			p.sweep()
			for k := range p.space.View().Copies(p.block) {
				img := record.Image(p.copyOf(p.block, k))
				if _, err := img.Check(p.block); err != nil || img.Meta().State() != record.Free || !img.Stable() {
					t.Errorf("copy %d is %v, %v", k, img.Meta().State(), err)
				}
			}
			if !slices.Contains(p.space.Spare(), p.block) {
				t.Error("the block is in no pool")
			}
		})
	}
}

// TestNodeIsNotFree: a node whose primary looks free, since that is damaged, is given to nobody,
// and stays on its copies.
func TestNodeIsNotFree(t *testing.T) {
	for _, s := range defaultSettings(t) {
		if s.backups == 0 {
			continue // nothing tells
		}
		for _, alone := range []bool{false, true} {
			p := newSplit(t, s, 300)
			node := p.node(p.block, p.dead(), "a node")
			p.all(p.block, node)
			clear(p.copyOf(p.block, 0))
			o := p.eng.Recovery()
			if o.Alone = alone; alone {
				o.By = 0
			}
			_, err := recovery.Sweep(p.ctl.Plain(), o)
			must(t, err)
			if slices.Contains(p.space.Spare(), p.block) {
				t.Errorf("%v, alone %v: the block is in a pool", s, alone)
			}
			for k := 1; k < p.space.View().Copies(p.block); k++ {
				if !bytes.Equal(p.copyOf(p.block, k)[:len(node)], node) {
					t.Errorf("%v, alone %v: copy %d has lost it", s, alone, k)
				}
			}
		}
	}
}

// TestNodesAfterPower: after a loss of power, nodes have the images of the logs, and those of which
// no log tells what they had. A block that a commit has freed is none.
func TestNodesAfterPower(t *testing.T) {
	for _, s := range defaultSettings(t) {
		t.Run(s.String(), func(t *testing.T) {
			p := newSplitAfter(t, s, 300, func(p *split) {
				meta, err := p.space.CreateNodesTable("nodes", []byte("{}"), p.class, 8, nil)
				must(t, err)
				must(t, p.space.SetTableRoot(meta.ID, p.leaf))
				p.nodes = meta.ID
			})
			p.all(p.leaf, p.old)
			p.all(p.block, p.free)
			p.put(p.leaf, 0, locked(p.old, p.x))
			p.writeLog(p.x, p.records)
			al, err := p.space.NewAllocator(p.ctl)
			must(t, err)
			rest, err := al.Alloc(p.ctl.Plain(), p.class)
			must(t, err)
			freed, err := al.Alloc(p.ctl.Plain(), p.class)
			must(t, err)
			untold := p.node(rest, p.before, "no log tells of it")
			p.all(rest, untold)
			p.all(freed, p.node(freed, p.before, "to be freed"))
			line := make(record.Image, record.LineSize)
			line.PutFree(freed, p.alive, p.nodes, p.class, p.space.CountFree(freed))
			p.writeLog(p.alive, p.logOf(p.alive, []logged{{log.Update, freed, p.before, p.space.Frees(), line}}))
			p.ctl = p.newThreadOf(4 << 20)
			p.power(p.table)
			for k := range p.space.View().Copies(p.leaf) {
				for _, want := range []struct {
					a   layout.Addr
					img record.Image
				}{{p.leaf, p.now}, {p.block, p.image}, {rest, untold}, {freed, make(record.Image, record.LineSize)}} {
					if got := p.copyOf(want.a, k)[:len(want.img)]; !bytes.Equal(got, want.img) {
						t.Errorf("copy %d of block %v is\n%x and not\n%x", k, want.a, got, want.img)
					}
				}
			}
			_, tx := p.session()
			must(t, p.do(tx, put("a", "1"))) // a row beside nodes
		})
	}
}
