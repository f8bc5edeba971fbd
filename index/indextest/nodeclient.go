package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// NodeSubject is an index of nodes under test. Its nodes should be as small as possible, so that
// they split and merge all the time.
type NodeSubject struct {
	Name string
	// Empty returns the values of the blocks of an empty index: of its only node, if that is at a,
	// and of its root.
	Empty func(a layout.Addr) (node, root []byte)
	// Open makes a handle on an index.
	Open func(m *Memory, table uint16, root layout.Addr) (index.Ranged, error)
	// Verify checks an index at rest, whose nodes a function reads, and counts its entries.
	Verify func(root []byte, read func(layout.Addr) ([]byte, error)) (entries int, err error)
}

// NodeClient does single-key operations on a table as a transaction does: it reads the nodes to
// which the index leads, locks those that it changes, decides what is to be written, writes it to
// all copies, and releases the locks. It belongs to one coroutine.
type NodeClient struct {
	Index index.Ranged
	C     *rdma.Coro

	s     *NodeSubject
	m     *Memory
	root  layout.Addr
	ed    index.Editor
	batch rdma.Batch
	buf   uint32
	id    uint32
	seq   uint64

	tx       record.TxID
	locks    []lockedNode
	evidence []lockedNode  // of the last lookup
	decided  bool          // what a commit writes, and the locks are not all released
	log      []image       // of that, if it is not done; as a log record says it
	past     *[]index.Node // all nodes that clients have published, if a test wants to know
}

// lockedNode is a node at the version at which it was read.
type lockedNode struct {
	index.Node
	version record.TxID
}

// image is what a block becomes by a commit.
type image struct {
	addr    layout.Addr
	class   layout.Class
	state   record.State
	private bool // nothing led to the block before
	key     []byte
	value   []byte
}

// startNodes makes an index and a client of it.
func startNodes(tb testing.TB, s NodeSubject, o MemoryOptions) (*Memory, *NodeClient) {
	tb.Helper()
	m := NewMemory(tb, o)
	k := &NodeClient{s: &s, m: m}
	c := m.Thread(tb).Plain()
	ix, err := s.Open(m, table, 0)
	if err != nil {
		tb.Fatal(err)
	}
	if err := k.open(c, ix); err != nil {
		tb.Fatal(err)
	}
	var at [2]layout.Addr
	for i, class := range []layout.Class{ix.NodeClass(), 0} {
		if at[i], err = m.AllocBlock(c, class); err != nil {
			tb.Fatal(err)
		}
	}
	node, root := s.Empty(at[0])
	k.root = at[1]
	k.past = &[]index.Node{{Addr: k.root, Body: root}}
	k.begin()
	k.log = []image{
		{addr: at[0], class: ix.NodeClass(), state: record.Node, private: true, value: node},
		{addr: at[1], state: record.Node, private: true, value: root},
	}
	if err := k.finish(); err != nil {
		tb.Fatal(err)
	}
	return m, k.another(tb, c)
}

