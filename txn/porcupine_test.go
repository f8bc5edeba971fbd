package txn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"txnode/txn"
)

// keyInput is a transaction on one key: set it, delete it (set 0), add to it, or read it.
type keyInput struct {
	key   uint64
	kind  byte // 'r', 'w', 'd', 'a'
	value uint64
}

// keyModel is a map of registers; an output is the value that was found, 0: none.
var keyModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[uint64][]porcupine.Operation{}
		for _, op := range all {
			k := op.Input.(keyInput).key
			byKey[k] = append(byKey[k], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range byKey {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		s, in := state.(uint64), input.(keyInput)
		found, checked := output.(uint64)
		if checked && found != s {
			return false, s
		}
		switch in.kind {
		case 'w':
			return true, in.value
		case 'd':
			return true, uint64(0)
		case 'a':
			return true, s + in.value
		}
		return true, s
	},
	DescribeOperation: func(input, output any) string {
		in := input.(keyInput)
		return fmt.Sprintf("%c(%d, %d) = %v", in.kind, in.key, in.value, output)
	},
}

// Transactions on single keys are linearizable by the judgement of a checker that
// knows nothing of versions: porcupine, on windows of a history.
func TestPorcupine(t *testing.T) {
	for _, policy := range policies(t) {
		t.Run(policy.String(), func(t *testing.T) {
			db := openMemory(t, txn.Options{Policy: policy, IndexGroups: 8})
			table, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			windows := 30
			if testing.Short() {
				windows = 5
			}
			for w := range windows {
				ops := keyWindow(t, db, table, uint64(w))
				result, info := porcupine.CheckOperationsVerbose(keyModel, ops, time.Minute)
				if result != porcupine.Ok {
					path := t.TempDir() + "/history.html"
					t.Fatalf("window %d: %v (%v: %s)", w, result, porcupine.VisualizePath(keyModel, info, path), path)
				}
			}
		})
	}
}

// keyWindow runs some transactions at once, on keys that no other window uses.
func keyWindow(t *testing.T, db *txn.DB, table *txn.Table[uint64, []byte], window uint64) []porcupine.Operation {
	const clients, each, keys = 6, 60, 3
	ctx := context.Background()
	var mu sync.Mutex
	var all []porcupine.Operation
	var wg sync.WaitGroup
	for id := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(window, uint64(id)))
			for n := range each {
				in := keyInput{
					key: window*keys + r.Uint64N(keys), kind: "rrwdaa"[r.IntN(6)], value: uint64(id*each + n + 1),
				}
				var found uint64
				body := func(tx *txn.Tx) error {
					get := table.GetForUpdate
					if in.kind == 'r' {
						get = table.Get
					}
					found = 0
					switch v, err := get(tx, in.key); {
					case err == nil:
						found = binary.LittleEndian.Uint64(v)
					case !errors.Is(err, txn.ErrNotFound):
						return err
					}
					next := in.value
					switch in.kind {
					case 'r':
						return nil
					case 'd':
						if found == 0 {
							return nil
						}
						return table.Delete(tx, in.key)
					case 'a':
						next += found
					}
					return table.Put(tx, in.key, binary.LittleEndian.AppendUint64(nil, next))
				}
				run := db.Update
				if in.kind == 'r' {
					run = db.View
				}
				op := porcupine.Operation{ClientId: id, Input: in, Call: db.Now()}
				if err := run(ctx, body); err != nil {
					t.Error(err)
					return
				}
				op.Return, op.Output = db.Now(), found
				mu.Lock()
				all = append(all, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all
}
