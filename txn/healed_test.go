package txn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// word returns a word of the primary, and put changes it there.
func (p *poker) word(a layout.Addr) uint64 {
	return binary.LittleEndian.Uint64(p.image(a, 0, 8))
}

func (p *poker) put(a layout.Addr, w uint64) {
	p.do(func(b *rdma.Batch) {
		p.th.PutWord(p.buf, w)
		b.Write(p.v.At(a, 0), p.buf, 8)
	})
}

// indexRoot is where the root of a table's index is, and its parts: where the sub-tables of
// its directory are.
func (p *poker) indexRoot(name string) (root layout.Addr, tables []layout.Addr) {
	p.t.Helper()
	all, err := p.db.Space().Tables()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, t := range all {
		if t.Name == name {
			root = t.Root
		}
	}
	p.v = p.db.Space().View()
	for i := range layout.Addr(min(1<<p.word(root+64), 8)) {
		tables = append(tables, race.Entry(p.word(root+256+8*i)).Table())
	}
	return root, tables
}

// TestDamagedIndexIsRepaired: a word of the primary of an index is damaged while the database is
// open, in a way that shows, by a bit of a bucket's header or of a slot. Every operation goes on,
// and the word is as before.
func TestDamagedIndexIsRepaired(t *testing.T) {
	for _, backups := range []int{1, 2} {
		if testing.Short() && backups > 1 {
			continue
		}
		db, tab, p, a, value := mendable(t, txn.PolicyDefault, backups, 16)
		slot := layout.Addr(0)
		_, tables := p.indexRoot("t")
		for _, at := range tables {
			for o := layout.Addr(64); o < 64+192*8; o += 8 { // as tiny has it, or fewer
				if s := race.Slot(p.word(at + o)); o%64 != 56 && s.Check() == nil && s.Addr() == a {
					slot = at + o
				}
			}
		}
		if slot == 0 {
			t.Fatal("no slot leads to the record")
		}
		header := slot&^63 + 56
		for _, x := range []struct {
			what string
			at   layout.Addr
			bits uint64
		}{
			{"header", header, 1 << 60}, {"header's table", header, 1 << 41}, {"header's depth", header, 7},
			{"slot's address", slot, 1 << 45}, {"slot, into a line", slot, 8},
		} {
			met := uint64(0)
			for _, op := range damageOps {
				if op.what == "Delete" {
					continue // and the slot leads elsewhere afterwards
				}
				before, was := db.Metrics().Mended, p.word(x.at)
				p.put(x.at, was^x.bits)
				to := append([]byte(nil), value...)
				for k := uint64(1000); k < 1100 && strings.HasPrefix(x.what, "header"); k++ { // which no cache knows
					if err := db.View(ctx0,
						func(tx *txn.Tx) error { _, err := tab.Has(tx, k); return err }); err != nil {
						t.Fatalf("f=%d: key %d beside a damaged %s: %v", backups, k, x.what, err)
					}
				}
				if err := op.do(db, tab, value, to); err != nil {
					t.Fatalf("f=%d: %s beside a damaged %s: %v", backups, op.what, x.what, err)
				}
				n := db.Metrics().Mended - before
				if met += n; n == 0 { // it knew where the record is
					p.put(x.at, was)
				}
				if now := p.word(x.at); now != was || n > 1 {
					t.Fatalf("f=%d: %s, %s: %#x instead of %#x, mended %d times", backups, op.what, x.what, now, was, n)
				}
			}
			if met == 0 {
				t.Errorf("f=%d: nobody has met a damaged %s", backups, x.what)
			}
		}
		if n := db.Metrics().Damage; n != 0 {
			t.Errorf("%d transactions have failed", n)
		}
	}
}

// TestIndexOnAllCopiesDamaged: what no copy has is an error that says so, at once and every time,
// and other tables go on.
func TestIndexOnAllCopiesDamaged(t *testing.T) {
	db, tab, p, _, value := mendable(t, txn.PolicyDefault, 1, 16)
	other := table(t, db, "other")
	_, tables := p.indexRoot("t")
	for _, at := range tables {
		for o := layout.Addr(64 + 56); o < 64+192*4; o += 64 {
			for k := range p.v.Copies(at) {
				p.spoil(at, k, int(o)+7)
			}
		}
	}
	for range 3 {
		err := damageOps[0].do(db, tab, value, nil)
		says(t, "View", err, txn.ErrCorrupt, "index of table")
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return other.Put(tx, 1, val(1)) }); err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedRootIsRepaired: root and directory of a table are damaged on the primary when it is
// opened.
func TestDamagedRootIsRepaired(t *testing.T) {
	for _, off := range []layout.Addr{0, 9, 57, 64, 256} {
		o := tiny()
		o.Dir = t.TempDir()
		db := mustOpen(t, o)
		fill(t, db, table(t, db, "t"), 3, val(1))
		close1(t, db)
		db = mustOpen(t, o)
		p := newPoker(t, db)
		root, _ := p.indexRoot("t")
		was := p.image(root, 0, 64*6)
		p.spoil(root, 0, int(off))
		if off == 64 { // a depth that cannot be
			p.put(root+64, 77)
		}
		tab, err := txn.OpenTable(db, "t", txn.Uint64, txn.Bytes())
		if err != nil {
			t.Fatalf("offset %d: %v", off, err)
		}
		if got := contents(t, db, tab, 3); len(got) != 3 {
			t.Errorf("offset %d: %v", off, got)
		}
		if now := p.image(root, 0, 64*6); string(now) != string(was) {
			t.Errorf("offset %d: the root is not as before", off)
		}
	}
}

