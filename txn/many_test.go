package txn_test

import (
	"bytes"
	"context"
	"testing"

	"txnode/internal/raced"
	"txnode/txn"
)

// TestManyKeysAgain: transactions of more keys than are looked for one by one allocate
// nothing but the first time, also after a much larger one.
func TestManyKeysAgain(t *testing.T) {
	raced.Skip(t)
	db := openMemory(t, txn.Options{BladeSize: 256 << 20, Arena: 64 << 20})
	tab, err := txn.CreateTable(db, "t", txn.Uint64, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, db)
	defer w.Close()
	n := uint64(0)
	ctx := context.Background()
	put := func(tx *txn.Tx) error {
		for k := range n {
			if err := tab.Put(tx, k, k); err != nil {
				return err
			}
		}
		return nil
	}
	run := func() {
		if err := w.Update(ctx, put); err != nil {
			t.Fatal(err)
		}
	}
	for _, large := range []uint64{50, 10000} {
		n = large
		run()
		n = 50
		for range 200 { // the session takes blocks ahead now and then
			run()
		}
		if a := testing.AllocsPerRun(100, run); a > 0 {
			t.Errorf("behind %d keys, a transaction of %d allocates %v times", large, n, a)
		}
	}
}

// TestCodecWithMemoryOfItsOwn: what a codec returns without having appended to what it was
// given is not written over when the next value, or key, is encoded.
func TestCodecWithMemoryOfItsOwn(t *testing.T) {
	db := openMemory(t, txn.Options{})
	tab, err := txn.CreateTable(db, "t",
		txn.Key[[]byte]{Name: "own", Append: func(_ []byte, k []byte) []byte { return k }},
		txn.Codec[[]byte]{
			Name:   "own",
			Append: func(_ []byte, v []byte) ([]byte, error) { return v, nil },
			Decode: func(src []byte) ([]byte, error) { return bytes.Clone(src), nil },
		})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := txn.CreateTable(db, "plain", txn.BytesKey, txn.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	key, value := bytes.Repeat([]byte("k"), 100), bytes.Repeat([]byte("v"), 1000)
	if err := db.Update(t.Context(), func(tx *txn.Tx) error {
		if err := tab.Put(tx, key, value); err != nil {
			return err
		}
		return plain.Put(tx, []byte("another"), []byte("something else"))
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(key, bytes.Repeat([]byte("k"), 100)) || !bytes.Equal(value, bytes.Repeat([]byte("v"), 1000)) {
		t.Errorf("the caller's key and value are %q... and %q...", key[:10], value[:20])
	}
}

// TestMostKeys: as many keys as the limits in the documentation say are written in one
// transaction, and no more.
func TestMostKeys(t *testing.T) {
	raced.Skip(t)
	for _, c := range []struct {
		log  uint32
		most int
		over string
	}{
		{4 << 20, 43_689, "LogArea"},
		{8 << 20, 65_535, "more than 65535 keys"},
	} {
		db := openMemory(t, txn.Options{LogArea: c.log, SegmentSize: 8 << 20, Arena: 256 << 20, BladeSize: 512 << 20})
		tab, err := txn.CreateTable(db, "t", txn.Uint64, txn.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		put := func(from, to int) error {
			return db.Update(t.Context(), func(tx *txn.Tx) error {
				for k := from; k < to; k++ {
					if err := tab.Put(tx, uint64(k), nil); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for k := 0; k < c.most+1; k += 10_000 {
			if err := put(k, min(k+10_000, c.most+1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(0, c.most); err != nil {
			t.Errorf("%d keys with a log of %d bytes: %v", c.most, c.log, err)
		}
		says(t, "a key more", put(0, c.most+1), txn.ErrTooLarge, c.over)
	}
}