// another makes a client on a coroutine, with a handle of its own.
func (k *NodeClient) another(tb testing.TB, c *rdma.Coro) *NodeClient {
	tb.Helper()
	x := &NodeClient{s: k.s, m: k.m, root: k.root, past: k.past}
	ix, err := k.s.Open(k.m, table, k.root)
	if err == nil {
		err = x.open(c, ix)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

func (k *NodeClient) open(c *rdma.Coro, ix index.Ranged) (err error) {
	k.Index, k.C, k.ed, k.id = ix, c, ix.NewEditor(), k.m.clients.Add(1)
	k.buf, err = c.Thread().Alloc(maxBlock)
	return err
}

// Close gives back the client's buffer.
func (k *NodeClient) Close() { k.C.Thread().Free(k.buf, maxBlock) }

func (k *NodeClient) coro() *rdma.Coro { return k.C }

func (k *NodeClient) begin() {
	k.seq++
	k.tx, k.locks, k.log, k.decided = record.MakeTxID(k.id, k.seq), k.locks[:0], nil, false
}

// maxTorn is how often a block is read again that is being written.
const maxTorn = 50

// read reads a block whose image is whole. It is the caller's.
func (k *NodeClient) read(a layout.Addr, class layout.Class) (record.Image, error) {
	v := k.m.View()
	if !v.Valid(a) {
		return nil, fmt.Errorf("block %v is in no segment", a)
	}
	for range maxTorn {
		k.batch.Reset()
		k.batch.Read(v.At(a, 0), k.buf, class.Size())
		if err := k.C.Do(&k.batch); err != nil {
			return nil, err
		}
		img := record.Image(k.C.Thread().Bytes(k.buf, class.Size()))
		if _, err := img.Check(a); err == nil {
			return slices.Clone(img), nil
		}
		k.C.Yield()
	}
	return nil, ErrLocked // its writer is slow
}

// node reads what may be a node.
func (k *NodeClient) node(a layout.Addr) (n lockedNode, guard record.Guard, err error) {
	class := k.Index.NodeClass()
	if a == k.root {
		class = 0
	}
	img, err := k.read(a, class)
	if err != nil {
		return n, 0, err
	}
	return lockedNode{index.Node{Addr: a, Body: index.NodeIn(img, a, table)}, img.Version()}, img.Guard(), nil
}

// seek reads the node that is responsible for a place.
func (k *NodeClient) seek(p index.Place) (n lockedNode, guard record.Guard, err error) {
	hop := k.Index.Find(p)
	for hops := range 1000 {
		if n, guard, err = k.node(hop.Addr); err != nil {
			return n, guard, err
		}
		next, step, err := k.Index.Follow(p, n.Node, hops)
		if err != nil || step == index.Here {
			return n, guard, err
		}
		hop = next
	}
	return n, guard, fmt.Errorf("the search for %+v does not end; the last block was %v", p, hop.Addr)
}

// lock locks a node at the version that was read.
func (k *NodeClient) lock(n lockedNode, guard record.Guard) error {
	if guard == record.HeldBy(k.tx) {
		return nil
	}
	k.locks = append(k.locks, n)
	if prior, err := k.swap(n.Addr, record.FreeAt(n.version), record.HeldBy(k.tx)); err != nil {
		return err
	} else if prior != record.FreeAt(n.version) {
		k.locks = k.locks[:len(k.locks)-1]
		return ErrLocked
	}
	return nil
}

func (k *NodeClient) swap(a layout.Addr, from, to record.Guard) (record.Guard, error) {
	g := k.m.View().At(a, 0)
	g.Off += record.GuardOff
	k.batch.Reset()
	i := k.batch.CAS(g, uint64(from), uint64(to))
	if err := k.C.Do(&k.batch); err != nil {
		return 0, err
	}
	return record.Guard(k.batch.Result(i)), nil
}

// unlock releases what the client has locked and not written. It may be called by another
// client, k being stopped.
func (k *NodeClient) unlock(by *NodeClient) error {
	for _, n := range k.locks {
		if _, err := by.swap(n.Addr, record.HeldBy(k.tx), record.FreeAt(n.version)); err != nil {
			return err
		}
	}
	k.locks = k.locks[:0]
	return nil
}

// commit makes a plan with the nodes that it needs, and then what it says. rows are written, too.
func (k *NodeClient) commit(rows []image, plan func(have []index.Node) ([]index.Edit, []index.Need, error)) (n int,
	err error) {
	var have []index.Node
	var edits []index.Edit
	for {
		var needs []index.Need
		if edits, needs, err = plan(have); err != nil || len(needs) == 0 {
			break
		}
		for _, need := range needs {
			var x lockedNode
			var guard record.Guard
			if need.At == 0 {
				x, guard, err = k.seek(need.Place)
			} else {
				x, guard, err = k.node(need.At)
			}
			if err == nil && x.Body != nil { // a node that only the plan depends on is locked, too
				err = k.lock(x, guard)
			}
			if err != nil {
				return 0, errors.Join(err, k.unlock(k))
			}
			have = append(have, x.Node)
		}
	}
	if err != nil {
		return 0, errors.Join(err, k.unlock(k))
	}
	log, at := rows, make([]layout.Addr, len(edits))
	for i, x := range edits {
		if at[i] = x.At; x.At == 0 {
			if at[i], err = k.m.AllocBlock(k.C, x.Class); err != nil {
				return 0, errors.Join(err, k.unlock(k))
			}
		}
	}
	for i, x := range edits {
		y := image{addr: at[i], class: k.Index.NodeClass(), state: record.Node, private: x.At == 0}
		if at[i] == k.root {
			y.class = 0
		}
		if y.state = record.Node; x.Free {
			y.state = record.Free
		} else {
			y.value = k.ed.Append(nil, i, at)
		}
		log = append(log, y)
	}
	posts := k.ed.Posts(nil, at)
	k.log, k.decided = log, true
	if err := k.finish(); err != nil {
		return 0, err
	}
	if err := k.unlock(k); err != nil {
		return 0, err
	}
	k.decided = false
	for _, y := range log {
		if y.state == record.Node {
			x := index.Node{Addr: y.addr, Body: y.value}
			if k.past != nil {
				*k.past = append(*k.past, x)
			}
			k.Index.Published(x)
		}
	}
	for _, p := range posts {
		k.Index.Owe(p)
	}
	return len(edits), nil
}

// finish writes what was decided.
func (k *NodeClient) finish() error { return k.redo(k) }

// redo writes what a client has decided, which may be stopped, and frees blocks.
func (k *NodeClient) redo(by *NodeClient) error {
	begun := false // a node was released: all that is private is in place
	for _, y := range k.log {
		if by != k && !y.private && y.state == record.Node {
			_, guard, err := by.node(y.addr)
			if err != nil {
				return err
			}
			begun = begun || guard != record.HeldBy(k.tx)
		}
	}
	for _, pass := range []func(y image) bool{
		func(y image) bool { return y.private && !begun },
		func(y image) bool { return !y.private && y.state == record.Node },
		func(y image) bool { return y.state == record.Free },
	} {
		for _, y := range k.log {
			if !pass(y) {
				continue
			}
			if by != k && !y.private && y.state == record.Node {
				if _, guard, err := by.node(y.addr); err != nil || guard != record.HeldBy(k.tx) {
					if err != nil {
						return err
					}
					continue
				}
			}
			if err := by.write(k.tx, y); err != nil {
				return err
			}
		}
	}
	free := k.log
	k.log = nil
	for _, y := range free {
		if y.state == record.Free {
			k.m.FreeBlock(y.addr, y.class)
		}
	}
	return nil
}

// write writes a block to its backups, and then to its primary, whose guard comes last.
func (k *NodeClient) write(tx record.TxID, y image) error {
	v := k.m.View()
	img := record.Image(k.C.Thread().Bytes(k.buf, maxBlock))
	n := uint32(img.Put(y.addr, tx, y.state, table, y.class, 0, y.key, y.value))
	for copies := v.Copies(y.addr) - 1; copies > 0; copies-- {
		k.batch.Reset()
		k.batch.Write(v.At(y.addr, copies), k.buf, n)
		if err := k.C.Do(&k.batch); err != nil {
			return err
		}
	}
	for _, g := range []record.Guard{record.HeldBy(tx), record.FreeAt(tx)} {
		img.SetGuard(g)
		k.batch.Reset()
		if g.Held() {
			k.batch.Write(v.At(y.addr, 0), k.buf, n)
		} else {
			at := v.At(y.addr, 0)
			at.Off += record.GuardOff
			k.batch.Write(at, k.buf+record.GuardOff, 8)
		}
		if err := k.C.Do(&k.batch); err != nil {
			return err
		}
		if err := k.C.Fence(rdma.FenceThread, 0, &k.batch); err != nil {
			return err
		}
	}
	return nil
}

// Find looks for the block of a key; 0: it has none.
func (k *NodeClient) Find(key []byte) (x index.Candidate, value []byte, err error) {
	for range maxTorn {
		n, guard, err := k.seek(index.PlaceOf(key))
		if err != nil {
			return x, nil, err
		}
		k.evidence = append(k.evidence[:0], n)
		list := k.Index.Candidates(nil, key, []index.Node{n.Node})
		for _, x := range list {
			img, err := k.read(x.Addr, x.Class)
			if err != nil {
				return x, nil, err
			}
			if img.Meta().State() == record.Live && bytes.Equal(img.Key(), key) {
				return x, img.Value(), nil
			}
		}
		if len(list) == 0 && !guard.Held() {
			return index.Candidate{}, nil, nil
		}
		k.C.Yield() // the node is locked, or has changed since
	}
	return x, nil, ErrLocked
}

// Unchanged reports whether the evidence of the last lookup holds still.
func (k *NodeClient) Unchanged() (bool, error) {
	for _, n := range k.evidence {
		g := k.m.View().At(n.Addr, 0)
		g.Off += record.GuardOff
		k.batch.Reset()
		k.batch.Read(g, k.buf, 8)
		if err := k.C.Do(&k.batch); err != nil {
			return false, err
		}
		if record.Guard(k.C.Thread().Word(k.buf)) != record.FreeAt(n.version) {
			return false, nil
		}
	}
	return true, nil
}

// Get returns a key's value, nil if there is none.
func (k *NodeClient) Get(key []byte) ([]byte, error) {
	_, value, err := k.Find(key)
	return value, err
}

func (k *NodeClient) absent(key []byte) (bool, error) {
	x, _, err := k.Find(key)
	return x.Addr == 0, err
}

// change changes the block of a key: old becomes free, and the key gets a block with a value,
// if that is not nil.
func (k *NodeClient) change(op index.ChangeOp, key []byte, old index.Candidate, value []byte) (layout.Addr, error) {
	k.begin()
	c := index.Change{Op: op, Key: key, Old: old.Addr}
	var rows []image
	if value != nil {
		class, _ := record.ClassFor(len(key), len(value))
		a, err := k.m.AllocBlock(k.C, class)
		if err != nil {
			return 0, err
		}
		c.Addr, c.Class = a, class
		rows = append(rows, image{addr: a, class: class, state: record.Live, private: true, key: key, value: value})
	}
	if old.Addr != 0 {
		rows = append(rows, image{addr: old.Addr, class: old.Class, state: record.Free})
	}
	_, err := k.commit(rows, func(have []index.Node) ([]index.Edit, []index.Need, error) {
		// When the key's node is locked, what was looked up must still be so.
		for _, n := range have {
			list := k.Index.Candidates(nil, key, []index.Node{n})
			if (len(list) > 0) != (old.Addr != 0) || len(list) > 0 && list[0].Addr != old.Addr {
				return nil, nil, ErrLocked
			}
		}
		return k.ed.Plan(have, []index.Change{c})
	})
	if errors.Is(err, ErrLocked) && value != nil {
		k.m.FreeBlock(c.Addr, c.Class)
	}
	return c.Addr, err
}

// Insert makes a record, or returns ErrExists, or ErrLocked.
func (k *NodeClient) Insert(key, value []byte) (layout.Addr, error) {
	x, _, err := k.Find(key)
	if err == nil && x.Addr != 0 {
		err = ErrExists
	}
	if err != nil {
		return 0, err
	}
	return k.change(index.Link, key, x, value)
}

// Delete removes a record.
func (k *NodeClient) Delete(key []byte) error {
	x, _, err := k.Find(key)
	if err == nil && x.Addr == 0 {
		err = ErrNotFound
	}
	if err == nil {
		_, err = k.change(index.Unlink, key, x, nil)
	}
	return err
}

// Move puts a record into another block.
func (k *NodeClient) Move(key []byte) error {
	x, value, err := k.Find(key)
	if err == nil && x.Addr == 0 {
		err = ErrNotFound
	}
	if err == nil {
		_, err = k.change(index.Relink, key, x, value)
	}
	return err
}

// Settle does one thing that is owed to the index. ok is false if nothing is.
func (k *NodeClient) Settle() (ok bool, err error) {
	p, ok := k.Index.Owed()
	if !ok {
		return false, nil
	}
	k.begin()
	_, err = k.commit(nil, func(have []index.Node) ([]index.Edit, []index.Need, error) { return k.ed.Settle(have, p) })
	if errors.Is(err, ErrLocked) {
		p.Tries++
		k.Index.Owe(p)
	}
	return true, err
}

// settleAll does all that is owed, when nobody else is at work.
func (k *NodeClient) settleAll(tb testing.TB) {
	tb.Helper()
	for ok := true; ok; {
		var err error
		if ok, err = k.Settle(); err != nil {
			tb.Fatal(err)
		}
	}
}

// verify checks the index, when nobody is at work: its nodes, how many entries they have, and that
// all copies are alike.
func (k *NodeClient) verify(tb testing.TB, entries int) {
	tb.Helper()
	read := func(a layout.Addr) ([]byte, error) {
		n, guard, err := k.node(a)
		if err != nil {
			return nil, err
		}
		if n.Body == nil || guard != record.FreeAt(n.version) {
			return nil, fmt.Errorf("block %v is no node at rest: guard %v, version %v", a, guard, n.version)
		}
		size := uint32(record.Size(0, len(n.Body)))
		copies := k.m.Copies(tb, k.C.Thread(), a, size)
		for i, c := range copies {
			if !bytes.Equal(c, copies[0]) {
				return nil, fmt.Errorf("copy %d of block %v is another one", i, a)
			}
		}
		return n.Body, nil
	}
	root, err := read(k.root)
	if err != nil {
		tb.Fatal(err)
	}
	if n, err := k.s.Verify(root, read); err != nil || n != entries {
		tb.Fatalf("%d entries, should be %d: %v", n, entries, err)
	}
}
