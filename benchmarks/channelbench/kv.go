package channelbench

import (
	"context"
	"fmt"

	"txnode/benchmarks/workload"
	"txnode/channel"
	"txnode/rdma"
)

// Variants of the map.
const (
	kvOurs    = "ours, KV"
	kvLOCO    = "LOCO's layout"
	kvUnsafe  = "LOCO's layout, no fence"
	kvSherman = "leaves of 1 KiB, test and set"
)

const (
	kvLocks   = 4096
	leafBytes = 1024
	leafKeys  = leafBytes / 16
	zipfTheta = 0.99
	kvArena   = 12 << 10 // of a member's handle of one shard
)

// kvMix is a share of updates.
type kvMix struct {
	name    string
	updates uint64 // percent
}

var (
	kvMixes = []kvMix{{"read-only", 0}, {"half updates", 50}, {"updates", 100}}
	thetas  = []struct {
		name  string
		theta float64
	}{{"uniform", 0}, {"Zipf 0.99", zipfTheta}}
)

func maps(c *Config) (all []setup) {
	for _, mix := range kvMixes {
		for _, d := range thetas {
			for _, n := range c.counts(1, 16) {
				if n != 1 && n != min(4, c.Nodes) && n != min(16, c.Nodes) {
					continue
				}
				for _, v := range []string{kvOurs, kvLOCO, kvSherman} {
					p := Point{Setting: mix.name + ", " + d.name, Variant: v, X: float64(n), XName: "nodes"}
					all = append(all, setup{p, func(ctx context.Context, c *Config, p *Point) error {
						return kv(ctx, c, p, mix.updates, d.theta)
					}})
				}
			}
		}
	}
	return all
}

func fences(c *Config) (all []setup) {
	for _, n := range []int{1, min(4, c.Nodes)} {
		for _, v := range []string{kvOurs, kvLOCO, kvUnsafe} {
			p := Point{Variant: v, X: float64(n), XName: "nodes"}
			all = append(all, setup{p, func(ctx context.Context, c *Config, p *Point) error {
				return kv(ctx, c, p, 100, 0)
			}})
		}
	}
	return all
}

// store is a map as one member uses it. Values say which key they are of.
type store interface {
	get(ctx context.Context, s *seat, key uint64) (uint64, error)
	put(ctx context.Context, s *seat, key, value uint64) error
}

