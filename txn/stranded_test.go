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
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/rdma/rdmatest"
	"txnode/txn"
)

// TestStrandedReadOnly: a process has died in a transaction, perhaps after a blade was lost, and
// a leaf of its table was damaged when the database was opened next. That finishes the transaction
// all the same: locks and logs say what is to be done, and no index. So who opens it read-only then,
// when the leaf is repaired, meets no part of the transaction, and sees all of it or nothing; a
// backup does, too.
func TestStrandedReadOnly(t *testing.T) {
	raced.Skip(t)
	for _, p := range policies(t) {
		told := 0
		for _, lost := range []bool{false, true} {
			step := 1
			if testing.Short() {
				step = 3
			}
			for stop := 0; strandedReadOnly(t, p, lost, stop, &told); stop += step {
			}
		}
		if told == 0 {
			t.Errorf("%v: no leaf was damaged still when the database was opened", p)
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

	v, leaf := db.Space().View(), leafOf(db, 1)
	damage := []byte("not the leaf of an index")
	var was [][]byte
	for i := range v.Copies(leaf) {
		p := f.Memory(v.At(leaf, i).Blade)[v.At(leaf, i).Off+record.LineSize:][:64]
		was = append(was, slices.Clone(p))
		copy(p, damage)
	}
	close1(t, open())
	for i, p := range was {
		// else the transaction, or its undoing, has written the leaf anew
		if at := f.Memory(v.At(leaf, i).Blade)[v.At(leaf, i).Off+record.LineSize:]; bytes.HasPrefix(at, damage) {
			copy(at, p)
			if i == 0 {
				*told++
			}
		}
	}

	check := func(what string, db *txn.DB) {
		t.Helper()
		one, e := get(db, 1)
		_, e7 := get(db, 7)
		if e7 != nil && !errors.Is(e7, txn.ErrNotFound) || e != nil || bytes.Equal(one, long) != (e7 == nil) ||
			err == nil && e7 != nil {
			t.Errorf("%v, lost %v, stop %d, %s: told %v, and then the values are %d bytes, %v, and %v",
				p, lost, stop, what, err, len(one), e, e7)
		}
	}
	o.ReadOnly = true
	db = open()
	check("read-only", db)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, e := db.Backup(ctx, io.Discard, txn.BackupOptions{}); e != nil {
		t.Errorf("%v, lost %v, stop %d: a backup: %v", p, lost, stop, e)
	}
	close1(t, db)
	o.ReadOnly = false
	db = open()
	check("for writing", db)
	close1(t, db)
	return true
}
