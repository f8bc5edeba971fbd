package channel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/rdma/sim"
)

// neighbours are n keys of the bucket of key 1.
func neighbours(v *kv, n int) (keys []uint64) {
	for k := uint64(1); len(keys) < n; k++ {
		if v.Home(k) == v.Home(1) {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestKV: what operations return, with one entry in a bucket and many, and blocks are
// taken and given back.
func TestKV(t *testing.T) {
	for _, bucket := range []int{1, 2, 0, 64} {
		t.Run(fmt.Sprintf("bucket=%d", bucket), func(t *testing.T) {
			w := channeltest.NewWorld(t, rdmatest.New(rdmatest.Options{Blades: 1, Size: 1 << 22}))
			w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
				v, err := openKV(m, c, channel.KVOptions{Keys: 8, Bucket: bucket})
				if err != nil {
					return err
				}
				_, most := v.Size()
				h, r, keys := &kvHistory{}, rand.New(rand.NewPCG(1, 2)), neighbours(v, 6)
				for n := range uint64(400) {
					op := kvOp{"gpiudda"[r.IntN(7)], keys[r.IntN(len(keys))], n + 1}
					if err := h.do(0, m, c, v, op); err != nil {
						return err
					}
					if n%20 == 0 {
						_, used, err := v.Audit(c)
						if err != nil || used > most {
							return fmt.Errorf("%d blocks are in use: %w", used, err)
						}
					}
				}
				for _, k := range keys {
					if err := h.do(0, m, c, v, kvOp{'d', k, 0}); err != nil {
						return err
					}
				}
				if n, used, err := v.Audit(c); n != 0 || used != 0 || err != nil {
					t.Errorf("all keys are deleted, and there are %d, in %d blocks: %v", n, used, err)
				}
				return h.check()
			})
		})
	}
}

// TestKVFills: a map has room for the keys that it was opened for. When no block is left, ErrFull
// changes nothing, and deleting makes room.
func TestKVFills(t *testing.T) {
	for _, opts := range []channel.KVOptions{
		{Keys: 1}, {Keys: 100}, {Keys: 1000}, {}, {Keys: 4000, Bucket: 2}, {Keys: 3000, Bucket: 16},
	} {
		t.Run(fmt.Sprintf("%+v", opts), func(t *testing.T) {
			w := channeltest.NewWorld(t, newInproc(t, 1, 1<<24))
			w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
				ctx := context.Background()
				v, err := channel.OpenKV(ctx, c, m.Scope("s"), "kv", channel.Plain[uint64]("key"),
					channel.Plain[uint32]("value"), opts)
				if err != nil {
					return err
				}
				keys := max(opts.Keys, 1)
				if opts.Keys == 0 {
					keys = 1024
				}
				for k := range keys {
					if ok, err := v.Insert(ctx, c, uint64(k), uint32(k)); !ok || err != nil {
						return fmt.Errorf("key %d of %d: %v, %w", k, keys, ok, err)
					}
				}
				if n, _, err := v.Audit(c); n != keys || err != nil {
					t.Errorf("%d keys, want %d: %v", n, keys, err)
				}
				full := keys
				for ; err == nil; full++ {
					err = v.Put(ctx, c, uint64(full), uint32(full))
				}
				if full--; !errors.Is(err, channel.ErrFull) {
					return err
				}
				n, used, err := v.Audit(c)
				if n != full || err != nil {
					t.Errorf("%d keys were put, and there are %d: %v", full, n, err)
				}
				for k := range full {
					if x, ok, err := v.Get(c, uint64(k)); !ok || x != uint32(k) || err != nil {
						t.Fatalf("key %d has %d, %v, %v", k, x, ok, err)
					}
				}
				if _, _, err := v.Hold(ctx, c, uint64(full)); !errors.Is(err, channel.ErrFull) {
					t.Errorf("Hold without room: %v", err)
				}
				if ok, err := v.Update(ctx, c, uint64(full), 1); ok || err != nil {
					t.Errorf("Update without room: %v, %v", ok, err)
				}
				for k := range full {
					if ok, err := v.Delete(ctx, c, uint64(k)); !ok || err != nil {
						t.Fatalf("key %d is not deleted: %v, %v", k, ok, err)
					}
				}
				if n, left, err := v.Audit(c); n != 0 || left != 0 || err != nil {
					t.Errorf("%d keys are left in %d blocks, of %d: %v", n, left, used, err)
				}
				return v.Put(ctx, c, uint64(full), 1)
			})
		})
	}
}

