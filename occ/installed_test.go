package occ_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"txnode/index"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
)

// onDisorder is a bed with an ordered table on one blade of a fabric without more
// promises than given.
func onDisorder(t *testing.T, caps rdma.Caps) (b *bed, f *rdmatest.Fabric, s *occ.Session, tx *occ.Tx) {
	f = rdmatest.New(rdmatest.Options{Blades: 1, Size: 8 << 20, Seed: 1, Caps: caps, SpreadNs: 20_000})
	b = newBedOn(t, f, memory.Options{SegmentSize: 1 << 20, LogArea: 64 << 10}, occ.Options{})
	s, tx = b.session()
	b.table = b.ordered(tx, 2, 4)
	return b, f, s, tx
}

// TestNewBlockUntilItIsThere: until the image of a new record is at its primary, the block is the
// session's, so that no sweep takes it for free, and no cache says where the record is.
func TestNewBlockUntilItIsThere(t *testing.T) {
	for _, caps := range []rdma.Caps{{Placed: true, OrderedLine: true, MaskedCAS: true}, {MaskedCAS: true}, {}} {
		b, f, s, tx := onDisorder(t, caps)
		arrived := map[uint64]bool{} // lines that a WRITE has come to
		f.Fail(func(w *rdma.WR) rdma.Status {
			if w.Op == rdma.OpWrite {
				arrived[w.Off] = true
			}
			return rdma.StatusOK
		})
		early := 0
		for k := range uint64(20) {
			must(t, tx.Begin())
			i, err := tx.Stage(b.table, key8(k), true)
			must(t, err)
			must(t, tx.Insert(i, []byte("in the first line")))
			must(t, tx.Execute())
			must(t, tx.Commit())
			a := tx.ItemAddr(i)
			if arrived[b.space.View().At(a, 0).Off] {
				continue
			}
			early++
			if !s.Holds(a) {
				t.Errorf("%+v, key %d: the block counts as used, and its image is not there", caps, k)
			}
			if b.eng.Known(b.table, key8(k)) {
				t.Errorf("%+v, key %d: the address is cached, and the image is not there", caps, k)
			}
		}
		f.Fail(nil)
		if early == 0 {
			t.Errorf("%+v: no commit ends before its image arrives", caps)
		}
		// In the end all of them are in use.
		var blocks []layout.Addr
		must(t, b.table.Ordered.(*tree.Tree).Walk(tx.Coro(), func(_ layout.Addr, x index.Candidate) error {
			blocks = append(blocks, x.Addr)
			return nil
		}))
		must(t, tx.Drain())
		for _, a := range blocks {
			if s.Holds(a) {
				t.Errorf("%+v: block %v is the session's still", caps, a)
			}
		}
	}
}

// TestLockOfUnreadNode: a transaction locks a node with the READ, which finds it torn as often as
// it looks. Another image comes over the node before the lock is given back: its guard stays.
func TestLockOfUnreadNode(t *testing.T) {
	b, f, _, tx := onDisorder(t, rdma.Caps{Placed: true, OrderedLine: true, MaskedCAS: true})
	must(t, b.insert(tx, 1))
	must(t, b.do(tx, get(string(key8(7))))) // which learns where the leaf is
	var leaf layout.Addr
	must(t, b.table.Ordered.(*tree.Tree).Leaves(tx.Coro(), func(a layout.Addr, _ []byte) error {
		leaf = a
		return nil
	}))
	at := b.space.View().At(leaf, 0)
	block := f.Memory(0)[at.Off:]
	guard := func() record.Guard { return record.Guard(binary.LittleEndian.Uint64(block[record.GuardOff:])) }
	block[record.ChecksumOff] ^= 1
	held := false
	var other record.TxID
	f.Fail(func(w *rdma.WR) rdma.Status {
		if !held || w.Op == rdma.OpRead || w.Off != at.Off+record.GuardOff || w.Op == rdma.OpMaskedCAS {
			held = held || guard().Held()
			return rdma.StatusOK
		}
		// The lock is about to be given back.
		img := record.Image(block)
		other = record.MakeTxID(77, 1)
		binary.LittleEndian.PutUint64(block[record.VersionOff:], uint64(other))
		img.SetGuard(record.FreeAt(other))
		return rdma.StatusOK
	})
	must(t, tx.Begin())
	i, err := tx.Stage(b.table, key8(2), true)
	must(t, err)
	must(t, tx.Insert(i, []byte("v")))
	if err := tx.Execute(); !errors.Is(err, occ.ErrConflict) {
		t.Fatalf("%v", err)
	}
	must(t, tx.Rollback())
	must(t, tx.Drain())
	f.Fail(nil)
	if other == 0 {
		t.Fatal("the lock was not taken, or not given back")
	}
	if guard() != record.FreeAt(other) {
		t.Errorf("the guard is %x, want %x", guard(), record.FreeAt(other))
	}
}
