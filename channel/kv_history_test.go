package channel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"txnode/channel"
	"txnode/channel/channeltest"
	"txnode/rdma"
)

type kv = channel.KV[uint64, channeltest.Wide]

func openKV(m *channel.Member, c *rdma.Coro, opts channel.KVOptions) (*kv, error) {
	return channel.OpenKV(context.Background(), c, m.Scope("s"), "kv", channel.Plain[uint64]("key"),
		channel.Plain[channeltest.Wide]("wide"), opts)
}

// kvOp is an operation: get, put, insert, update, delete, or add to the value under Hold.
// Values are above 0.
type kvOp struct {
	kind       byte // 'g', 'p', 'i', 'u', 'd', 'a'
	key, value uint64
}

// kvOut is what an operation has returned. unknown: it may take effect at any time, or never.
type kvOut struct {
	found       uint64
	ok, unknown bool
}

// kvModel is a map of registers, 0 for a key without a value.
var kvModel = (&porcupine.NondeterministicModel{
	Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[uint64][]porcupine.Operation{}
		for _, op := range all {
			k := op.Input.(kvOp).key
			byKey[k] = append(byKey[k], op)
		}
		for _, ops := range byKey {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() []any { return []any{uint64(0)} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(uint64), input.(kvOp), output.(kvOut)
		next, ok := s, true
		switch in.kind {
		case 'g':
			ok = out.found == s
		case 'p':
			next = in.value
		case 'i':
			if ok = out.ok == (s == 0); s == 0 {
				next = in.value
			}
		case 'u':
			if ok = out.ok == (s != 0); s != 0 {
				next = in.value
			}
		case 'd':
			ok, next = out.ok == (s != 0), 0
		case 'a':
			ok, next = out.found == s, s+in.value
		}
		switch {
		case out.unknown:
			return []any{next, s}
		case ok:
			return []any{next}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(kvOp), output.(kvOut)
		return fmt.Sprintf("%c(%d, %d) = %+v", in.kind, in.key, in.value, out)
	},
}).ToModel()

// kvHistory is what members did. Its clock counts beginnings and ends.
type kvHistory struct {
	mu  sync.Mutex
	now int64
	ops []porcupine.Operation
}

// note runs an operation. One that has not ended, or with an error, is of unknown effect.
func (h *kvHistory) note(client int, op kvOp, fn func() (kvOut, error)) error {
	h.mu.Lock()
	h.now++
	i := len(h.ops)
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: op, Output: kvOut{unknown: true}, Call: h.now, Return: math.MaxInt64,
	})
	h.mu.Unlock()
	out, err := fn()
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.now++
	h.ops[i].Output, h.ops[i].Return = out, h.now
	h.mu.Unlock()
	return nil
}

func (h *kvHistory) do(client int, m *channel.Member, c *rdma.Coro, v *kv, op kvOp) error {
	return h.note(client, op, func() (kvOut, error) { return apply(m, c, v, op) })
}

func apply(m *channel.Member, c *rdma.Coro, v *kv, op kvOp) (out kvOut, err error) {
	ctx, value := context.Background(), channeltest.WideOf(op.value)
	var found channeltest.Wide
	switch op.kind {
	case 'g':
		found, out.ok, err = v.Get(c, op.key)
	case 'p':
		err = v.Put(ctx, c, op.key, value)
	case 'i':
		out.ok, err = v.Insert(ctx, c, op.key, value)
	case 'u':
		out.ok, err = v.Update(ctx, c, op.key, value)
	case 'd':
		out.ok, err = v.Delete(ctx, c, op.key)
	case 'a':
		if found, out.ok, err = v.Hold(ctx, c, op.key); err != nil {
			return out, err
		}
		var b rdma.Batch
		if err = v.StagePut(&b, channeltest.WideOf(found[0]+op.value)); err == nil {
			if err = m.Do(c, &b); errors.Is(err, channel.ErrUncertain) {
				err = v.Settle(c)
			}
		}
	}
	if found.Torn() || (op.kind == 'g' || op.kind == 'a') && out.ok != (found[0] != 0) {
		err = errors.Join(err, fmt.Errorf("key %d has the value %v, %v", op.key, found, out.ok))
	}
	out.found = found[0]
	return out, err
}

// check judges the history.
func (h *kvHistory) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	result, _ := porcupine.CheckOperationsVerbose(kvModel, h.ops, time.Minute)
	if result == porcupine.Ok {
		return nil
	}
	text := fmt.Sprintf("the history is not linearizable (%v):", result)
	for _, op := range h.ops {
		text += fmt.Sprintf("\n  [%d, %d] client %d: %s", op.Call, op.Return, op.ClientId,
			kvModel.DescribeOperation(op.Input, op.Output))
	}
	return errors.New(text)
}
