package txn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
	"txnode/txn"
)

// poker changes the memory of the blades of an open database.
type poker struct {
	t   testing.TB
	db  *txn.DB
	v   *layout.View
	th  *rdma.Thread
	buf uint32
	n   uint32
}

func newPoker(t testing.TB, db *txn.DB) *poker {
	t.Helper()
	n := db.Space().SegmentSize()
	th, err := rdma.NewThread(db.Space().Fabric(),
		rdma.ThreadOptions{Index: 99, Techniques: rdma.AllTechniques, Arena: 2 * int(n)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = th.Close() })
	p := &poker{t: t, db: db, v: db.Space().View(), th: th, n: n}
	if p.buf, err = th.Alloc(int(n)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *poker) do(fill func(b *rdma.Batch)) {
	p.t.Helper()
	var b rdma.Batch
	fill(&b)
	if err := p.th.Plain().Do(&b); err != nil {
		p.t.Fatal(err)
	}
}

// find returns the block of the record whose value is given.
func (p *poker) find(value []byte) layout.Addr {
	p.t.Helper()
	p.v = p.db.Space().View()
	for id := 1; id < p.v.Segments(); id++ {
		a := layout.MakeAddr(layout.SegmentID(id), 0)
		if !p.v.Valid(a) {
			continue
		}
		p.do(func(b *rdma.Batch) { b.Read(p.v.At(a, 0), p.buf, p.n) })
		seg := p.th.Bytes(p.buf, p.n)
		at := bytes.Index(seg, value)
		for off := at &^ (record.LineSize - 1); at >= 0 && off >= 0; off -= record.LineSize {
			img := record.Image(seg[off:])
			if _, err := img.Check(a + layout.Addr(off)); err == nil && img.Meta().State() == record.Live &&
				bytes.Equal(img.Value(), value) {
				return a + layout.Addr(off)
			}
		}
	}
	p.t.Fatal("the record is in no segment")
	return 0
}

// image is the first n bytes of a copy of a block.
func (p *poker) image(a layout.Addr, k, n int) record.Image {
	p.do(func(b *rdma.Batch) { b.Read(p.v.At(a, k), p.buf, uint32(n)) })
	return bytes.Clone(p.th.Bytes(p.buf, uint32(n)))
}

// spoil flips a bit of the byte at an offset of a copy of a block.
func (p *poker) spoil(a layout.Addr, k, off int) {
	at := p.v.At(a, k)
	at.Off += uint64(off &^ 7)
	p.do(func(b *rdma.Batch) { b.Read(at, p.buf, 8) })
	p.th.Bytes(p.buf, 8)[off&7] ^= 0x10
	p.do(func(b *rdma.Batch) { b.Write(at, p.buf, 8) })
}

// whole demands that all copies of a block are intact and alike.
func (p *poker) whole(a layout.Addr, n int) {
	p.t.Helper()
	first := p.image(a, 0, n)
	for k := range p.v.Copies(a) {
		img := p.image(a, k, n)
		if _, err := img.Check(a); err != nil || !img.Stable() || !bytes.Equal(img, first) {
			p.t.Errorf("copy %d of block %v is not whole: %v, guard %v, version %v",
				k, a, err, img.Guard(), img.Version())
		}
	}
}

var ctx0 = context.Background()

// damagedPlaces are places in a block: what is damaged there.
var damagedPlaces = []struct {
	what string
	off  int
}{
	{"version", record.VersionOff + 2}, {"meta", record.MetaOff + 3}, {"state", record.MetaOff + 4},
	{"table", record.MetaOff + 6},
	{"checksum", record.ChecksumOff}, {"key", record.KeyOff + 7}, {"value", -1}, {"guard", record.GuardOff + 3},
	{"held guard", record.GuardOff},
}

var damageOps = []struct {
	what string
	do   func(db *txn.DB, tab *txn.Table[uint64, []byte], want, to []byte) error
}{
	{"View", func(db *txn.DB, tab *txn.Table[uint64, []byte], want, _ []byte) error {
		return db.View(ctx0, func(tx *txn.Tx) error {
			v, err := tab.Get(tx, 7)
			if err == nil && !bytes.Equal(v, want) {
				return fmt.Errorf("wrong value %.40q", v)
			}
			return err
		})
	}},
	{"read and write", func(db *txn.DB, tab *txn.Table[uint64, []byte], want, to []byte) error {
		return db.Update(ctx0, func(tx *txn.Tx) error {
			v, err := tab.Get(tx, 7)
			if err == nil && !bytes.Equal(v, want) {
				return fmt.Errorf("wrong value %.40q", v)
			}
			return errors.Join(err, tab.Put(tx, 7, to))
		})
	}},
	{"GetForUpdate", func(db *txn.DB, tab *txn.Table[uint64, []byte], want, to []byte) error {
		return db.Update(ctx0, func(tx *txn.Tx) error {
			v, err := tab.GetForUpdate(tx, 7)
			if err == nil && !bytes.Equal(v, want) {
				return fmt.Errorf("wrong value %.40q", v)
			}
			return err
		})
	}},
	{"Put", func(db *txn.DB, tab *txn.Table[uint64, []byte], _, to []byte) error {
		return db.Update(ctx0, func(tx *txn.Tx) error { return tab.Put(tx, 7, to) })
	}},
	{"Delete", func(db *txn.DB, tab *txn.Table[uint64, []byte], _, _ []byte) error {
		return db.Update(ctx0, func(tx *txn.Tx) error { return tab.Delete(tx, 7) })
	}},
	{"Backup", func(db *txn.DB, _ *txn.Table[uint64, []byte], _, _ []byte) error {
		_, err := db.Backup(ctx0, io.Discard, txn.BackupOptions{})
		return err
	}},
}

// mendable opens a database that has a value at key 7 of table t, and returns the block of it.
func mendable(t *testing.T, policy txn.Policy, backups, size int) (*txn.DB, *txn.Table[uint64, []byte], *poker,
	layout.Addr, []byte) {
	t.Helper()
	o := tiny()
	o.Policy, o.Backups, o.Blades = policy, txn.F(backups), backups+1
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	fill(t, db, tab, 3, val(1))
	value := bytes.Repeat([]byte("needle! "), size/8)
	if err := db.Update(ctx0, func(tx *txn.Tx) error { return tab.Put(tx, 7, value) }); err != nil {
		t.Fatal(err)
	}
	p := newPoker(t, db)
	return db, tab, p, p.find(value), value
}

// TestDamagedCopyIsRepaired: a byte of one copy of a record is damaged while the database is open.
// Every operation goes on, none sees another value, and all copies are whole afterwards.
func TestDamagedCopyIsRepaired(t *testing.T) {
	for _, backups := range []int{1, 2} {
		for _, policy := range []txn.Policy{txn.PolicyDefault, txn.PolicyFORD} {
			for _, size := range []int{16, 700, 9000} {
				if testing.Short() && ((policy == txn.PolicyFORD) != (backups == 2) || size == 9000) {
					continue
				}
				t.Run(fmt.Sprint("f=", backups, " ", policy, " ", size), func(t *testing.T) {
					mendOps(t, policy, backups, size)
				})
			}
		}
	}
}

func mendOps(t *testing.T, policy txn.Policy, backups, size int) {
	db, tab, p, a, value := mendable(t, policy, backups, size)
	for _, x := range damagedPlaces {
		off := x.off
		if off < 0 {
			off = record.ValueAt(8, size) + size/2
		}
		guard := x.off >= record.GuardOff // it takes a while: every session is asked
		if guard && (policy == txn.PolicyFORD) != (backups == 2) || guard && size != 16 {
			continue
		}
		for _, op := range damageOps {
			if guard && op.what != "View" && op.what != "Put" && op.what != "Backup" {
				continue
			}
			before := db.Metrics().Mended
			p.spoil(a, 0, off)
			to := bytes.Clone(value)
			to[0]++
			if err := op.do(db, tab, value, to); err != nil {
				t.Fatalf("%s of a record whose %s is damaged on the primary: %v", op.what, x.what, err)
			}
			if after := db.Metrics(); after.Mended != before+1 {
				t.Errorf("%s, %s: %d records were mended", op.what, x.what, after.Mended-before)
			}
			if op.what != "Delete" {
				p.whole(a, record.Size(8, size))
			}
			if err := db.Update(ctx0, func(tx *txn.Tx) error { return tab.Put(tx, 7, value) }); err != nil {
				t.Fatal(err)
			}
			a = p.find(value)
			p.whole(a, record.Size(8, size))
		}
	}
	if m := db.Metrics(); m.Damage != 0 {
		t.Errorf("%d transactions have failed", m.Damage)
	}
}

// TestAllCopiesDamaged: a byte of every copy of a record is damaged. A reader is told
// which record that is; a write that needs nothing of the old value goes on, and all
// copies are whole afterwards.
func TestAllCopiesDamaged(t *testing.T) {
	for backups := range 3 {
		for _, policy := range []txn.Policy{txn.PolicyDefault, txn.PolicyFORD} {
			for _, size := range []int{16, 700} {
				if size == 700 && backups != 1 || testing.Short() && backups != 1 {
					continue
				}
				t.Run(fmt.Sprint("f=", backups, " ", policy, " ", size), func(t *testing.T) {
					overwriteOps(t, policy, backups, size)
				})
			}
		}
	}
}

func overwriteOps(t *testing.T, policy txn.Policy, backups, size int) {
	db, tab, p, a, value := mendable(t, policy, backups, size)
	spoil := func() {
		a = p.find(value)
		for k := range p.v.Copies(a) { // all but one have damaged keys, too
			p.spoil(a, k, record.ValueAt(8, size)+3)
			if k != 1 && p.v.Copies(a) > 1 {
				p.spoil(a, k, record.KeyOff+7)
			}
		}
	}
	put := func(v []byte) error {
		return db.Update(ctx0, func(tx *txn.Tx) error { return tab.Put(tx, 7, v) })
	}
	get := func() (v []byte, err error) {
		err = db.View(ctx0, func(tx *txn.Tx) error {
			v, err = tab.Get(tx, 7)
			v = bytes.Clone(v)
			return err
		})
		return v, err
	}
	same, larger := bytes.Repeat([]byte("another "), size/8), bytes.Repeat([]byte("larger! "), size)
	for _, to := range [][]byte{same, larger} {
		spoil()
		_, err := get()
		says(t, "Get", err, txn.ErrCorrupt, `"t"`, "0000000000000007", a.String())
		says(t, "Insert", db.Update(ctx0, func(tx *txn.Tx) error { return tab.Insert(tx, 7, to) }), txn.ErrCorrupt)
		says(t, "GetForUpdate", db.Update(ctx0, func(tx *txn.Tx) error {
			_, err := tab.GetForUpdate(tx, 7)
			return errors.Join(err, tab.Put(tx, 7, to))
		}), txn.ErrCorrupt)
		if err := put(to); err != nil {
			t.Fatalf("Put of %d bytes: %v", len(to), err)
		}
		if v, err := get(); err != nil || !bytes.Equal(v, to) {
			t.Fatalf("%v, %.40q", err, v)
		}
		p.whole(p.find(to), record.Size(8, len(to)))
		if err := put(value); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	if err := db.Update(ctx0, func(tx *txn.Tx) error { return tab.Delete(tx, 7) }); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if _, err := get(); !errors.Is(err, txn.ErrNotFound) {
		t.Fatalf("after Delete: %v", err)
	}
	if err := put(value); err != nil {
		t.Fatal(err)
	}
	// No copy shows the key: it could be the record of another one.
	a = p.find(value)
	for k := range p.v.Copies(a) {
		p.spoil(a, k, record.KeyOff+7)
	}
	says(t, "Put where no copy shows the key", put(same), txn.ErrCorrupt)
}

// TestRepairedBesideWriters: a counter is damaged again and again while workers add to it and read
// it. No increment is lost.
func TestRepairedBesideWriters(t *testing.T) {
	for _, policy := range []txn.Policy{txn.PolicyDefault, txn.PolicyFORD} {
		for _, backups := range []int{1, 2} {
			t.Run(fmt.Sprint("f=", backups, " ", policy), func(t *testing.T) {
				db, tab, p, a, _ := mendable(t, policy, backups, 24)
				if err := db.Update(ctx0,
					func(tx *txn.Tx) error { return tab.Put(tx, 7, make([]byte, 8)) }); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				var added atomic.Uint64
				enough := func() bool { return added.Load() >= 300 && db.Metrics().Mended >= 20 }
				for range 3 {
					wg.Go(func() {
						for !enough() {
							if err := db.Update(ctx0, func(tx *txn.Tx) error {
								v, err := tab.Get(tx, 7)
								if err != nil {
									return err
								}
								return tab.Put(tx, 7,
									binary.LittleEndian.AppendUint64(nil, binary.LittleEndian.Uint64(v)+1))
							}); err != nil {
								t.Error(err)
								return
							}
							added.Add(1)
						}
					})
				}
				for i := 0; !enough() && !t.Failed(); i++ {
					p.spoilAtomic(a, i%backups, []int{record.KeyOff + 8, record.VersionOff, record.ChecksumOff}[i%3])
					if err := db.View(ctx0,
						func(tx *txn.Tx) error { _, err := tab.Get(tx, 7); return err }); err != nil {
						t.Error(err)
					}
				}
				wg.Wait()
				if err := db.View(ctx0, func(tx *txn.Tx) error {
					v, err := tab.Get(tx, 7)
					if err == nil && binary.LittleEndian.Uint64(v) != added.Load() {
						t.Errorf("%d increments, want %d", binary.LittleEndian.Uint64(v), added.Load())
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// spoilAtomic is spoil of a record that others write at the same time.
func (p *poker) spoilAtomic(a layout.Addr, k, off int) {
	at := p.v.At(a, k)
	at.Off += uint64(off &^ 7)
	p.do(func(b *rdma.Batch) { b.Read(at, p.buf, 8) })
	was := p.th.Word(p.buf)
	p.do(func(b *rdma.Batch) { b.CAS(at, was, was^1<<(8*(off&7)+4)) })
}

// TestBackupSkipsDamaged: what is damaged on every copy is left out of a backup of an open
// database, and told; the rest is in it.
func TestBackupSkipsDamaged(t *testing.T) {
	db, tab, p, a, value := mendable(t, txn.PolicyDefault, 1, 16)
	for k := range 2 {
		p.spoil(a, k, record.ValueAt(8, 16)+3)
	}
	backup := func(skip func(txn.Skipped)) (*bytes.Buffer, error) {
		var file bytes.Buffer
		_, err := db.Backup(ctx0, &file, txn.BackupOptions{SkipDamaged: skip})
		return &file, err
	}
	_, err := backup(nil)
	says(t, "without SkipDamaged", err, txn.ErrCorrupt, a.String())

	var left []txn.Skipped
	file, err := backup(func(x txn.Skipped) { left = append(left, x) })
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Table != "t" || left[0].Block != a || binary.BigEndian.Uint64(left[0].Key) != 7 ||
		left[0].Rest || !errors.Is(left[0].Err, txn.ErrCorrupt) {
		t.Errorf("left out: %+v", left)
	}
	to := mustOpen(t, tiny())
	if _, err := to.Restore(ctx0, bytes.NewReader(file.Bytes()), txn.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, to, table(t, to, "t"), 8); len(got) != 3 {
		t.Errorf("%d records are restored, want 3", len(got))
	}
	if err := db.Update(ctx0, func(tx *txn.Tx) error { return tab.Put(tx, 7, value) }); err != nil {
		t.Fatal(err)
	}
	left = nil
	if _, err := backup(func(x txn.Skipped) { left = append(left, x) }); err != nil || len(left) != 0 {
		t.Errorf("after a Put: %v, %v", err, left)
	}
}

// TestBankBesideDamage: money moves between accounts whose copies are damaged all the time, on
// every fabric. The history is strictly serializable, no money is lost, and all copies are whole
// when all accounts have been written.
func TestBankBesideDamage(t *testing.T) {
	const accounts, balance = 4, 1000
	forAll(t, func(t *testing.T, db *txn.DB, s setting) {
		if s.backups == 0 {
			t.Skip("there is no other copy")
		}
		tab := table(t, db, "t")
		fill(t, db, tab, accounts, val(balance))
		p := newPoker(t, db)
		var blocks []layout.Addr
		for id := 1; id < p.v.Segments(); id++ {
			a := layout.MakeAddr(layout.SegmentID(id), 0)
			p.do(func(b *rdma.Batch) { b.Read(p.v.At(a, 0), p.buf, p.n) })
			for off := uint32(0); off < p.n; off += record.LineSize {
				img := record.Image(bytes.Clone(p.th.Bytes(p.buf+off, record.LineSize)))
				if _, err := img.Check(a + layout.Addr(off)); err == nil && img.Meta().State() == record.Live &&
					bytes.Equal(img.Value(), val(balance)) {
					blocks = append(blocks, a+layout.Addr(off))
				}
			}
		}
		if len(blocks) != accounts {
			t.Fatalf("%d blocks", len(blocks))
		}
		total := func(ctx context.Context, w *txn.Worker) error {
			return w.View(ctx, func(tx *txn.Tx) error {
				sum := uint64(0)
				for k := range uint64(accounts) {
					v, err := tab.Get(tx, k)
					if err != nil {
						return err
					}
					sum += num(v)
				}
				if sum != accounts*balance {
					return fmt.Errorf("there are %d, want %d", sum, accounts*balance)
				}
				return nil
			})
		}
		run(t, db, s, func(ctx context.Context, id int, w *txn.Worker) error {
			r := rng(uint64(id) + s.seed)
			for range perWorker(s, 1000) {
				// As many copies as may be damaged at once: one is whole.
				k := int(r.n(uint64(s.backups)))
				if s.readBackups {
					k = s.backups - k
				}
				off := []int{
					record.VersionOff + 1, record.MetaOff, record.ChecksumOff + 3, record.KeyOff + 6, record.KeyOff + 8,
				}[r.n(5)]
				if err := w.Spoil(blocks[r.n(accounts)], k, off); err != nil {
					return err
				}
				from, to := r.n(accounts), r.n(accounts)
				if from == to {
					if err := total(ctx, w); err != nil {
						return err
					}
					continue
				}
				if err := w.Update(ctx, func(tx *txn.Tx) error {
					a, err := tab.GetForUpdate(tx, from)
					if err != nil {
						return err
					}
					b, err := tab.Get(tx, to)
					if err != nil {
						return err
					}
					return errors.Join(tab.Put(tx, from, val(num(a)-1)), tab.Put(tx, to, val(num(b)+1)))
				}); err != nil {
					return err
				}
			}
			return nil
		})
		run(t, db, setting{threads: 1, coroutines: 1}, func(ctx context.Context, _ int, w *txn.Worker) error {
			if err := total(ctx, w); err != nil {
				return err
			}
			return w.Update(ctx, func(tx *txn.Tx) error { // no reader meets the damage of a copy that is read by none
				for k := range uint64(accounts) {
					v, err := tab.GetForUpdate(tx, k)
					if err != nil {
						return err
					}
					if err := tab.Put(tx, k, bytes.Clone(v)); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if db.Metrics().Mended == 0 {
			t.Error("nothing was mended")
		}
		for _, a := range blocks {
			p.whole(a, record.LineSize)
		}
	})
}

// TestGuardOfOpenTransaction: the guard of a record is damaged while a transaction that is open
// has the lock. Its lock is not taken off as long as it is open, whatever the damaged word says,
// and no update is lost.
func TestGuardOfOpenTransaction(t *testing.T) {
	for what, bits := range map[string]byte{"free": 1, "of another": 0x10} {
		t.Run(what, func(t *testing.T) { t.Parallel(); guardOfOpen(t, bits) })
	}
}

func guardOfOpen(t *testing.T, bits byte) {
	db, tab, p, a, _ := mendable(t, txn.PolicyDefault, 1, 8)
	add := func(tx *txn.Tx) error {
		v, err := tab.GetForUpdate(tx, 7)
		if err != nil {
			return err
		}
		return tab.Put(tx, 7, val(num(v)+1))
	}
	read := func() (n uint64, err error) {
		err = db.View(ctx0, func(tx *txn.Tx) error {
			v, err := tab.Get(tx, 7)
			if err == nil {
				n = num(v)
			}
			return err
		})
		return n, err
	}
	before, err := read()
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(ctx0, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := add(tx); err != nil {
		t.Fatal(err)
	}
	at := p.v.At(a, 0)
	at.Off += record.GuardOff
	p.do(func(b *rdma.Batch) { b.Read(at, p.buf, 8) })
	p.th.Bytes(p.buf, 8)[0] ^= bits
	p.do(func(b *rdma.Batch) { b.Write(at, p.buf, 8) })
	want := before + 1
	if err := db.Update(ctx0, add); err == nil {
		want++
	} else if !errors.Is(err, txn.ErrCorrupt) && !errors.Is(err, txn.ErrConflict) {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n, err := read(); err != nil || n != want {
		t.Errorf("%d, %v; want %d", n, err, want)
	}
	p.whole(a, record.LineSize)
}

// TestWipedPrimaryIsRepaired: the first line of the primary of a record is zero, as if nobody had
// used the block. Every operation goes on, and all copies are whole afterwards.
func TestWipedPrimaryIsRepaired(t *testing.T) {
	for _, backups := range []int{1, 2} {
		for _, size := range []int{16, 700} {
			if testing.Short() && (backups == 1) != (size == 16) {
				continue
			}
			db, tab, p, a, value := mendable(t, txn.PolicyDefault, backups, size)
			for _, op := range damageOps {
				before := db.Metrics().Mended
				p.do(func(b *rdma.Batch) {
					clear(p.th.Bytes(p.buf, record.LineSize))
					b.Write(p.v.At(a, 0), p.buf, record.LineSize)
				})
				if err := op.do(db, tab, value, append([]byte{value[0] + 1}, value[1:]...)); err != nil {
					t.Fatalf("f=%d, %d bytes: %s: %v", backups, size, op.what, err)
				}
				if db.Metrics().Mended == before {
					t.Errorf("f=%d, %d bytes: %s: nothing was mended", backups, size, op.what)
				}
				if op.what != "Delete" {
					p.whole(a, record.Size(8, size))
				}
				if err := db.Update(ctx0, func(tx *txn.Tx) error { return tab.Put(tx, 7, value) }); err != nil {
					t.Fatal(err)
				}
				a = p.find(value)
			}
		}
	}
}

// TestStaleGuardWithoutBackup: the guard of a record, or of a leaf, is that of a transaction
// before, free or locked, as recovery leaves it if the words of a line arrive in any order.
// Operations repair it, though there is no other copy.
func TestStaleGuardWithoutBackup(t *testing.T) {
	o := tiny()
	o.Backups, o.Blades = txn.F(0), 1
	db := mustOpen(t, o)
	tab, err := txn.CreateOrderedTable(db, "t", txn.Uint64, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	put := func(v string) func(tx *txn.Tx) error {
		return func(tx *txn.Tx) error { return tab.Put(tx, 7, []byte(v)) }
	}
	if err := errors.Join(w.Update(ctx0, put("an older value")), w.Close()); err != nil {
		t.Fatal(err)
	}
	p := newPoker(t, db)
	row := p.find([]byte("an older value"))
	old := p.image(row, 0, record.LineSize).Version()
	if err := db.Update(ctx0, put("needle")); err != nil {
		t.Fatal(err)
	}
	leaf, _ := p.leaf(txn.Uint64.Append(nil, 7))
	records := 1
	ops := []struct {
		what string
		leaf bool // it meets the leaf; else the record
		do   func(tx *txn.Tx) error
	}{
		{"get", false, func(tx *txn.Tx) error {
			_, err := tab.Get(tx, 7)
			return err
		}},
		{"put", false, put("needle")},
		{"get of an absent key", true, func(tx *txn.Tx) error {
			if _, found, err := tab.Lookup(tx, 8); err != nil || found {
				return fmt.Errorf("found %v: %w", found, err)
			}
			return nil
		}},
		{"insert", true, func(tx *txn.Tx) error { return tab.Insert(tx, uint64(100+records), []byte("v")) }},
	}
	for _, x := range ops {
		for _, ranged := range []bool{false, true} {
			for _, guard := range []record.Guard{record.FreeAt(old), record.HeldBy(old)} {
				a, size := row, record.LineSize
				if x.leaf {
					a, size = leaf, 1024
				}
				at := p.v.At(a, 0)
				at.Off += record.GuardOff
				p.th.PutWord(p.buf, uint64(guard))
				p.do(func(b *rdma.Batch) { b.Write(at, p.buf, 8) })
				what := fmt.Sprintf("%s, guard %v, behind a range %v", x.what, guard, ranged)
				if err := db.Update(ctx0, func(tx *txn.Tx) error {
					n := 0
					if ranged {
						for range tab.Range(tx, txn.Bound[uint64]{}, txn.Bound[uint64]{}) {
							n++
						}
						if err := tx.Err(); err != nil {
							return err
						}
						if n != records {
							return fmt.Errorf("a range of %d records, and there are %d", n, records)
						}
					}
					return x.do(tx)
				}); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if x.what == "insert" {
					records++
				}
				p.whole(a, size)
			}
		}
	}
}