// TestKVErrors: what cannot be done is told, and changes nothing.
func TestKVErrors(t *testing.T) {
	w := channeltest.NewWorld(t, disorderly(1))
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		ctx, s := context.Background(), m.Scope("s")
		key, value := channel.Plain[uint64]("key"), channel.Plain[uint64]("value")
		for _, opts := range []channel.KVOptions{{Keys: -1}, {Bucket: -1}, {Bucket: 65}, {Keys: 1 << 40}} {
			if _, err := channel.OpenKV(ctx, c, s, "kv", key, value, opts); !errors.Is(err, channel.ErrTooLarge) {
				t.Errorf("%+v: %v", opts, err)
			}
		}
		v, err := channel.OpenKV(ctx, c, s, "kv", key, value, channel.KVOptions{Keys: 8})
		if err != nil {
			return err
		}
		var b rdma.Batch
		for _, err := range []error{v.StagePut(&b, 1), v.StageDelete(&b), v.StageRelease(&b)} {
			if !errors.Is(err, channel.ErrNotOwner) || b.Len() > 0 {
				t.Errorf("staged without Hold: %v", err)
			}
		}
		if _, _, err := v.Hold(ctx, c, 1); err != nil {
			return err
		}
		_, _, err1 := v.Hold(ctx, c, 1)
		_, _, err2 := v.Get(c, 2)
		for _, err := range []error{err1, err2, v.Put(ctx, c, 1, 1)} {
			if !errors.Is(err, channel.ErrOwned) {
				t.Errorf("beside Hold: %v", err)
			}
		}
		if err := v.StageRelease(&b); err != nil {
			return err
		}
		if err := errors.Join(m.Do(c, &b), v.Settle(c)); err != nil {
			return err
		}
		v.Close()
		for _, other := range []struct {
			key, value channel.Codec[uint64]
			opts       channel.KVOptions
		}{
			{key, channel.Plain[uint64]("other"), channel.KVOptions{Keys: 8}},
			{key, value, channel.KVOptions{Keys: 800}},
			{channel.Plain[uint64]("other"), value, channel.KVOptions{Keys: 8}},
			{key, value, channel.KVOptions{Keys: 8, Bucket: 1}},
		} {
			if _, err := channel.OpenKV(ctx, c, s, "kv", other.key, other.value,
				other.opts); !errors.Is(err, channel.ErrSpec) {
				t.Errorf("opened otherwise: %v", err)
			}
		}
		return nil
	})
}

// kvScript is what the victim of TestKVStop does, with keys of one bucket of one entry: blocks are
// linked in front, unlinked from the middle and from the end, and used again.
var kvScript = []kvOp{
	{'i', 0, 1}, {'i', 1, 2}, {'p', 2, 3}, {'u', 1, 4}, {'p', 1, 5}, {'d', 1, 0}, {'a', 0, 6}, {'u', 0, 7},
	{'i', 1, 8}, {'d', 2, 0},
	{'g', 1, 0}, {'d', 0, 0}, {'d', 1, 0},
}

// TestKVStop: a member stops after every half verb of changing a map, before or beside another one
// that changes it too. The history is linearizable, and no block is lost.
func TestKVStop(t *testing.T) {
	stopsBeside(t, func(t *testing.T, caps rdma.Caps, beside bool) {
		stopEverywhere(t, caps, beside, func(*channeltest.World) (body, []body) {
			h := &kvHistory{}
			run := func(client int, m *channel.Member, c *rdma.Coro, ops []kvOp) (*kv, error) {
				v, err := openKV(m, c, channel.KVOptions{Keys: 2, Bucket: 1})
				if err != nil {
					return nil, err
				}
				keys := neighbours(v, 3)
				for _, op := range ops {
					op.key, op.value = keys[op.key], op.value+100*uint64(client)
					if err := h.do(client, m, c, v, op); err != nil {
						return v, err
					}
				}
				return v, nil
			}
			victim := func(m *channel.Member, c *rdma.Coro) error {
				_, err := run(1, m, c, kvScript)
				return err
			}
			survivor := func(m *channel.Member, c *rdma.Coro) error {
				ops := []kvOp{{'g', 0, 0}, {'g', 1, 0}, {'g', 2, 0}}
				if beside {
					ops = append(ops, kvOp{'i', 2, 1}, kvOp{'a', 1, 2}, kvOp{'g', 2, 0}, kvOp{'d', 1, 0},
						kvOp{'g', 2, 0}, kvOp{'p', 1, 3})
				}
				v, err := run(2, m, c, ops)
				if err != nil {
					return err
				}
				for !victimOver {
					if err := m.Beat(c); err != nil {
						return err
					}
					c.Sleep(5_000)
				}
				for _, k := range neighbours(v, 3) {
					for _, op := range []kvOp{{'g', k, 0}, {'a', k, 300}, {'g', k, 0}} {
						if err := h.do(2, m, c, v, op); err != nil {
							return err
						}
					}
				}
				if n, used, err := v.Audit(c); n != 3 || used != 2 || err != nil {
					return fmt.Errorf("%d keys in %d blocks: %w", n, used, err)
				}
				return h.check()
			}
			return victim, []body{survivor}
		})
	})
}