// TestBankBesideIndexDamage: headers and slots of a table's index are damaged on the primary, in
// ways that show, beside transfers, inserts and deletes. No transaction fails, no account is lost,
// and the sums are right.
func TestBankBesideIndexDamage(t *testing.T) {
	o := tiny()
	o.Workers = 4
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	const accounts = 200
	fill(t, db, tab, accounts, val(100))
	p := newPoker(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var moved atomic.Int64
	done := make(chan error, 1)
	go func() {
		done <- db.Run(context.Background(), 4, 1, func(_ context.Context, id int, w *txn.Worker) error {
			r := rand.New(rand.NewPCG(5, uint64(id)))
			for n := uint64(0); ctx.Err() == nil; n++ {
				from, to := r.Uint64N(accounts), r.Uint64N(accounts)
				err := w.Update(t.Context(), func(tx *txn.Tx) error {
					if _, err := tab.Has(tx, 1<<20+r.Uint64()%1000); err != nil { // which no cache knows
						return err
					}
					a, err := tab.Get(tx, from)
					if err != nil {
						return err
					}
					b, err := tab.Get(tx, to)
					if err != nil || from == to {
						return err
					}
					if own := 1000 + uint64(id)<<8 + n/2%8; n%2 == 0 {
						err = tab.Put(tx, own, val(0))
					} else {
						err = tab.Delete(tx, own)
					}
					if err != nil && !errors.Is(err, txn.ErrNotFound) { // the transfer before was to the same account
						return err
					}
					return errors.Join(tab.Put(tx, from, val(num(a)-1)), tab.Put(tx, to, val(num(b)+1)))
				})
				if err != nil {
					return err
				}
				moved.Add(1)
			}
			return nil
		})
	}()
	r := rand.New(rand.NewPCG(6, 7))
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for range rounds {
		_, tables := p.indexRoot("t")
		at := tables[r.IntN(len(tables))] + 64 + layout.Addr(8*r.IntN(24))
		w := p.word(at)
		s := race.Slot(w)
		switch {
		case at%64 == 56:
			w ^= 1 << 60
		case s.Empty() || s.Moving() || s.Check() != nil:
			continue
		default:
			w ^= 1 << 45
		}
		// As damage does it: not over a change that somebody makes just now.
		was := p.word(at)
		p.do(func(b *rdma.Batch) { b.CAS(p.v.At(at, 0), was, w) })
		before := moved.Load()
		for moved.Load() < before+200 && len(done) == 0 {
			p.th.Plain().Sleep(100_000)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for _, v := range contents(t, db, tab, accounts) {
		sum += num(v)
	}
	if sum != accounts*100 {
		t.Errorf("%d is there, instead of %d", sum, accounts*100)
	}
	if m := db.Metrics(); m.Mended == 0 || m.Damage != 0 {
		t.Errorf("%d times mended, %d transactions have failed", m.Mended, m.Damage)
	}
	if _, err := db.Backup(t.Context(), io.Discard, txn.BackupOptions{}); err != nil {
		t.Error(err)
	}
	quiet(t, db)
}

// TestIndexWaitsForOpenTransaction: a transaction that was open when damage was met may have
// changed the damaged word on the primary alone. As long as it is open nothing is repaired.
func TestIndexWaitsForOpenTransaction(t *testing.T) {
	db, tab, p, _, _ := mendable(t, txn.PolicyDefault, 1, 16)
	open, err := db.Begin(ctx0, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Get(open, 1); err != nil {
		t.Fatal(err)
	}
	_, tables := p.indexRoot("t")
	was := map[layout.Addr]uint64{}
	for _, at := range tables {
		for o := layout.Addr(64 + 56); o < 64+192*4; o += 64 {
			was[at+o] = p.word(at + o)
			p.put(at+o, was[at+o]^1<<60)
		}
	}
	look := func() error {
		return db.View(ctx0, func(tx *txn.Tx) error { _, err := tab.Has(tx, 1<<20); return err })
	}
	says(t, "beside an open transaction", look(), txn.ErrCorrupt, "no bucket header")
	for at, w := range was {
		if p.word(at) != w^1<<60 {
			t.Errorf("%v was mended beside an open transaction", at)
		}
	}
	if err := open.Rollback(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is mended", func() bool { return look() == nil })
}
