package main

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index/blink"
	"txnode/memory"
	"txnode/memory/record"
)

var (
	errExists = errors.New("orderedspike: the key exists")
	errHeld   = errors.New("orderedspike: another transaction holds the lock")
	errNoRoot = errors.New("orderedspike: the tree has no such level yet")
)

// node interprets a block that was read. ok is false if it is torn, or no node of the level.
func (k *client) node(a memory.Addr, local uint32, level int) (n blink.Node, im record.Image, ok bool) {
	im = k.c.Thread().Bytes(local, k.w.geometry.Class.Size())
	if _, err := im.Check(a); err != nil || im.Meta().Table() != nodeTable {
		return n, im, false
	}
	n, err := blink.Decode(im.Value())
	return n, im, err == nil && n.Level() == level
}

// readRoot reads the root record.
func (k *client) readRoot() error {
	for {
		b := &k.batch
		b.Reset()
		b.Read(k.w.at(rootAddr, 0), k.buf, record.LineSize)
		if err := k.c.Do(b); err != nil {
			return err
		}
		im := record.Image(k.c.Thread().Bytes(k.buf, record.LineSize))
		if _, err := im.Check(rootAddr); err != nil {
			continue // it is being written
		}
		r, err := blink.DecodeRoot(im.Value())
		if err == nil {
			k.w.root = r
		}
		return err
	}
}

// search returns the node of a level that should have a key, as far as cached inner nodes know, and its
// parent. What is not cached is read, one round trip each.
func (k *client) search(key []byte, level int) (a, parent memory.Addr, err error) {
	w := k.w
	if w.root.Level < level {
		if err := k.readRoot(); err != nil {
			return 0, 0, err
		}
		if w.root.Level < level {
			return 0, 0, errNoRoot
		}
	}
	a = w.root.Addr
	for l := w.root.Level; l > level; {
		n, cached := w.cache[a]
		if !cached {
			if n, err = k.readInner(a, l); err != nil {
				return 0, 0, err
			}
		}
		switch n.Cover(key) {
		case blink.Here:
			parent = a
			a = n.Addr(n.Child(key))
			l--
		case blink.GoRight:
			w.stats.right++
			k.drop(a, parent)
			a = n.Right()
		default:
			w.stats.stale++
			k.drop(a, parent)
			if err := k.readRoot(); err != nil {
				return 0, 0, err
			}
			a, parent, l = w.root.Addr, 0, w.root.Level
		}
	}
	return a, parent, nil
}

// drop forgets a stale node and the parent that has led there, unless a separator is on its way to it.
func (k *client) drop(a, parent memory.Addr) {
	if k.w.posting[a] {
		return
	}
	delete(k.w.cache, a)
	delete(k.w.cache, parent)
}

func (k *client) readInner(a memory.Addr, level int) (blink.Node, error) {
	for {
		b := &k.batch
		b.Reset()
		b.Read(k.w.at(a, 0), k.buf, k.w.geometry.Class.Size())
		if err := k.c.Do(b); err != nil {
			return blink.Node{}, err
		}
		if n, _, ok := k.node(a, k.buf, level); ok {
			return k.remember(a, n.Bytes())
		}
	}
}

// remember caches a copy of an inner node.
func (k *client) remember(a memory.Addr, b []byte) (blink.Node, error) {
	n, err := blink.Decode(bytes.Clone(b))
	if err == nil {
		k.w.cache[a] = n
	}
	return n, err
}

// found is a node that is responsible for a key, with the lock as it was.
type found struct {
	addr    memory.Addr
	node    blink.Node
	version record.TxID
	prior   record.Guard // before this transaction's lock
}