// TestKVPairs: each operation of a member is interrupted in front of each of its verbs in turn, and
// another member does each operation meanwhile, as far as it can, on the same key or another one of
// its bucket. Histories are linearizable.
func TestKVPairs(t *testing.T) {
	first := []kvOp{
		{'g', 0, 0}, {'p', 0, 11}, {'p', 2, 12}, {'i', 2, 13}, {'u', 1, 14}, {'d', 0, 0}, {'d', 1, 0}, {'a', 1, 15},
	}
	second := []kvOp{{'p', 0, 21}, {'i', 2, 22}, {'d', 1, 0}, {'a', 1, 23}, {'u', 0, 24}, {'d', 0, 0}}
	for _, a := range first {
		for _, b := range second {
			for at, ended := 0, false; !ended && !t.Failed(); at++ {
				ended = kvPair(t, a, b, at)
			}
		}
	}
}

// kvPair lets one member do a, but for a pause after so many moves, in which another one does b.
// ended: a was over before.
func kvPair(t *testing.T, a, b kvOp, at int) (ended bool) {
	t.Helper()
	s, h, opts := duel(t), &kvHistory{}, channel.KVOptions{Keys: 2, Bucket: 1}
	var begun [2]bool
	var over [2]bool
	do := func(i int, before []kvOp, op kvOp) body {
		return func(m *channel.Member, c *rdma.Coro) error {
			defer func() { over[i] = true }()
			v, err := openKV(m, c, opts)
			if err != nil {
				return err
			}
			keys := neighbours(v, 3)
			for _, op := range append(before, op) {
				begun[i] = len(h.ops) >= len(before)
				op.key = keys[op.key]
				if err := h.do(i, m, c, v, op); errors.Is(err, channel.ErrFenced) {
					return nil // it has paused for too long: of unknown effect
				} else if err != nil {
					return err
				}
			}
			return nil
		}
	}
	name := fmt.Sprintf("%c(%d) after %d moves of %c(%d)", b.kind, b.key, at, a.kind, a.key)
	one := s.client(name+", one", do(0, []kvOp{{'i', 0, 1}, {'i', 1, 2}}, a))
	s.advance(one, 2000, func() bool { return begun[0] })
	two := s.client(name+", two", do(1, nil, b))
	s.advance(two, 2000, func() bool { return begun[1] })
	s.advance(one, at, func() bool { return over[0] })
	ended = over[0]
	s.advance(two, 2000, func() bool { return over[1] })
	s.finish(t)
	s.client(name+", three", func(m *channel.Member, c *rdma.Coro) error {
		v, err := openKV(m, c, opts)
		if err != nil {
			return err
		}
		for _, k := range neighbours(v, 3) {
			if err := h.do(2, m, c, v, kvOp{'g', k, 0}); err != nil {
				return err
			}
		}
		return h.check()
	})
	s.finish(t)
	return ended
}

