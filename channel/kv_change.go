package channel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"txnode/rdma"
)

// Put sets the value of a key. It waits for members that change keys of the same bucket, until ctx
// ends. ErrFull: the bucket is full, and no block is left. Nothing was changed then.
func (v *KV[K, V]) Put(ctx context.Context, c *rdma.Coro, k K, value V) error {
	if _, err := v.hold(ctx, c, k, true); err != nil {
		return err
	}
	return v.finish(c, func(b *rdma.Batch) error { return v.StagePut(b, value) })
}

// Insert is Put of a key that has no value. ok is false, and nothing is changed, if it has one.
func (v *KV[K, V]) Insert(ctx context.Context, c *rdma.Coro, k K, value V) (ok bool, err error) {
	if _, err := v.hold(ctx, c, k, true); err != nil {
		return false, err
	}
	if v.found >= 0 {
		return false, v.finish(c, v.StageRelease)
	}
	err = v.finish(c, func(b *rdma.Batch) error { return v.StagePut(b, value) })
	return err == nil, err
}

// Update is Put of a key that has a value. ok is false, and nothing is changed, if it has none.
func (v *KV[K, V]) Update(ctx context.Context, c *rdma.Coro, k K, value V) (ok bool, err error) {
	if _, err := v.hold(ctx, c, k, false); err != nil {
		return false, err
	}
	if v.found < 0 {
		return false, v.finish(c, v.StageRelease)
	}
	err = v.finish(c, func(b *rdma.Batch) error { return v.StagePut(b, value) })
	return err == nil, err
}

// Delete removes a key. ok is false if it has no value.
func (v *KV[K, V]) Delete(ctx context.Context, c *rdma.Coro, k K) (ok bool, err error) {
	if _, err := v.hold(ctx, c, k, false); err != nil {
		return false, err
	}
	ok = v.found >= 0
	if !ok {
		return false, v.finish(c, v.StageRelease)
	}
	err = v.finish(c, v.StageDelete)
	return err == nil, err
}

// finish posts what stage appends, and settles it.
func (v *KV[K, V]) finish(c *rdma.Coro, stage func(b *rdma.Batch) error) error {
	v.b.Reset()
	if err := stage(&v.b); err != nil {
		return err
	}
	if err := v.m.Do(c, &v.b); errors.Is(err, ErrUncertain) {
		return v.Settle(c)
	} else if err != nil {
		return err
	}
	return nil
}

// Hold locks the bucket of a key, and returns the key's value, ok if it has one. No other member
// changes a key of that bucket before StagePut, StageDelete or StageRelease were posted, one of
// which has to follow. So a member can change a value that depends on the one before, and make the
// change visible in one doorbell with others on the same blade. A handle holds one bucket at a
// time. ErrFull, ErrOwned: nothing is held.
func (v *KV[K, V]) Hold(ctx context.Context, c *rdma.Coro, k K) (value V, ok bool, err error) {
	if _, err := v.hold(ctx, c, k, true); err != nil {
		return value, false, err
	}
	if v.found < 0 {
		return value, false, nil
	}
	at := v.at(v.entry) + v.keySize
	return v.values.Get(v.chain[v.found].payload[at : at+uint32(v.values.Size)]), true, nil
}

// hold locks the bucket of a key and reads it. If the key is not there, and insert is set, there is
// room for it afterwards.
func (v *KV[K, V]) hold(ctx context.Context, c *rdma.Coro, k K, insert bool) (h Held, err error) {
	if v.guard.held {
		return h, fmt.Errorf("%w: this handle of %q holds a bucket", ErrOwned, v.name)
	}
	v.aim(k)
	g := &v.guard
	g.off, g.from, g.free = kvGuards+8*v.home, v.node(v.home), 0
	v.n, v.found, v.empty, v.spare, v.again = 0, -1, -1, 0, v.again[:0]
	if h, err = g.take(ctx, c); err != nil {
		return h, err
	}
	if err := v.fetch(c, h.Abandoned, insert); err != nil {
		if v.m.dead == nil && v.gone == nil {
			err = errors.Join(err, g.giveBack(c))
		}
		return h, err
	}
	return h, nil
}

// fetch reads what has come with the guard, and the blocks behind it, gives back blocks that a dead
// holder has left, and takes one if it is needed.
func (v *KV[K, V]) fetch(c *rdma.Coro, abandoned, insert bool) error {
	number := v.home
	for {
		next, err := v.note(number)
		if err != nil {
			return err
		}
		if next == 0 || v.found >= 0 && !abandoned {
			break
		}
		number = v.block(next - 1)
		v.b.Reset()
		v.b.Read(v.addr(v.node(number)), v.buf+v.both, 2*v.slot)
		if err := v.m.Do(c, &v.b); err != nil {
			return err
		}
	}
	if abandoned {
		if err := v.reclaim(c); err != nil {
			return err
		}
	}
	if insert && v.found < 0 && v.empty < 0 {
		return v.grow(c)
	}
	return nil
}