// lockNode locks the node of a level that has a key, and reads it, from the address a on. errHeld:
// another transaction holds it.
func (k *client) lockNode(key []byte, level int, a, parent memory.Addr) (found, error) {
	w := k.w
	turn := k.enqueue(a, level)
	for tries := 0; ; tries++ {
		b := &k.batch
		b.Reset()
		i := b.LockRead(w.at(a, 0), record.GuardOff, 0, uint64(record.HeldBy(k.tx)), k.masks, k.buf, w.geometry.Class.Size())
		if err := k.c.Do(b); err != nil {
			return found{}, err
		}
		prior := record.Guard(b.Result(i))
		n, im, ok := k.node(a, k.buf, level)
		w.work(w.readNs)
		place := blink.Here
		if ok {
			place = n.Cover(key)
		}
		if !ok && !prior.Held() {
			return found{}, fmt.Errorf("orderedspike: no node of level %d at %v", level, a)
		}
		switch {
		case place == blink.Here && prior.Held() && tries < w.tries(turn):
			w.stats.again++
			continue
		case place == blink.Here && prior.Held():
			k.dequeue(turn)
			return found{}, errHeld
		case place == blink.Here:
			return found{a, n, im.Version(), prior}, nil
		}
		next := n.Right() // before the buffer is used again
		if !prior.Held() {
			k.release(a, prior)
		}
		k.dequeue(turn)
		if place == blink.GoRight {
			w.stats.right++
			k.drop(a, parent)
			a = next
		} else {
			w.stats.stale++
			k.drop(a, parent)
			var err error
			if a, parent, err = k.search(key, level); err != nil {
				return found{}, err
			}
		}
		turn, tries = k.enqueue(a, level), 0
	}
}

// tries is how often a lock that is held is asked for again at once. To a coroutine that is the next of its process
// the release of the one before is on its way.
func (w *world) tries(turn *queue) int {
	if turn != nil {
		return max(w.patience, 8)
	}
	return w.patience
}

// readNode reads the leaf that has a key.
func (k *client) readNode(key []byte, a, parent memory.Addr) (found, error) {
	w := k.w
	for {
		b := &k.batch
		b.Reset()
		b.Read(w.at(a, 0), k.buf, w.geometry.Class.Size())
		if err := k.c.Do(b); err != nil {
			return found{}, err
		}
		n, im, ok := k.node(a, k.buf, 0)
		w.work(w.readNs)
		if !ok {
			continue // it is being written
		}
		switch n.Cover(key) {
		case blink.Here:
			return found{a, n, im.Version(), im.Guard()}, nil
		case blink.GoRight:
			w.stats.right++
			k.drop(a, parent)
			a = n.Right()
		default:
			w.stats.stale++
			k.drop(a, parent)
			var err error
			if a, parent, err = k.search(key, 0); err != nil {
				return found{}, err
			}
		}
	}
}

// lockAt locks a leaf at the version that was read.
func (k *client) lockAt(x found) (ok bool, err error) {
	to := k.w.at(x.addr, 0)
	to.Off += record.GuardOff
	b := &k.batch
	b.Reset()
	free := record.FreeAt(x.version)
	i := b.CAS(to, uint64(free), uint64(record.HeldBy(k.tx)))
	if err := k.c.Do(b); err != nil {
		return false, err
	}
	prior := record.Guard(b.Result(i))
	if prior.Held() {
		return false, errHeld
	}
	return prior == free, nil
}

// enqueue waits until no coroutine of the process that has come earlier wants the leaf.
func (k *client) enqueue(a memory.Addr, level int) *queue {
	if !k.w.queue || level > 0 {
		return nil
	}
	q := k.w.queues[a]
	if q == nil {
		q = &queue{}
		k.w.queues[a] = q
	}
	turn := q.next
	q.next++
	for q.serving != turn {
		const hold, soon = 3_000, 200 // ns
		k.c.Sleep(max(int64(turn-q.serving-1)*hold, soon))
	}
	return q
}

func (k *client) dequeue(q *queue) {
	if q != nil {
		q.serving++
	}
}

// leave lets the next coroutine at a leaf that this one has enqueued for.
func (k *client) leave(a memory.Addr) {
	if k.w.queue {
		k.dequeue(k.w.queues[a])
	}
}