// TestKVMoved: a reader is on its way to a key behind two blocks. In front of each of its verbs in
// turn, another member deletes the key of the first block, and gives that block to another bucket.
// The reader finds its key all the same.
func TestKVMoved(t *testing.T) {
	const bound = 20
	for at, read := 0, false; !read; at++ {
		s, opts := duel(t), channel.KVOptions{Keys: 2, Bucket: 1}
		var open, found bool
		h := &kvHistory{}
		reader := s.client("reader", func(m *channel.Member, c *rdma.Coro) error {
			v, err := openKV(m, c, opts)
			if err != nil {
				return err
			}
			open = true
			x, ok, err := v.Get(c, neighbours(v, 3)[1])
			if !ok || x != channeltest.WideOf(2) || err != nil {
				return fmt.Errorf("verb %d: the key has %v, %v: %w", at, x[0], ok, err)
			}
			found = true
			return nil
		})
		s.advance(reader, 200, func() bool { return open })
		var linked, over bool
		writer := s.client("writer", func(m *channel.Member, c *rdma.Coro) error {
			v, err := openKV(m, c, opts)
			if err != nil {
				return err
			}
			defer func() { over = true }()
			keys := neighbours(v, 3)
			for i, k := range keys {
				if err := h.do(0, m, c, v, kvOp{'i', k, uint64(i) + 1}); err != nil {
					return err
				}
			}
			linked = true // its next verb is the first of this:
			if err := h.do(0, m, c, v, kvOp{'d', keys[2], 0}); err != nil {
				return err
			}
			for k, n := uint64(1), 0; n < 64; k++ { // until all blocks are taken
				if v.Home(k) == v.Home(keys[0]) {
					continue
				}
				n++
				if err := v.Put(context.Background(), c, k, channeltest.WideOf(9)); err != nil &&
					!errors.Is(err, channel.ErrFull) {
					return err
				}
			}
			return nil
		})
		s.advance(writer, 1000, func() bool { return linked })
		s.advance(reader, at, func() bool { return found })
		read = found
		s.advance(writer, 5000, func() bool { return over })
		if !over || at > bound {
			t.Fatalf("verb %d: the members have not come as far as they should", at)
		}
		s.finish(t)
		if t.Failed() {
			return
		}
	}
}

// TestKVUnwritten: the first WRITE of a bucket has placed its payload, and not its version, owner
// and checksum, when its member dies. What is there is not read, and the bucket can be used.
func TestKVUnwritten(t *testing.T) {
	w := channeltest.NewWorld(t, newInproc(t, 1, 1<<20))
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		v, err := openKV(m, c, channel.KVOptions{Keys: 4})
		if err != nil {
			return err
		}
		local, err := m.Thread().Alloc(256)
		if err != nil {
			return err
		}
		p := m.Thread().Bytes(local, 192)
		clear(p)
		p[0], p[8], p[16], p[24] = byte(v.Home(1)+1), 1, 1, 77 // home, present, key, value
		var b rdma.Batch
		to := w.Raw(v.Place().Blade, 0)
		to.Off = v.Place().Off + v.Unwritten(1)
		b.Write(to, local, 192)
		if err := m.Do(c, &b); err != nil {
			return err
		}
		h := &kvHistory{}
		for _, op := range []kvOp{
			{'g', 1, 0}, {'u', 1, 2}, {'i', neighbours(v, 2)[1], 3}, {'g', 1, 0}, {'i', 1, 4}, {'g', 1, 0},
		} {
			if err := h.do(0, m, c, v, op); err != nil {
				return err
			}
		}
		return h.check()
	})
}

// TestKVFresh: a Get finds what was put before it began, although its READ copies lines in any
// order, over a time in which several changes pass.
func TestKVFresh(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		w := channeltest.NewWorld(t, rdmatest.New(rdmatest.Options{
			Blades: 1, Size: 1 << 20, Seed: seed, LatencyNs: 300, SpreadNs: 4000,
			Caps: rdma.Caps{Placed: true, MaskedCAS: true},
		}))
		put, ended := uint64(0), false
		w.Run(3, func(i int, m *channel.Member, c *rdma.Coro) error {
			ctx := context.Background()
			v, err := channel.OpenKV(ctx, c, m.Scope("s"), "kv", channel.Plain[uint64]("key"),
				channel.Plain[uint64]("value"), channel.KVOptions{Keys: 1, Bucket: 1})
			if err != nil {
				return err
			}
			if i == 0 {
				defer func() { ended = true }()
				for range 400 {
					if err := v.Put(ctx, c, 1, put+1); err != nil {
						return err
					}
					put++
				}
				return nil
			}
			for !ended && !t.Failed() {
				least := put
				x, _, err := v.Get(c, 1)
				if err != nil {
					return err
				}
				if x < least || x > put+1 {
					t.Errorf("seed %d: %d was put before Get, which finds %d", seed, least, x)
				}
			}
			return nil
		})
	}
}

