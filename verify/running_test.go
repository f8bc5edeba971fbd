package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"txnode/internal/raced"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
	"txnode/verify"
)

// TestCheckRunning: a database is checked while transactions change, insert and delete, and
// its tables grow. Nothing is found, and then exactly what was damaged in a record that
// they do not touch.
func TestCheckRunning(t *testing.T) {
	raced.Skip(t) // a check reads what others write
	ctx := t.Context()
	db, err := txn.Open(ctx, txn.Options{
		Blades: 3, BladeSize: 64 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10, IndexGroups: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	busy, err := txn.CreateTable(db, "busy", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	ordered, err := txn.CreateOrderedTable(db, "ordered", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	still, err := txn.CreateTable(db, "still", txn.Uint64, txn.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) (err error) {
		for k := range uint64(50) {
			err = errors.Join(err, still.Put(tx, k, fmt.Sprint("value ", k)))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var end atomic.Bool
	ended := make(chan error, 2)
	for g := range uint64(2) {
		go func() {
			for i := uint64(0); ; i++ {
				if end.Load() {
					ended <- nil
					return
				}
				if err := db.Update(ctx, func(tx *txn.Tx) error {
					k := i%97*2 + g
					// so many that a slow machine does not fill the blades
					err := errors.Join(busy.Put(tx, 7, fmt.Sprint(i)), busy.Put(tx, k, fmt.Sprint(i)),
						ordered.Put(tx, i%5000*2+g, "x"))
					if i%3 == 0 {
						err = errors.Join(err, busy.Delete(tx, k))
					}
					return err
				}); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	attach := func(context.Context) (*verify.Database, func() error, error) {
		d, err := verify.Attach(db.Space().Fabric(), db.Space().Layout())
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	}
	for range 3 {
		sum, err := verify.CheckRunning(ctx, attach, verify.Options{Report: func(f verify.Finding) error {
			t.Errorf("%v", f)
			return nil
		}})
		if err != nil || sum.Live < 50 || !sum.Clean() {
			t.Errorf("%+v, %v", sum, err)
		}
	}

	// A byte of a backup's value, behind the back of all.
	at := flipBackup(t, db, "value 20")
	var found []verify.Finding
	sum, err := verify.CheckRunning(ctx, attach, verify.Options{Report: func(f verify.Finding) error {
		found = append(found, f)
		return nil
	}})
	if err != nil || sum.Findings != 1 || len(found) != 1 || found[0].Kind != verify.KindReplica ||
		found[0].Copy != 1 || found[0].Blade != at.Blade {
		t.Errorf("%v, %+v, %v; a byte of the block at %v was flipped", found, sum, err, at)
	}

	// The epoch moves in the first passes, and then in each.
	for _, moves := range []int{2, 1000} {
		found = nil
		left := moves
		o := verify.Options{
			Report: func(f verify.Finding) error { found = append(found, f); return nil },
			Progress: func(p verify.Progress) {
				if left > 0 && p.Stage == "logs" {
					left--
					if err := db.Space().AdvanceEpoch(nil); err != nil {
						t.Error(err)
					}
				}
			},
		}
		sum, err := verify.CheckRunning(ctx, attach, o)
		if moves > 100 {
			if !errors.Is(err, verify.ErrMoving) || len(found) > 0 || sum.Findings > 0 {
				t.Errorf("%d epochs: %v, %+v, %v", moves, found, sum, err)
			}
		} else if err != nil || len(found) != 1 || sum.Findings != 1 || left > 0 {
			t.Errorf("%d epochs, %d of them left: %v, %+v, %v", moves, left, found, sum, err)
		}
	}
	if _, err := verify.CheckRunning(ctx, attach, verify.Options{Repair: true}); err == nil {
		t.Error("repaired what is in use")
	}
	end.Store(true)
	if err := errors.Join(<-ended, <-ended, db.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

// flipBackup flips a bit of a value that has no other like it, in the first backup, and
// returns where that is.
func flipBackup(t *testing.T, db *txn.DB, value string) rdma.RemoteAddr {
	t.Helper()
	th, err := rdma.NewThread(db.Space().Fabric(), rdma.ThreadOptions{Index: 1 << 17, Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	const part = 64 << 10
	buf, err := th.Alloc(part)
	if err != nil {
		t.Fatal(err)
	}
	c, v, l := th.Plain(), db.Space().View(), db.Space().Layout()
	var batch rdma.Batch
	for id := 1; id < v.Segments(); id++ {
		if l.Segments[id].Kind != layout.KindBlocks {
			continue
		}
		for off := uint32(0); off < l.SegmentSize; off += part {
			at := v.At(layout.MakeAddr(layout.SegmentID(id), off), 1)
			batch.Reset()
			batch.Read(at, buf, part)
			if err := c.Do(&batch); err != nil {
				t.Fatal(err)
			}
			i := bytes.Index(th.Bytes(buf, part), []byte(value))
			if i < 0 {
				continue
			}
			word := uint32(i) &^ 7
			th.Bytes(buf, part)[i] ^= 1
			at.Off += uint64(word)
			batch.Reset()
			batch.Write(at, buf+word, 8)
			if err := c.Do(&batch); err != nil {
				t.Fatal(err)
			}
			return at
		}
	}
	t.Fatalf("%q is in no segment", value)
	return rdma.RemoteAddr{}
}