// insert commits new rows with adjacent keys, as far as they are of one leaf, and returns how many.
func (k *client) insert(keys []uint64) (n int, err error) {
	k.c.BeginOp()
	defer k.c.EndOp()
	for {
		n, err := k.tryInsert(keys)
		if !errors.Is(err, errHeld) {
			return n, err
		}
		k.w.stats.held++
		k.c.Backoff()
	}
}

func (k *client) tryInsert(keys []uint64) (int, error) {
	w := k.w
	w.work(engine.TxnNs)
	k.begin()
	key := keyOf(keys[0])
	a, parent, err := k.search(key[:], 0)
	if err != nil {
		return 0, err
	}
	var x found
	if w.lock == early {
		x, err = k.lockNode(key[:], 0, a, parent)
		if err == nil {
			w.work(w.thinkNs) // the user's, with the lock held
		}
	} else {
		x, err = k.lockLate(key[:], a, parent)
	}
	if err != nil {
		return 0, err
	}
	k.changes, k.keys = k.changes[:0], k.keys[:0]
	for _, n := range keys {
		key := keyOf(n)
		if x.node.Cover(key[:]) != blink.Here {
			break
		}
		if _, there := x.node.Search(key[:]); there {
			k.release(x.addr, x.prior)
			k.leave(x.addr)
			return 0, errExists
		}
		k.keys = append(k.keys, key[:]...)
	}
	if err := k.settle(); err != nil {
		return 0, err
	}
	blade := int(w.at(x.addr, 0).Blade)
	for i := 0; i < len(k.keys); i += 8 {
		key := k.keys[i : i+8 : i+8]
		row := k.pools.row(blade)
		k.changes = append(k.changes, blink.Change{Op: blink.Insert, Key: key, Addr: row, Class: w.rowClass})
		var value [valueLen]byte
		copy(value[:], key)
		k.entry(row, rowTable, w.rowClass, key, value[:])
	}
	n := len(k.changes)
	err = k.commit(x, 0, func() {
		w.stats.commits++
		for _, key := range keys[:n] {
			w.acked[key] = true
		}
		if w.rowAt != nil {
			for i, key := range keys[:n] {
				w.rowAt[key] = k.images[i].addr
			}
		}
	})
	return n, err
}

// lockLate reads the leaf, lets the user's code run and locks.
func (k *client) lockLate(key []byte, a, parent memory.Addr) (found, error) {
	w := k.w
	x, err := k.readNode(key, a, parent)
	if err != nil {
		return x, err
	}
	w.work(w.thinkNs)
	if w.lock == late {
		turn := k.enqueue(x.addr, 0)
		ok, err := k.lockAt(x)
		if !ok {
			k.dequeue(turn)
		}
		if ok || err != nil {
			x.prior = record.FreeAt(x.version)
			return x, err
		}
		w.stats.moved++
	}
	return k.lockNode(key, 0, x.addr, 0)
}

// commit commits the changes of a locked node beside the images that the log record has already.
// acked is called when the transaction is committed. Then the separators of a split are posted.
func (k *client) commit(x found, level int, acked func()) error {
	w := k.w
	g := w.geometry
	before := len(k.images)
	images, err := k.builder.Apply(g, x.node, k.changes)
	if err != nil {
		return err
	}
	w.work(w.applyNs)
	k.whole = images == 1
	addrs := make([]memory.Addr, images)
	addrs[0] = x.addr
	for i := 1; i < images; i++ {
		addrs[i] = k.pools.node()
	}
	var seps [][]byte
	for i, a := range addrs {
		var right memory.Addr
		if i+1 < images {
			right = addrs[i+1]
			w.posting[a] = true
			seps = append(seps, bytes.Clone(k.builder.Low(i+1)))
		}
		k.body = k.builder.AppendImage(k.body[:0], i, right)
		k.entry(a, nodeTable, g.Class, nil, k.body)
	}
	if err := k.logged(); err != nil {
		return err
	}
	acked()
	// New nodes come first, and are in place before the old one leads to them.
	home := w.at(x.addr, 0).Blade
	bg := &k.f.bg
	elsewhere := false
	for _, im := range k.images[before+1:] {
		k.publish(im)
		elsewhere = elsewhere || w.at(im.addr, 0).Blade != home
	}
	if elsewhere {
		k.c.Post(bg)
		if err := k.c.Drain(bg); err != nil {
			return err
		}
	}
	for _, im := range k.images[:before+1] {
		k.publish(im)
	}
	k.c.Post(bg)
	if level == 0 {
		k.leave(x.addr)
	} else if err := k.refresh(k.images); err != nil {
		return err
	}
	if images > 1 {
		w.stats.splits++
	}
	for i, sep := range seps {
		if err := k.post(level+1, sep, addrs[i+1]); err != nil {
			return err
		}
		delete(w.posting, addrs[i])
	}
	return nil
}