// TestKVLost: each verb of a member is lost in turn. Each operation is done all the same, once.
func TestKVLost(t *testing.T) {
	for _, kind := range lost {
		faults(t, kind, 64, func(*channeltest.World) []body {
			return []body{func(m *channel.Member, c *rdma.Coro) error {
				v, err := openKV(m, c, channel.KVOptions{Keys: 2, Bucket: 1})
				if err != nil {
					return err
				}
				h, keys := &kvHistory{}, neighbours(v, 3)
				for _, op := range append(kvScript[:len(kvScript):len(kvScript)], kvOp{'i', 2, 9}, kvOp{'g', 2, 0}) {
					op.key = keys[op.key]
					if err := h.do(0, m, c, v, op); err != nil {
						return err
					}
				}
				c.Sleep(4_000_000) // what comes late has come
				if n, used, err := v.Audit(c); n != 1 || used != 0 || err != nil {
					return fmt.Errorf("%d keys in %d blocks, want 1 in 0: %w", n, used, err)
				}
				if err := h.do(0, m, c, v, kvOp{'g', keys[2], 0}); err != nil {
					return err
				}
				return h.check()
			}}
		})
	}
}

// TestKVFenced: each verb of a member in turn arrives when that member was declared dead, if
// another one waits for it: late verbs change nothing. It joins again, and goes on. The history is
// linearizable, and no block is lost.
func TestKVFenced(t *testing.T) {
	fenced := 0
	for verb := 1; verb <= 64 && !t.Failed(); verb++ {
		f, err := sim.New(sim.Options{
			Blades: bladesOf(1, sim.BladeOptions{Size: 1 << 18, Key: 1}), Seed: uint64(verb), Profile: sim.Ideal(),
			Faults: []sim.Fault{{Kind: sim.FaultLate, Thread: 0, Verb: uint64(verb), By: 3 * time.Millisecond}},
		})
		if err != nil {
			t.Fatal(err)
		}
		w := channeltest.NewWorld(t, f)
		w.Identity = channel.Identity{Name: "late", Term: 300_000, Slots: 8}
		h, over := &kvHistory{}, 0
		opts := channel.KVOptions{Keys: 2, Bucket: 1}
		f.Run(2, func(i int) {
			defer func() { over++ }()
			m, c := w.Join(i)
			if m == nil {
				return
			}
			defer m.Thread().Close()
			v, err := openKV(m, c, opts)
			for n := 0; err == nil && (i == 0 && n < len(kvScript) || i == 1 && over == 0); n++ {
				op := kvScript[n%len(kvScript)]
				if i == 1 { // sees to it that what is in the way is found out, and changes it
					op.kind = "gaud"[n%4]
				}
				op.key, op.value = neighbours(v, 3)[op.key], op.value+uint64(100*i+1000*n)
				if err = h.do(i, m, c, v, op); err == nil {
					err = m.Beat(c)
				}
				if i == 1 {
					c.Sleep(20_000)
				}
				if errors.Is(err, channel.ErrFenced) {
					fenced++
					v.Close()
					if m, err = channel.Join(context.Background(), c, w.Catalog.Host(), w.Identity); err == nil {
						v, err = openKV(m, c, opts)
					}
				}
			}
			if errors.Is(err, channel.ErrFenced) {
				return // while it opened the map
			}
			if err != nil {
				t.Errorf("verb %d: member %d: %v", verb, i, err)
				return
			}
			if i == 1 {
				for k := range uint64(64) {
					if err := h.do(1, m, c, v, kvOp{'d', k, 0}); err != nil {
						t.Errorf("verb %d: %v", verb, err)
						return
					}
				}
				if n, used, err := v.Audit(c); n != 0 || used != 0 || err != nil {
					t.Errorf("verb %d: all is deleted, and there are %d keys in %d blocks: %v", verb, n, used, err)
				}
			}
			v.Close()
			if err := m.Leave(c); err != nil {
				t.Errorf("verb %d: member %d: Leave: %v", verb, i, err)
			}
		})
		if err := h.check(); err != nil {
			t.Errorf("verb %d: %v", verb, err)
		}
	}
	if fenced < 10 {
		t.Errorf("a member was fenced %d times", fenced)
	}
}