// note appends the node that was read to the chain. Nothing is under way there: a torn image is
// that of a dead member.
func (v *KV[K, V]) note(number uint32) (next uint32, err error) {
	newest, ok, _ := images{size: v.payload}.pick(v.m.t.Bytes(v.buf+v.both, 2*v.slot), nil)
	payload, home := v.payloadOf(&newest), v.home+1
	if newest.version == 0 {
		home = 0
	}
	if !ok || half(payload, kvHome) != home || v.n > int(v.blocks) {
		return 0, fmt.Errorf("%w: node %d of bucket %d of %q is of bucket %d",
			ErrTorn, number, v.home, v.name, int(home)-1)
	}
	if v.n == len(v.chain) {
		v.chain = append(v.chain, kvNode{payload: make([]byte, v.payload)})
	}
	x := &v.chain[v.n]
	x.number, x.version = number, newest.version
	copy(x.payload, payload)
	found, free := v.match(x.payload, v.key)
	if found >= 0 {
		v.found, v.entry = v.n, uint32(found)
	}
	if free >= 0 && v.empty < 0 {
		v.empty, v.room = v.n, uint32(free)
	}
	v.n++
	return half(x.payload, kvNext), nil
}

// eachOwner reads the owners of blocks, some at a time, from block first on and around. fn gets the
// number of a block and its owner, and returns whether to go on.
func (v *KV[K, V]) eachOwner(c *rdma.Coro, first uint32, fn func(block uint32,
	owner uint64) (more bool, err error)) error {
	for done := uint32(0); done < v.blocks; {
		from := (first + done) % v.blocks
		n := min(ownersAtOnce, v.blocks-done, v.blocks-from)
		v.b.Reset()
		v.b.Read(v.addr(v.owners+8*from), v.buf+v.pool, 8*n)
		if err := v.m.Do(c, &v.b); err != nil {
			return err
		}
		var words [ownersAtOnce]uint64
		for i := range n {
			words[i] = v.m.t.Word(v.buf + v.pool + 8*i)
		}
		for i := range n {
			if more, err := fn(from+i, words[i]); !more || err != nil {
				return err
			}
		}
		done += n
	}
	return nil
}

// owner is the word of a block that this bucket has.
func (v *KV[K, V]) owner() uint64 { return uint64(v.home) + 1 }

// reclaim gives back blocks that are this bucket's and not in its chain.
func (v *KV[K, V]) reclaim(c *rdma.Coro) error {
	return v.eachOwner(c, 0, func(block uint32, owner uint64) (bool, error) {
		if owner != v.owner() || slices.ContainsFunc(v.chain[:v.n], func(x kvNode) bool {
			return x.number == v.block(block)
		}) {
			return true, nil
		}
		_, err := v.swapOwner(c, block, owner, 0)
		return true, err
	})
}

// grow takes a block for this bucket, and reads its version.
func (v *KV[K, V]) grow(c *rdma.Coro) error {
	first := v.home % v.blocks
	err := v.eachOwner(c, first, func(block uint32, owner uint64) (bool, error) {
		if owner != 0 {
			return true, nil
		}
		ok, err := v.swapOwner(c, block, 0, v.owner())
		if !ok || err != nil {
			return true, err
		}
		newest, ok, _ := images{size: v.payload}.pick(v.m.t.Bytes(v.buf+v.both, 2*v.slot), nil)
		if !ok {
			return false, fmt.Errorf("%w: block %d of %q", ErrTorn, block, v.name)
		}
		v.spare, v.known = block+1, newest.version
		return false, nil
	})
	if err == nil && v.spare == 0 {
		err = fmt.Errorf("%w: bucket %d of %q has %d entries in use, and all %d blocks are taken: open it for more "+
			"keys under another name",
			ErrFull, v.home, v.name, v.n*int(v.entries), v.blocks)
	}
	return err
}

// swapOwner changes the owner of a block, which is this bucket's before or after. Taken, the
// block's images are read.
func (v *KV[K, V]) swapOwner(c *rdma.Coro, block uint32, old, next uint64) (bool, error) {
	for {
		if err := v.ready(); err != nil {
			return false, err
		}
		v.b.Reset()
		i := v.b.CAS(v.addr(v.owners+8*block), old, next)
		v.b.Read(v.addr(v.node(v.block(block))), v.buf+v.both, 2*v.slot)
		err := v.m.Do(c, &v.b)
		if err == nil {
			found := v.b.Result(i)
			return found == old || found == next, nil
		}
		if !errors.Is(err, ErrUncertain) {
			return false, err
		}
		// Done again: if it had taken effect, it finds the word as it wanted it.
	}
}

// compose makes the next image of a node in buffer i, and appends its WRITE.
func (v *KV[K, V]) compose(b *rdma.Batch, i, number uint32, version uint64, payload []byte, edit func(payload []byte)) {
	local := v.buf + v.out + i*v.slot
	buf := v.m.t.Bytes(local, v.slot)
	p := buf[16 : 16+v.payload]
	copy(p, payload)
	putHalf(p, kvHome, v.home+1)
	edit(p)
	version++
	images{size: v.payload}.put(buf, version, v.m.id)
	b.Write(v.addr(v.node(number)+v.slot*uint32(version%2)), local, imageEnd(v.payload))
}

