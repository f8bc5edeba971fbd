package channelbench

import (
	"context"
	"fmt"
	"math/bits"

	"txnode/channel"
	"txnode/rdma"
)

// Variants of the barrier.
const (
	barrierTable = "ours, a table on a blade"
	barrierHomes = "LOCO, a copy at each node"
	barrierTree  = "dissemination"
)

const barrierRounds = 60

func barriers(c *Config) (all []setup) {
	for _, n := range c.counts(2, maxNodes) {
		for _, v := range []string{barrierTable, barrierHomes, barrierTree} {
			all = append(all, setup{Point{Variant: v, X: float64(n), XName: "nodes"}, barrier})
		}
	}
	return all
}

// barrier measures rounds of a barrier, a thread a node.
func barrier(ctx context.Context, c *Config, p *Point) error {
	n := int(p.X)
	w, err := c.simulated(shape{nodes: n, threads: 1, window: 1, blades: n, raw: 8 * maxNodes})
	if err != nil {
		return err
	}
	came := make([]uint64, n)
	waits := make([]func(ctx context.Context) error, n)
	for i, s := range w.seats {
		switch p.Variant {
		case barrierTable:
			b, err := channel.OpenBarrier(ctx, s.c, s.m.Scope("b"), "b", n)
			if err != nil {
				return w.uncounted(err)
			}
			waits[i] = func(ctx context.Context) error { return b.Wait(ctx, s.c) }
		case barrierHomes:
			waits[i] = newHomes(w, s, n).wait
		default:
			waits[i] = newTree(w, s, n).wait
		}
	}
	err = w.measure(ctx, p, 0, barrierRounds, func(ctx context.Context, s *seat) error {
		came[s.n]++
		if err := waits[s.n](ctx); err != nil {
			return err
		}
		for j, x := range came {
			if x < came[s.n] {
				return fmt.Errorf("%w: member %d has left round %d before member %d has come",
					errWrong, s.n, came[s.n], j)
			}
		}
		return nil
	})
	return w.uncounted(err)
}

// homes is LOCO's barrier: the members' counts have a copy at each node.
type homes struct {
	w      *world
	s      *seat
	nodes  int
	count  uint64
	pushed [2]rdma.Batch // in turn: the WRITEs of a round are awaited two rounds later
}

func newHomes(w *world, s *seat, nodes int) *homes {
	h := &homes{w: w, s: s, nodes: nodes}
	s.pushed = append(s.pushed, &h.pushed[0], &h.pushed[1])
	return h
}

func (h *homes) wait(ctx context.Context) error {
	h.count++
	b := &h.pushed[h.count%2]
	local := h.s.word(int(h.count % 2))
	if err := h.s.c.Wait(b); err != nil {
		return err
	}
	b.Reset()
	h.s.c.Thread().PutWord(local, h.count)
	for j := range h.nodes {
		if j != h.s.n {
			b.Write(h.w.raw(j, uint64(8*h.s.n)), local, 8)
		}
	}
	h.s.c.Post(b)
	for j := range h.nodes {
		for j != h.s.n && h.w.peek(h.w.raw(h.s.n, uint64(8*j))) < h.count {
			if err := ctx.Err(); err != nil {
				return err
			}
			h.s.c.Sleep(peekNs)
		}
	}
	return nil
}

// tree is a barrier by dissemination: in round k each member tells the one 2^k further on.
type tree struct {
	w      *world
	s      *seat
	nodes  int
	count  uint64
	pushed [2][8]rdma.Batch
}

func newTree(w *world, s *seat, nodes int) *tree {
	h := &tree{w: w, s: s, nodes: nodes}
	for i := range h.pushed {
		for k := range h.pushed[i] {
			s.pushed = append(s.pushed, &h.pushed[i][k])
		}
	}
	return h
}

func (h *tree) wait(ctx context.Context) error {
	h.count++
	local := h.s.word(int(h.count % 2))
	for k := range bits.Len(uint(h.nodes - 1)) {
		b := &h.pushed[h.count%2][k]
		if err := h.s.c.Wait(b); err != nil {
			return err
		}
		if k == 0 {
			h.s.c.Thread().PutWord(local, h.count)
		}
		b.Reset()
		b.Write(h.w.raw((h.s.n+1<<k)%h.nodes, uint64(8*k)), local, 8)
		h.s.c.Post(b)
		for h.w.peek(h.w.raw(h.s.n, uint64(8*k))) < h.count {
			if err := ctx.Err(); err != nil {
				return err
			}
			h.s.c.Sleep(peekNs)
		}
	}
	return nil
}