// refresh caches the new images of inner nodes. What they lead to is in place: new nodes are waited for.
func (k *client) refresh(images []image) error {
	if len(images) > 1 {
		if err := k.c.Drain(&k.f.bg); err != nil {
			return err
		}
	}
	for _, im := range images {
		if _, err := k.remember(im.addr, record.Image(k.c.Thread().Bytes(im.local, im.n)).Value()); err != nil {
			return err
		}
	}
	return nil
}

// post adds a separator to the parents' level: a transaction of its own.
func (k *client) post(level int, separator []byte, child memory.Addr) error {
	w := k.w
	for {
		k.begin()
		a, _, err := k.search(separator, level)
		if errors.Is(err, errNoRoot) {
			done, err := k.grow(level, separator, child)
			if done || err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		x, err := k.lockNode(separator, level, a, 0)
		if errors.Is(err, errHeld) {
			w.stats.postHeld++
			k.c.Sleep(2000 + int64(k.c.Thread().Rand()%2000))
			continue
		}
		if err != nil {
			return err
		}
		if err := k.settle(); err != nil {
			return err
		}
		w.stats.posts++
		k.changes = append(k.changes[:0], blink.Change{Op: blink.Put, Key: separator, Addr: child})
		return k.commit(x, level, func() {})
	}
}

// grow makes a new root above the old one. done is false if another transaction has been faster.
func (k *client) grow(level int, separator []byte, right memory.Addr) (done bool, err error) {
	w := k.w
	b := &k.batch
	b.Reset()
	i := b.LockRead(w.at(rootAddr, 0), record.GuardOff, 0, uint64(record.HeldBy(k.tx)), k.masks, k.buf, record.LineSize)
	if err := k.c.Do(b); err != nil {
		return false, err
	}
	prior := record.Guard(b.Result(i))
	if prior.Held() {
		w.stats.postHeld++
		k.c.Sleep(2000)
		return false, nil
	}
	old, err := blink.DecodeRoot(record.Image(k.c.Thread().Bytes(k.buf, record.LineSize)).Value())
	if err != nil {
		return false, err
	}
	if old.Level >= level {
		k.release(rootAddr, prior)
		w.root = old
		return false, nil
	}
	if err := k.settle(); err != nil {
		return false, err
	}
	a := k.pools.node()
	k.body = blink.AppendRoot(k.body[:0], level, old.Addr, separator, right)
	top := k.entry(a, nodeTable, w.geometry.Class, nil, k.body)
	root := blink.Root{Addr: a, Level: level}
	im := k.entry(rootAddr, nodeTable, 0, nil, root.Append(nil))
	if err := k.logged(); err != nil {
		return false, err
	}
	k.publish(top)
	k.c.Post(&k.f.bg)
	if err := k.c.Drain(&k.f.bg); err != nil {
		return false, err
	}
	k.publish(im)
	k.c.Post(&k.f.bg)
	w.root = root
	_, err = k.remember(a, k.body)
	w.stats.posts++
	return true, err
}