// set puts the key and a value into an entry.
func (v *KV[K, V]) set(p []byte, entry uint32, value V) {
	at := v.at(entry)
	copy(p[at:], v.key)
	at += v.keySize
	v.values.Put(p[at:at+uint32(v.values.Size)], value)
	putWord(p, kvPresent, word(p, kvPresent)|1<<entry)
}

// held is nil if a bucket is held.
func (v *KV[K, V]) held() error {
	if err := v.ready(); err != nil {
		return err
	}
	if !v.guard.held {
		return fmt.Errorf("%w: no bucket of %q is held: call Hold first", ErrNotOwner, v.name)
	}
	return nil
}

// StagePut appends to b that the key of Hold gets this value, and that the bucket is given back.
// What was appended before, for the same blade, is visible to members that see the value. Nothing
// else can be done with this handle before b is done. If b ends with ErrUncertain, Settle does the
// rest; after another error the handle is of no use.
func (v *KV[K, V]) StagePut(b *rdma.Batch, value V) error {
	if err := v.held(); err != nil {
		return err
	}
	first := b.Len()
	switch {
	case v.found >= 0:
		x := &v.chain[v.found]
		v.compose(b, 0, x.number, x.version, x.payload, func(p []byte) { v.set(p, v.entry, value) })
	case v.empty >= 0:
		x := &v.chain[v.empty]
		v.compose(b, 0, x.number, x.version, x.payload, func(p []byte) { v.set(p, v.room, value) })
	default:
		x := &v.chain[0]
		v.compose(b, 0, v.block(v.spare-1), v.known, nil, func(p []byte) {
			clear(p[kvPresent:])
			putHalf(p, kvNext, half(x.payload, kvNext))
			v.set(p, 0, value)
		})
		v.compose(b, 1, x.number, x.version, x.payload, func(p []byte) { putHalf(p, kvNext, v.spare) })
		v.spare = 0
	}
	v.release(b, first)
	return nil
}

// StageDelete appends to b that the key of Hold is removed, and that the bucket is given back: see
// StagePut. The key need not be there.
func (v *KV[K, V]) StageDelete(b *rdma.Batch) error {
	if err := v.held(); err != nil {
		return err
	}
	first := b.Len()
	if v.found >= 0 {
		x := &v.chain[v.found]
		left := word(x.payload, kvPresent) &^ (1 << v.entry)
		if left == 0 && v.found > 0 {
			before := &v.chain[v.found-1]
			v.compose(b, 0, before.number, before.version, before.payload, func(p []byte) {
				putHalf(p, kvNext, half(x.payload, kvNext))
			})
			b.CAS(v.addr(v.owners+8*(x.number-v.buckets)), v.owner(), 0)
		} else {
			v.compose(b, 0, x.number, x.version, x.payload, func(p []byte) {
				clear(p[v.at(v.entry):v.at(v.entry+1)])
				putWord(p, kvPresent, left)
			})
		}
	}
	v.release(b, first)
	return nil
}

// StageRelease appends to b that the bucket is given back as it is.
func (v *KV[K, V]) StageRelease(b *rdma.Batch) error {
	if err := v.held(); err != nil {
		return err
	}
	v.release(b, b.Len())
	return nil
}

// release appends that a block is given back which was not used, and the guard, and notes all
// requests of b from first on.
func (v *KV[K, V]) release(b *rdma.Batch, first int) {
	if v.spare > 0 {
		b.CAS(v.addr(v.owners+8*(v.spare-1)), v.owner(), 0)
		v.spare = 0
	}
	v.guard.stageRelease(b)
	v.again = append(v.again[:0], b.WRs()[first:]...)
}

// Settle does what was staged, if a batch with it has ended with ErrUncertain: afterwards it is
// done, and was done once. It does nothing if the bucket was given back.
func (v *KV[K, V]) Settle(c *rdma.Coro) error {
	if v.guard.held || len(v.again) == 0 {
		return nil
	}
	old, _ := v.guard.words()
	for {
		if found, err := v.guard.load(c); err != nil || found != old {
			return err
		}
		// This member holds the bucket still, so the same requests do no harm, and the guard is
		// last.
		if err := v.ready(); err != nil {
			return err
		}
		v.b.Reset()
		x := v.b.Extend(len(v.again))
		copy(x, v.again)
		for i := range x {
			x[i].Key, x[i].Status = v.m.host.Key(x[i].Blade), rdma.StatusOK
			v.b.Count(x[i].Op, 1, uint64(x[i].Len), rdma.BladeBit(x[i].Blade))
		}
		if err := v.m.Do(c, &v.b); err == nil || !errors.Is(err, ErrUncertain) {
			return err
		}
	}
}
