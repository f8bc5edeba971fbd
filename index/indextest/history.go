package indextest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"

	"txnode/index"
	"txnode/memory/layout"
	"txnode/rdma"
)

// The history of a run: what each operation on a key returned, and when. It is
// linearizable if each key behaves like a register that is absent or present.

type opKind uint8

const (
	opGet opKind = iota
	opInsert
	opDelete
	opMove
	opConfirm // a get that found nothing, and its validation some time later
	numOps
)

type call struct {
	key  int
	kind opKind
}

// outcome is what a call has learnt.
type outcome uint8

const (
	outUnknown outcome = iota // nothing: it met a lock, or another insert
	outAbsent                 // the key had no record
	outPresent                // it had one
	outDone                   // the call did what it was to do
)

// History collects the calls of one client.
type History struct{ ops []porcupine.Operation }

// keyed is a client whose operations a history notes.
type keyed interface {
	coro() *rdma.Coro
	Get(key []byte) (value []byte, err error)
	Insert(key, value []byte) (layout.Addr, error)
	Delete(key []byte) error
	Move(key []byte) error
	// absent looks a key up, and Unchanged says whether what it has seen is so still.
	absent(key []byte) (bool, error)
	Unchanged() (bool, error)
}

// Do executes one call and notes it.
func (h *History) do(k keyed, id int, in call, name []byte) error {
	start := k.coro().Thread().Now()
	out, err := outUnknown, error(nil)
	switch in.kind {
	case opConfirm:
		return h.confirm(k, id, in, name)
	case opGet:
		var v []byte
		v, err = k.Get(name)
		out = outAbsent
		if v != nil {
			out = outPresent
			if string(v) != string(name) {
				return fmt.Errorf("key %q has value %q", name, v)
			}
		}
	case opInsert:
		_, err = k.Insert(name, name)
	case opDelete:
		err = k.Delete(name)
	case opMove:
		err = k.Move(name)
	}
	switch {
	case errors.Is(err, ErrExists):
		out = outPresent
	case errors.Is(err, ErrNotFound):
		out = outAbsent
	case errors.Is(err, ErrLocked) || errors.Is(err, index.ErrDuplicate):
		out = outUnknown
	case err != nil:
		return err
	case in.kind != opGet:
		out = outDone
	}
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: id, Input: in, Call: start, Output: out, Return: k.coro().Thread().Now(),
	})
	return nil
}

// confirm looks for a key and, when it is absent, whether it still is: two gets
// of the same result, if that is what Unchanged says.
func (h *History) confirm(k keyed, id int, in call, name []byte) error {
	start := k.coro().Thread().Now()
	if absent, err := k.absent(name); err != nil || !absent {
		return err
	}
	in.kind = opGet
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: id, Input: in, Call: start, Output: outAbsent, Return: k.coro().Thread().Now(),
	})
	k.coro().Sleep(int64(k.coro().Thread().Rand() % 20_000))
	start = k.coro().Thread().Now()
	if same, err := k.Unchanged(); err != nil || !same {
		return err
	}
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: id, Input: in, Call: start, Output: outAbsent, Return: k.coro().Thread().Now(),
	})
	return nil
}

var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[int]int{}
		var out [][]porcupine.Operation
		for _, o := range history {
			k := o.Input.(call).key
			i, ok := keys[k]
			if !ok {
				i = len(out)
				keys[k] = i
				out = append(out, nil)
			}
			out[i] = append(out[i], o)
		}
		return out
	},
	Init: func() any { return false },
	Step: func(state, input, output any) (bool, any) {
		present := state.(bool)
		switch output.(outcome) {
		case outAbsent:
			return !present, present
		case outPresent:
			return present, present
		case outUnknown:
			return true, present
		}
		switch input.(call).kind {
		case opInsert:
			return !present, true
		case opDelete:
			return present, false
		default:
			return present, present
		}
	},
	DescribeOperation: func(input, output any) string {
		in := input.(call)
		return fmt.Sprintf("%v key %d -> %v", [...]string{"get", "insert", "delete", "move"}[in.kind], in.key,
			[...]string{"?", "absent", "present", "done"}[output.(outcome)])
	},
}

// checkHistories fails the test unless the histories together are linearizable.
func checkHistories(tb testing.TB, h []History) {
	tb.Helper()
	var all []porcupine.Operation
	for i := range h {
		all = append(all, h[i].ops...)
	}
	if porcupine.CheckOperations(registerModel, all) {
		return
	}
	for _, ops := range registerModel.Partition(all) {
		if porcupine.CheckOperations(registerModel, ops) {
			continue
		}
		tb.Errorf("key %d: no order of its calls explains their results", ops[0].Input.(call).key)
		for _, o := range ops {
			tb.Logf("  client %d: %9d..%9d  %s", o.ClientId, o.Call, o.Return,
				registerModel.DescribeOperation(o.Input, o.Output))
		}
	}
}
