package txn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestStrandedReadOnly: a process has died in a transaction, perhaps after a blade was lost, and
// the index of its table was damaged when the database was opened next. The index is repaired, and
// the database opened read-only, when nobody has finished the transaction yet: who meets a part of
// it is told, in a backup, too; nobody waits for it. Who opens it for writing finishes it.
func TestStrandedReadOnly(t *testing.T) {
	raced.Skip(t)
	for _, p := range policies(t) {
		for _, lost := range []bool{false, true} {
			told := 0
			step := 1
			if testing.Short() {
				step = 3
			}
			for stop := 0; strandedReadOnly(t, p, lost, stop, &told); stop += step {
			}
			if told == 0 {
				t.Errorf("%v, lost %v: nobody has met anything", p, lost)
			}
		}
	}
}

// strandedReadOnly is TestStrandedReadOnly of a process that dies after so many verbs; false:
// the transaction had come to its end before.
func strandedReadOnly(t *testing.T, p txn.Policy, lost bool, stop int, told *int) bool {
	left, hit := -1, false
	f := rdmatest.New(rdmatest.Options{Blades: 2, Size: 8 << 20, Caps: atOnce, Seed: 1,
		Fail: func(*rdma.WR) rdma.Status {
			switch {
			case left < 0:
				return rdma.StatusOK
			case left == 0:
				hit = true
				if lost {
					return rdma.StatusNoBlade
				}
				return rdma.StatusTimeout
			}
			left--
			return rdma.StatusOK
		}})
	o := onFabric(f, p)
	open := func() *txn.DB { return reopen(t, o) }
	get := func(db *txn.DB, k uint64) (v []byte, err error) {
		tab := table(t, db, "t")
		err = db.View(t.Context(), func(tx *txn.Tx) error { v, err = tab.Get(tx, k); return err })
		return v, err
	}
	long := bytes.Repeat([]byte("long"), 500)
	db := open()
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	tx, err := db.Begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	left = stop
	for _, k := range []uint64{7, 1, 2} {
		if v := map[uint64][]byte{1: long, 2: val(2), 7: val(7)}[k]; err == nil {
			err = tab.Put(tx, k, v)
		}
	}
	if err == nil {
		err = tx.Commit()
	}
	if left = -1; !hit {
		return false
	}

	tables, e := db.Space().Tables()
	if e != nil {
		t.Fatal(e)
	}
	v, root := db.Space().View(), tables[0].Root
	var was [][]byte
	for i := range v.Copies(root) {
		p := f.Memory(v.At(root, i).Blade)[v.At(root, i).Off:][:64]
		was = append(was, slices.Clone(p))
		copy(p, "not the root of an index")
	}
	close1(t, open())
	for i, p := range was {
		copy(f.Memory(v.At(root, i).Blade)[v.At(root, i).Off:], p)
	}

	o.ReadOnly = true
	if db, e := txn.Open(t.Context(), o); e == nil { // else there is nothing left of it, and no sweep was due
		met, moves := false, false
		for k := range uint64(8) {
			_, e := get(db, k)
			if met = met || errors.Is(e, txn.ErrCorrupt); k == 1 {
				moves = met
			}
			if e != nil && !errors.Is(e, txn.ErrCorrupt) && !errors.Is(e, txn.ErrNotFound) {
				t.Errorf("%v, lost %v, stop %d: key %d: %v", p, lost, stop, k, e)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		_, e := db.Backup(ctx, io.Discard, txn.BackupOptions{})
		cancel()
		if e != nil && !errors.Is(e, txn.ErrCorrupt) || moves && e == nil {
			t.Errorf("%v, lost %v, stop %d: a backup beside a record that is to be moved (%v): %v",
				p, lost, stop, moves, e)
		}
		if met {
			*told++
		}
		close1(t, db)
	} else if !errors.Is(e, txn.ErrUnrecovered) {
		t.Error(e)
	}
	o.ReadOnly = false
	db = open()
	one, e := get(db, 1)
	if _, e7 := get(db, 7); e != nil || bytes.Equal(one, long) != (e7 == nil) || err == nil && e7 != nil {
		t.Errorf("%v, lost %v, stop %d: told %v, and then the values are %d bytes, %v, and %v",
			p, lost, stop, err, len(one), e, e7)
	}
	close1(t, db)
	return true
}
