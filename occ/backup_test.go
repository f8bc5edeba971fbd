package occ_test

import (
	"errors"
	"testing"

	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// TestBackupsOfInserts: the block of a key that is being inserted is not on the
// backups yet. Who reads from backups must meet its lock all the same: to take the
// key for absent would let it come before a transaction that it comes after.
func TestBackupsOfInserts(t *testing.T) {
	for _, p := range policies {
		b := newBed(t, 3, 2, occ.Options{Policy: p, ReadBackups: true})
		_, one := b.session()
		_, two := b.session()
		must(t, one.Begin())
		i, err := one.Stage(b.table, []byte("k"), true)
		must(t, err)
		must(t, one.Insert(i, []byte("1")))
		must(t, one.Execute())
		if err := b.do(two, get("k")); !errors.Is(err, occ.ErrConflict) {
			t.Errorf("policy %v: reading a key that is being inserted: %v", p, err)
		}
		must(t, one.Commit())
		if v, ok := b.value(two, "k"); !ok || v != "1" {
			t.Errorf("policy %v: k is %q, %v", p, v, ok)
		}
	}
}

// TestBackupsOnTheirWay: the image of a transaction under way may be on a backup, or be
// missing there, before or after it is on the primary. Who reads it alone from a backup is
// told nothing that is not so.
func TestBackupsOnTheirWay(t *testing.T) {
	for _, p := range policies {
		b := newBed(t, 3, 2, occ.Options{Policy: p, ReadBackups: true})
		_, one := b.session()
		_, two := b.session()
		must(t, b.do(one, put("k", "1")))
		buf, err := b.ctl.Alloc(record.LineSize)
		must(t, err)
		var batch rdma.Batch
		c, at := b.ctl.Plain(), b.space.View().At(b.table.Index.(*mapIndex).slots["k"].Addr, 1)
		batch.Read(at, buf, record.LineSize)
		must(t, c.Do(&batch))
		must(t, b.do(one, put("k", "2")))
		batch.Reset()
		batch.Write(at, buf, record.LineSize)
		must(t, c.Do(&batch))
		must(t, two.Begin())
		if err = b.apply(two, get("k")); err == nil { // policy ford validates when it commits
			if p == occ.PolicyDefault {
				t.Errorf("policy %v: what is on a backup alone was read", p)
			}
			err = two.Commit()
		} else {
			must(t, two.Rollback())
		}
		if !errors.Is(err, occ.ErrConflict) {
			t.Errorf("policy %v: %v", p, err)
		}
		b.ctl.Free(buf, record.LineSize)
	}
}
