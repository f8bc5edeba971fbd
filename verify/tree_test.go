package verify_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"txnode/index/blink"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/txn"
	"txnode/verify"
)

// plantTree makes a database with an ordered table of many leaves, after inserts, deletes, records
// that outgrow their blocks, and rollbacks.
func plantTree(t testing.TB, dir string, v variant, keys uint64) {
	t.Helper()
	ctx := context.Background()
	db, err := txn.Open(ctx, txn.Options{
		Dir: dir, Blades: v.blades, Backups: txn.F(v.backups), Policy: v.policy, BladeSize: 32 << 20,
		SegmentSize: testSegment, LogArea: testLog, CacheBytes: 1 << 20, Arena: 4 << 20, Seed: 7, NodeEntries: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	long := txn.String
	long.MaxBytes = 200
	table, err := txn.CreateOrderedTable(db, "orders", long, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	errBack := errors.New("roll back")
	err = db.Run(ctx, 2, 4, func(ctx context.Context, id int, w *txn.Worker) error {
		r := rand.New(rand.NewPCG(12, uint64(id)))
		for range keys {
			err := w.Update(ctx, func(tx *txn.Tx) error {
				for range 1 + r.IntN(3) {
					k := treeKey(r.Uint64N(keys))
					if r.IntN(4) == 0 {
						if err := table.Delete(tx, k); err != nil && !errors.Is(err, txn.ErrNotFound) {
							return err
						}
						continue
					}
					if err := table.Put(tx, k, make([]byte, r.IntN(3)*r.IntN(300))); err != nil {
						return err
					}
				}
				if r.IntN(8) == 0 {
					return errBack
				}
				return nil
			})
			if err != nil && !errors.Is(err, errBack) {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, db.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

// treeKey is key n: some are longer than a line.
func treeKey(n uint64) string { return fmt.Sprintf("%06d", 10*n) + strings.Repeat("k", int(n%5/4)*90) }

// arbor is where the nodes of table 1 are in a database that is closed.
type arbor struct {
	anatomy
	root   layout.Addr
	nodes  layout.Class
	levels [][]layout.Addr // from the leaves on, each from left to right
}

// prune finds out what is where.
func prune(t testing.TB, dir string) *arbor {
	t.Helper()
	db, err := embedded.Open(embedded.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	m := &arbor{anatomy: anatomy{t: t, dir: dir, l: db.Space().Layout(), v: db.Space().View()}}
	m.root, m.nodes = m.l.Tables[0].Root, m.l.Tables[0].Nodes
	root, err := blink.DecodeRoot(record.Image(m.get(m.root, 0, 64)).Value())
	if err != nil {
		t.Fatal(err)
	}
	m.levels = make([][]layout.Addr, root.Level+1)
	for level, first := root.Level, root.Addr; level >= 0; level-- {
		for a := first; a != 0; a = m.node(a).Right() {
			m.levels[level] = append(m.levels[level], a)
		}
		first = m.node(first).Addr(0)
	}
	return m
}

// node is the node at a, as the primary has it.
func (m *arbor) node(a layout.Addr) blink.Node {
	m.t.Helper()
	n, err := blink.Decode(record.Image(m.get(a, 0, int(m.nodes.Size()))).Value())
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

// change writes another value of a node to all copies, if it is that of a sound node.
func (m *arbor) change(a layout.Addr, value []byte) bool {
	n, err := blink.Decode(value)
	if err != nil || n.Check(m.geometry()) != nil {
		return false
	}
	img := make(record.Image, m.nodes.Size())
	size := img.Put(a, record.MakeTxID(1, 1), record.Node, 1, m.nodes, 0, nil, value)
	for k := range m.v.Copies(a) {
		m.put(a, k, img[:size])
	}
	return true
}

func (m *arbor) geometry() blink.Geometry { return blink.Geometry{Class: m.nodes, MaxKey: 200} }

// apply changes entries of a node.
func (m *arbor) apply(a layout.Addr, changes ...blink.Change) {
	m.t.Helper()
	var b blink.Builder
	if n, err := b.Apply(m.geometry(), m.node(a), changes); err != nil || n != 1 {
		m.t.Fatalf("%d images, %v", n, err)
	}
	if !m.change(a, b.AppendImage(nil, 0, 0)) {
		m.t.Fatal("no node")
	}
}

// row is entry i of the leaf number l.
func (m *arbor) row(l, i int) (leaf layout.Addr, key []byte, block layout.Addr, class layout.Class) {
	leaf = m.levels[0][l]
	n := m.node(leaf)
	return leaf, n.AppendKey(nil, i), n.Addr(i), n.Class(i)
}

// liveRow is the first entry of leaf number l that leads to a live record, or of a leaf behind it.
func (m *arbor) liveRow(l int) (leaf layout.Addr, key []byte, block layout.Addr, class layout.Class) {
	for ; ; l++ {
		for i := range m.node(m.levels[0][l]).Count() {
			leaf, key, block, class = m.row(l, i)
			if record.Image(m.get(block, 0, 64)).Meta().State() == record.Live {
				return leaf, key, block, class
			}
		}
	}
}

// unused is a free block of a class.
func (m *arbor) unused(class layout.Class) layout.Addr {
	for id := range m.l.Segments {
		if s := &m.l.Segments[id]; s.Kind == layout.KindBlocks && s.Class == class {
			for off := uint32(0); off+class.Size() <= m.l.SegmentSize; off += class.Size() {
				a := layout.MakeAddr(layout.SegmentID(id), off)
				if record.Image(m.get(a, 0, 64)).Meta().State() == record.Free {
					return a
				}
			}
		}
	}
	m.t.Fatal("no block is free")
	return 0
}

// free makes a block free on a copy.
func (m *arbor) freeBlock(a layout.Addr, class layout.Class, k int) {
	img := make(record.Image, record.LineSize)
	img.PutFree(a, record.MakeTxID(1, 1), 1, class, 1)
	m.put(a, k, img)
}

// treeDamage is one kind of damage of an ordered table. do returns what is to be found; says is
// what one of the findings says.
type treeDamage struct {
	name    string
	repairs bool // a repair brings back every byte
	clean   bool // nothing is left to do after a repair
	says    string
	do      func(m *arbor) []want
}

var treeDamages = []treeDamage{
	{"a leaf", true, true, "a node of level 0 of the index of table 1 \"orders\"", func(m *arbor) []want {
		a := m.levels[0][2]
		m.flip(a+record.LineSize+20, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"an inner node", true, true, "a node of level 1 of the index of table 1", func(m *arbor) []want {
		a := m.levels[1][0]
		m.flip(a+record.LineSize+20, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a leaf wiped", true, true, "a node of level 0", func(m *arbor) []want {
		a := m.levels[0][3]
		m.put(a, 0, make([]byte, 64))
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a leaf of a backup", true, true, "", func(m *arbor) []want {
		a := m.levels[0][2]
		m.flip(a+record.LineSize+20, 1)
		return []want{{verify.KindReplica, a, 1}}
	}},
	{"a leaf on all copies", false, false, "a node of level 0 of the index of table 1", func(m *arbor) []want {
		a := m.levels[0][2]
		for k := range m.v.Copies(a) {
			m.flip(a+record.LineSize+20, k)
		}
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"an inner node on all copies", false, false, "a node of level 1 of the index of table 1", func(m *arbor) []want {
		a := m.levels[1][0]
		for k := range m.v.Copies(a) {
			m.flip(a+record.LineSize+20, k)
		}
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"the root's block", true, true, "the root's block of the index of table 1", func(m *arbor) []want {
		m.flip(m.root+record.KeyOff, 0)
		return []want{{verify.KindRecord, m.root, 0}}
	}},
	{"the root's block on all copies", false, false, "the root's block of the index of table 1", func(m *arbor) []want {
		for k := range m.v.Copies(m.root) {
			m.flip(m.root+record.KeyOff, k)
		}
		return []want{{verify.KindRecord, m.root, 0}}
	}},
	{"the root's block leads to a leaf", false, false, "its level is 0", func(m *arbor) []want {
		img := make(record.Image, record.LineSize)
		root := blink.Root{Addr: m.levels[0][0], Level: len(m.levels) - 1}
		img.Put(m.root, record.MakeTxID(1, 1), record.Node, 1, 0, 0, nil, root.Append(nil))
		for k := range m.v.Copies(m.root) {
			m.put(m.root, k, img)
		}
		return []want{{verify.KindNode, m.levels[0][0], 0}}
	}},
	{"a node is of another table", false, false, "no node of this table", func(m *arbor) []want {
		a := m.levels[0][2]
		img := make(record.Image, m.nodes.Size())
		_, key, _, _ := m.liveRow(0)
		n := img.Put(a, record.MakeTxID(1, 1), record.Live, 1, m.nodes, 0, key, nil)
		for k := range m.v.Copies(a) {
			m.put(a, k, img[:n])
		}
		return []want{{verify.KindNode, a, 0}}
	}},
	{"a gap between two leaves", false, false, "and the node before it ends at", func(m *arbor) []want {
		// As if a split had written its left part, and the right link still led to the node behind
		// both.
		a, g := m.levels[0][1], m.geometry()
		g.MaxEntries = m.node(a).Count()
		_, key, block, class := m.row(1, g.MaxEntries-1)
		var b blink.Builder
		if n, err := b.Apply(g, m.node(a),
			[]blink.Change{{Op: blink.Insert, Key: append(key, 0), Addr: block, Class: class}}); err != nil || n != 2 {
			m.t.Fatalf("%d images, %v", n, err)
		}
		if !m.change(a, b.AppendImage(nil, 0, m.levels[0][2])) {
			m.t.Fatal("no node")
		}
		return []want{{verify.KindNode, m.levels[0][2], 0}}
	}},
	{"a separator", false, false, "and it begins at", func(m *arbor) []want {
		a := m.levels[1][0]
		n := m.node(a)
		key := n.AppendKey(nil, 1)
		m.apply(a, blink.Change{Op: blink.Delete, Key: key},
			blink.Change{Op: blink.Insert, Key: append(bytes.Clone(key), 0), Addr: n.Addr(1)})
		return []want{{verify.KindNode, n.Addr(1), 0}}
	}},
	{"a right link that skips a leaf", false, false, "the node before it ends at", func(m *arbor) []want {
		a := m.levels[0][1]
		value := bytes.Clone(m.node(a).Bytes())
		copy(value[12:18], binary.LittleEndian.AppendUint64(nil, uint64(m.levels[0][3])))
		m.change(a, value)
		return []want{{verify.KindNode, m.levels[0][3], 0}}
	}},
	{"a separator that is not posted", false, true, "", func(m *arbor) []want {
		n := m.node(m.levels[1][0])
		m.apply(m.levels[1][0], blink.Change{Op: blink.Delete, Key: n.AppendKey(nil, 1)})
		return nil
	}},
	{"an entry to a free block", false, false, "the block is free", func(m *arbor) []want {
		leaf, key, block, class := m.liveRow(2)
		m.apply(leaf, blink.Change{Op: blink.Replace, Key: key, Addr: m.unused(class), Class: class})
		return []want{{verify.KindDangling, leaf, 0}, {verify.KindOrphan, block, 0}}
	}},
	{"a row that was made free", false, false, "the block is free", func(m *arbor) []want {
		leaf, _, block, class := m.liveRow(2)
		for k := range m.v.Copies(block) {
			m.freeBlock(block, class, k)
		}
		return []want{{verify.KindDangling, leaf, 0}}
	}},
	{"a row that is free on the primary alone", true, true, "", func(m *arbor) []want {
		_, _, block, class := m.liveRow(2)
		m.freeBlock(block, class, 0)
		return []want{{verify.KindRecord, block, 0}}
	}},
	{"an entry to another key's block", false, false, "its block has not that key", func(m *arbor) []want {
		leaf, key, block, class := m.liveRow(2)
		for l := 3; ; l++ {
			if _, _, other, c := m.liveRow(l); c == class {
				m.apply(leaf, blink.Change{Op: blink.Replace, Key: key, Addr: other, Class: c})
				return []want{{verify.KindSlot, leaf, 0}, {verify.KindOrphan, block, 0}}
			}
		}
	}},
	{"an entry to no block", false, false, "no block", func(m *arbor) []want {
		leaf, key, block, class := m.liveRow(2)
		m.apply(leaf, blink.Change{Op: blink.Replace, Key: key, Addr: block, Class: class + 1})
		return []want{{verify.KindSlot, leaf, 0}, {verify.KindOrphan, block, 0}}
	}},
	{"an entry that is lost", false, false, "no node leads to the block", func(m *arbor) []want {
		leaf, key, block, _ := m.liveRow(2)
		m.apply(leaf, blink.Change{Op: blink.Delete, Key: key})
		return []want{{verify.KindOrphan, block, 0}}
	}},
	{"a node to which nothing leads", false, true, "no node leads to the block", func(m *arbor) []want {
		a := m.unused(m.nodes)
		m.change(a, m.node(m.levels[0][1]).Bytes())
		return []want{{verify.KindOrphan, a, 0}}
	}},
	{"a record of a value that is damaged", true, true, "", func(m *arbor) []want {
		_, _, block, _ := m.liveRow(1)
		m.flip(block+record.KeyOff, 0)
		return []want{{verify.KindRecord, block, 0}}
	}},
	{"a lock of the dead on a leaf", false, false, "locked by c1.5", func(m *arbor) []want {
		a := m.levels[0][1]
		m.putWord(a+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1, 5))))
		return []want{{verify.KindLock, a, 0}}
	}},
}

// TestTreeDamageIsFound is TestDamageIsFound of ordered tables.
func TestTreeDamageIsFound(t *testing.T) {
	dir := t.TempDir()
	plantTree(t, dir, variant{blades: 3, backups: 2}, 4000)
	m := prune(t, dir)
	if len(m.levels) < 3 || len(m.levels[0]) < 8 {
		t.Fatalf("%d levels, %d leaves", len(m.levels), len(m.levels[0]))
	}
	whole, _ := check(t, dir, false)
	owed := whole.Tables[0].Unposted // two goroutines plant; one of them may have left a separator unposted
	for _, d := range treeDamages {
		t.Run(d.name, func(t *testing.T) {
			m.t = t
			defer m.heal()
			wants := d.do(m)
			before, found := check(t, dir, false)
			compare(t, wants, found)
			if !slices.ContainsFunc(found, func(f verify.Finding) bool { return strings.Contains(f.What, d.says) }) &&
				len(wants) > 0 {
				t.Errorf("nothing says %q:\n%s", d.says, show(found))
			}
			for _, f := range found {
				if f.Table != 1 || f.Repaired || f.Unfinished {
					t.Errorf("%+v", f)
				}
			}
			if len(wants) == 0 && before.Tables[0].Unposted != owed+1 {
				t.Errorf("%d nodes without a parent, and %d before", before.Tables[0].Unposted, owed)
			}
			sum, found := check(t, dir, true)
			_, again := check(t, dir, false)
			switch {
			case d.repairs && (len(again) > 0 || !m.whole()):
				t.Errorf("after repair, bytes as before: %v;\n%s", m.whole(), show(again))
			case d.clean != sum.Clean() || d.clean != (len(again) == 0):
				t.Errorf("clean is %v; after repair:\n%s", sum.Clean(), show(again))
			case sum.Repaired > 0 && !d.clean:
				t.Errorf("repaired what no copy proves:\n%s", show(found))
			}
		})
	}
	if _, found := check(t, dir, false); len(found) > 0 {
		t.Errorf("the tests left damage:\n%s", show(found))
	}
}

// TestHealthyTreesAreClean checks ordered tables after churn, and again after they were opened and
// changed once more.
func TestHealthyTreesAreClean(t *testing.T) {
	for _, v := range []variant{{blades: 1}, {blades: 2, backups: 1}, {blades: 4, backups: 2}} {
		t.Run(fmt.Sprintf("blades=%d,backups=%d", v.blades, v.backups), func(t *testing.T) {
			dir := t.TempDir()
			for round := range 2 {
				plantTree(t, dir, v, 800)
				sum, found := check(t, dir, false)
				if len(found) > 0 {
					t.Fatalf("after round %d:\n%s", round, show(found))
				}
				x := sum.Tables[0]
				m := prune(t, dir)
				nodes := 1
				for _, l := range m.levels {
					nodes += len(l)
				}
				if x.Levels != len(m.levels) || x.Leaves != uint64(len(m.levels[0])) || x.Nodes != uint64(nodes) ||
					sum.Nodes != x.Nodes ||
					x.Records == 0 || x.Records != sum.Live || x.Tombstones != sum.Absent ||
					x.Slots != x.Records+x.Tombstones || x.Unwalked || !sum.Clean() {
					t.Errorf("%+v", sum)
				}
			}
		})
	}
}

// TestUnfinishedTree: the blocks of a table whose creation was stopped before the catalog says
// where its root is are leaks, which a repair gives back.
func TestUnfinishedTree(t *testing.T) {
	dir := t.TempDir()
	plantTree(t, dir, variant{blades: 2, backups: 1}, 100)
	db, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	table, err := db.Space().CreateNodesTable("stopped", nil, 12, 100, nil)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	m := prune(t, dir)
	a := m.unused(m.nodes)
	img := make(record.Image, m.nodes.Size())
	n := img.Put(a, record.MakeTxID(1, 1), record.Node, table.ID, m.nodes, 0, nil, blink.AppendLeaf(nil))
	for k := range m.v.Copies(a) {
		m.put(a, k, img[:n])
	}
	_, found := check(t, dir, false)
	compare(t, []want{{verify.KindOrphan, a, 0}}, found)
	if sum, found := check(t, dir, true); !sum.Clean() || sum.Repaired != 1 {
		t.Error(show(found))
	}
	if sum, found := check(t, dir, false); len(found) > 0 || len(sum.Tables) != 1 {
		t.Errorf("%+v\n%s", sum, show(found))
	}
}

// TestDumpNode shows every node, by its address and by a key, and records of ordered tables by
// their keys; and says what is in the way where a node is damaged, or is none.
func TestDumpNode(t *testing.T) {
	dir := t.TempDir()
	plantTree(t, dir, variant{blades: 2, backups: 1}, 1500)
	m := prune(t, dir)
	d, _, done := attach(t, dir, false)
	defer done()
	table, err := d.Table("orders")
	if err != nil {
		t.Fatal(err)
	}
	shown := func(show func(p *verify.Dump) error) string {
		t.Helper()
		var b strings.Builder
		if err := show(d.NewDump(&b)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if s := shown(func(p *verify.Dump) error { return p.Node(m.root) }); !strings.Contains(s,
		fmt.Sprintf("level %d at %v", len(m.levels)-1, m.levels[len(m.levels)-1][0])) {
		t.Error(s)
	}
	for level, nodes := range m.levels {
		for _, a := range nodes {
			s := shown(func(p *verify.Dump) error { return p.Node(a + 70) })
			n := m.node(a)
			if strings.Count(s, "\n") != 3+n.Count() ||
				!strings.Contains(s, fmt.Sprintf("node of level %d of the index of table 1 \"orders\"", level)) ||
				!strings.Contains(s, ": sound") || n.Count() > 0 && !strings.Contains(s, n.Addr(n.Count()-1).String()) {
				t.Fatal(s)
			}
		}
	}
	leaf, key, block, _ := m.liveRow(4)
	if s := shown(func(p *verify.Dump) error { return p.NodeOf(table, key) }); !strings.HasPrefix(s, leaf.String()) ||
		!strings.Contains(s, fmt.Sprintf("%q", key[:6])[:7]) {
		t.Error(s)
	}
	if s := shown(func(p *verify.Dump) error { return p.Key(table, key) }); !strings.Contains(s,
		fmt.Sprintf("the leaf at %v points to %v", leaf, block)) {
		t.Error(s)
	}
	if p := d.NewDump(&strings.Builder{}); !errors.Is(p.Key(table, []byte("none")), verify.ErrNoSuch) ||
		!errors.Is(p.Node(block), verify.ErrNoSuch) {
		t.Error("a key or a node that is none is shown")
	}
	defer m.heal()
	m.flip(leaf+record.LineSize+20, 0) // a backup tells
	if s := shown(func(p *verify.Dump) error { return p.Key(table, key) }); !strings.Contains(s, block.String()) {
		t.Error(s)
	}
	m.flip(leaf+record.LineSize+20, 1)
	for _, err := range []error{
		d.NewDump(&strings.Builder{}).Key(table, key), d.NewDump(&strings.Builder{}).NodeOf(table, key),
	} {
		if !errors.Is(err, verify.ErrNoSuch) || !strings.Contains(err.Error(), leaf.String()) {
			t.Error(err)
		}
	}
}