// kv measures lookups and updates of keys that are there.
func kv(ctx context.Context, c *Config, p *Point, updates uint64, theta float64) error {
	blades := max(2, int(p.X)) // as LOCO's, whose data is shared out over the nodes
	perBlade := uint64((c.Keys + blades - 1) / blades)
	raw := 64*perBlade + 16*kvLocks
	w, err := c.simulated(shape{
		nodes: int(p.X), threads: c.Threads, window: c.Window, blades: blades, raw: raw,
		arena: 1<<20 + c.Window*blades*kvArena,
	})
	if err != nil {
		return err
	}
	stores := make([]store, len(w.seats))
	for i, s := range w.seats {
		if stores[i], err = w.openStore(p.Variant, s, perBlade); err != nil {
			return w.uncounted(err)
		}
	}
	// Loaded by all seats, which share the keys out.
	err = w.run(ctx, func(ctx context.Context, s *seat) error {
		for k := s.n; k < c.Keys; k += len(w.seats) {
			if err := stores[s.n].put(ctx, s, uint64(k), valueOf(uint64(k), 0)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return w.uncounted(err)
	}
	z := workload.NewZipf(uint64(c.Keys), theta)
	err = w.measure(ctx, p, c.Duration.Nanoseconds(), 0, func(ctx context.Context, s *seat) error {
		t := s.c.Thread()
		key := workload.Scatter(z.Rank(t.Rand())) % uint64(c.Keys)
		if t.Rand()%100 < updates {
			return stores[s.n].put(ctx, s, key, valueOf(key, uint64(s.n)))
		}
		x, err := stores[s.n].get(ctx, s, key)
		if err == nil && x>>16 != key {
			err = fmt.Errorf("%w: key %d has a value of key %d", errWrong, key, x>>16)
		}
		return err
	})
	return w.uncounted(err)
}

func valueOf(key, by uint64) uint64 { return key<<16 | by&0xffff }

func (w *world) openStore(variant string, s *seat, perBlade uint64) (store, error) {
	switch variant {
	case kvOurs:
		k := &kvStore{}
		for i := range w.blades() {
			m, err := channel.OpenKV(s.ctx(), s.c, s.m.Scope("kv"), fmt.Sprintf("shard%d", i),
				channel.Plain[uint64]("key"), channel.Plain[uint64]("value"),
				channel.KVOptions{Keys: int(perBlade) + int(perBlade)/10 + 64})
			if err != nil {
				return nil, err
			}
			k.shards = append(k.shards, m)
		}
		return k, nil
	case kvSherman:
		return &leaves{w: w, locks: 64 * perBlade}, nil
	}
	return &slots{w: w, locks: 64 * perBlade, lock: ticket{unsafe: variant == kvUnsafe}}, nil
}

// kvStore is maps of package channel, one on each blade.
type kvStore struct {
	shards []*channel.KV[uint64, uint64]
}

func (k *kvStore) get(_ context.Context, s *seat, key uint64) (uint64, error) {
	x, ok, err := k.shards[key%uint64(len(k.shards))].Get(s.c, key)
	if err == nil && !ok {
		err = fmt.Errorf("%w: key %d is not there", errWrong, key)
	}
	return x, err
}

func (k *kvStore) put(ctx context.Context, s *seat, key, value uint64) error {
	return k.shards[key%uint64(len(k.shards))].Put(ctx, s.c, key, value)
}

// slots is LOCO's map with all keys in each index: a slot of 32 bytes for each, and tickets on
// other nodes than the slots.
type slots struct {
	w     *world
	locks uint64
	lock  ticket
}

func (k *slots) at(key uint64) rdma.RemoteAddr {
	return k.w.raw(int(key%k.w.blades()), 64*(key/k.w.blades()))
}

// get reads value, checksum, counter and valid bit.
func (k *slots) get(_ context.Context, s *seat, key uint64) (uint64, error) {
	s.b.Reset()
	s.b.Read(k.at(key), s.word(8), 32)
	err := s.c.Do(&s.b)
	return s.c.Thread().Word(s.word(8)), err
}

func (k *slots) put(ctx context.Context, s *seat, key, value uint64) error {
	n := key % kvLocks
	k.lock.at = k.w.raw(int((n+1)%k.w.blades()), k.locks+16*(n/k.w.blades()))
	if err := k.lock.lock(ctx, s); err != nil {
		return err
	}
	s.c.Thread().PutWord(s.word(1), value)
	return k.lock.writeBytes(s, k.at(key), s.word(1), 32)
}

// leaves is a map of leaves of 1 KiB: a lookup reads one, and so does an update, behind the CAS of
// the lock, which lies on the same blade and is given back in the doorbell of the WRITE.
type leaves struct {
	w     *world
	locks uint64
}

func (k *leaves) leaf(key uint64) (leaf rdma.RemoteAddr, entry uint64, lock rdma.RemoteAddr) {
	n := key / k.w.blades()
	b := int(key % k.w.blades())
	return k.w.raw(b, n/leafKeys*leafBytes), n % leafKeys * 16, k.w.raw(b, k.locks+8*(n/leafKeys%(2*kvLocks)))
}

func (k *leaves) get(_ context.Context, s *seat, key uint64) (uint64, error) {
	leaf, entry, _ := k.leaf(key)
	s.b.Reset()
	s.b.Read(leaf, s.local+leafBytes, leafBytes)
	err := s.c.Do(&s.b)
	return s.c.Thread().Word(s.local + leafBytes + uint32(entry)), err
}

func (k *leaves) put(ctx context.Context, s *seat, key, value uint64) error {
	leaf, entry, lock := k.leaf(key)
	for {
		s.b.Reset()
		i := s.b.CAS(lock, 0, uint64(s.n)+1)
		s.b.Read(leaf, s.local+leafBytes, leafBytes)
		if err := s.c.Do(&s.b); err != nil {
			return err
		}
		if s.b.Result(i) == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	s.c.Thread().PutWord(s.word(1), value)
	leaf.Off += entry
	s.b.Reset()
	s.b.Write(leaf, s.word(1), 16)
	s.b.CAS(lock, uint64(s.n)+1, 0)
	return s.c.Do(&s.b)
}