// kvChurn lets members change a map of few keys and fewer buckets. Each of them stops in the middle
// of a change, or sleeps through its term there, at random, and joins again under another number.
// The history is linearizable, and when all have left, no block is lost.
func kvChurn(t *testing.T, f rdma.Fabric, seed uint64, ops int, deaths bool) {
	t.Helper()
	const members, keys = 3, 4
	w := channeltest.NewWorld(t, f)
	w.Identity = channel.Identity{Name: "churn", Term: 400_000, Slots: 16}
	if !deaths {
		w.Identity.Term = 5_000_000_000
	}
	opts := channel.KVOptions{Keys: 2, Bucket: 1}
	h := &kvHistory{}
	w.Fabric.Run(members, func(i int) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		m, c := w.Join(i)
		if m == nil {
			return
		}
		defer func() {
			if err := m.Thread().Close(); err != nil {
				t.Error(err)
			}
		}()
		v, err := openKV(m, c, opts)
		for n := 0; n < ops && err == nil; n++ {
			op := kvOp{"ggpiuda"[r.IntN(7)], r.Uint64N(keys), uint64(i*ops+n) + 1}
			if err = h.do(i, m, c, v, op); err == nil {
				err = m.Beat(c)
			}
			if deaths && err == nil && r.IntN(12) == 0 { // stop in the middle of a change
				if _, _, err = v.Hold(context.Background(), c, op.key); err == nil && r.IntN(2) == 0 {
					c.Sleep(3 * w.Identity.Term) // another one may take over
					err = h.stage(i, m, c, v, op)
				} else if err == nil {
					err = channel.ErrFenced
				}
			}
			if deaths && errors.Is(err, channel.ErrFenced) {
				v.Close()
				m, err = channel.Join(context.Background(), c, w.Catalog.Host(), w.Identity)
				if err == nil {
					v, err = openKV(m, c, opts)
				}
			}
		}
		if err != nil {
			t.Errorf("member %d: %v", i, err)
			return
		}
		v.Close()
		if err := m.Leave(c); err != nil {
			t.Errorf("member %d: Leave: %v", i, err)
		}
	})
	if t.Failed() {
		return
	}
	w.Run(1, func(_ int, m *channel.Member, c *rdma.Coro) error {
		v, err := openKV(m, c, opts)
		if err != nil {
			return err
		}
		for k := range uint64(64) { // every bucket is taken over
			if err := h.do(members, m, c, v, kvOp{'d', k, 0}); err != nil {
				return err
			}
		}
		if n, used, err := v.Audit(c); n != 0 || used != 0 || err != nil {
			t.Errorf("all is deleted, and there are %d keys in %d blocks: %v", n, used, err)
		}
		return h.check()
	})
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

// stage ends a Hold with a value that is put, and notes it.
func (h *kvHistory) stage(client int, m *channel.Member, c *rdma.Coro, v *kv, op kvOp) error {
	op.kind = 'p'
	return h.note(client, op, func() (kvOut, error) {
		var b rdma.Batch
		if err := v.StagePut(&b, channeltest.WideOf(op.value)); err != nil {
			return kvOut{}, err
		}
		err := m.Do(c, &b)
		if errors.Is(err, channel.ErrUncertain) {
			err = v.Settle(c)
		}
		return kvOut{}, err
	})
}

// TestKVLinear: histories of several members are linearizable, with members that stop and sleep and
// without, on every fabric.
func TestKVLinear(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 1
	}
	for _, deaths := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaths=%v", deaths), func(t *testing.T) {
			for seed := range uint64(rounds) {
				if !deaths {
					t.Run("inproc", func(t *testing.T) { kvChurn(t, newInproc(t, 1, 1<<20), seed, 60, false) })
				}
				for i, caps := range weak() {
					t.Run(fmt.Sprintf("disorderly-%d", i), func(t *testing.T) {
						kvChurn(t, rdmatest.New(rdmatest.Options{
							Blades: 1, Size: 1 << 20, Caps: caps, Seed: seed + 1, SpreadNs: 4000,
						}), seed, 40, deaths)
					})
				}
				for _, freedom := range []sim.Freedom{sim.FreedomMild, sim.FreedomHostile} {
					t.Run(fmt.Sprintf("sim-%v", freedom), func(t *testing.T) {
						f, err := sim.New(sim.Options{
							Blades: bladesOf(1, sim.BladeOptions{Size: 1 << 20, Key: 1}),
							Seed:   seed + 1, Freedom: freedom, Profile: sim.Ideal(),
						})
						if err != nil {
							t.Fatal(err)
						}
						kvChurn(t, f, seed, 40, deaths)
					})
				}
			}
		})
	}
}
