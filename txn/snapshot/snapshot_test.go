package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"txnode/internal/raced"
	"txnode/txn/snapshot"
)

var header = snapshot.Header{
	Created: time.Unix(1, 0).UTC(), Blades: 3, BladeSize: 1 << 30, SegmentSize: 1 << 20, LogArea: 1 << 18, Backups: 1,
}

func tables(ids ...uint16) []snapshot.Table {
	var ts []snapshot.Table
	for _, id := range ids {
		ts = append(ts, snapshot.Table{ID: id, Name: fmt.Sprint("table ", id), Options: json.RawMessage(`{"a":1}`)})
	}
	return ts
}

// contents reads a backup like a restore does.
func contents(p []byte) (map[string]string, *snapshot.Reader, error) {
	r, err := snapshot.Open(bytes.NewReader(p), nil)
	if err != nil {
		return nil, nil, err
	}
	got := map[string]string{}
	err = r.Records(nil, func(table uint16, key, value []byte) error {
		got[fmt.Sprint(table, " ", string(key))] = string(value)
		return nil
	})
	return got, r, err
}

// TestCountOfBusyKey: a key that changes all the time while a backup is taken does not make
// its table look large.
func TestCountOfBusyKey(t *testing.T) {
	var file bytes.Buffer
	w, err := snapshot.NewWriter(&file, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Base(1, []byte("k"), nil); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(1000) {
		if err := w.Commit(n+1, []snapshot.Change{{Table: 1, Key: []byte("k")}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(1000, tables(1)); err != nil {
		t.Fatal(err)
	}
	_, r, err := contents(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Count(1); n > 2 {
		t.Errorf("%d records", n)
	}
}

// For every key the change with the highest number up to the cut counts, in
// whatever order the file has them, and its base record only without one.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var file bytes.Buffer
		w, err := snapshot.NewWriter(&file, header)
		if err != nil {
			t.Fatal(err)
		}
		cut := uint64(r.IntN(60))
		want, last := map[string]string{}, map[string]uint64{}
		numbers := r.Perm(80)
		for _, n := range numbers {
			number := uint64(n + 1)
			for range r.IntN(3) {
				table, key, value := uint16(1+r.IntN(2)), fmt.Sprint(r.IntN(20)), fmt.Sprint("base", r.Int())
				if err := w.Base(table, []byte(key), []byte(value)); err != nil {
					t.Fatal(err)
				}
				if id := fmt.Sprint(table, " ", key); last[id] == 0 {
					want[id] = value
				}
			}
			var changes []snapshot.Change
			seen := map[string]bool{}
			for range r.IntN(4) {
				c := snapshot.Change{
					Table: uint16(1 + r.IntN(2)), Key: fmt.Append(nil, r.IntN(20)),
					Value: fmt.Append(nil, "change", r.Int()), Deleted: r.IntN(4) == 0,
				}
				id := fmt.Sprint(c.Table, " ", string(c.Key))
				if seen[id] {
					continue
				}
				seen[id] = true
				changes = append(changes, c)
				if number <= cut && number > last[id] {
					last[id] = number
					if want[id] = string(c.Value); c.Deleted {
						delete(want, id)
					}
				}
			}
			if err := w.Commit(number, changes); err != nil {
				t.Fatal(err)
			}
		}
		info, err := w.Finish(cut, tables(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		if w.Base(1, nil, nil) == nil && w.Commit(1, nil) == nil {
			t.Error("a finished backup takes more")
		}
		got, rd, err := contents(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
		if rd.Info() != info || info.Bytes != uint64(file.Len()) {
			t.Fatalf("seed %d: %+v, written %+v", seed, rd.Info(), info)
		}
		have := map[uint16]uint64{}
		for k := range want {
			var table uint16
			if _, err := fmt.Sscan(k, &table); err != nil {
				t.Fatal(err)
			}
			have[table]++
		}
		for table, n := range have {
			if rd.Count(table) < n {
				t.Fatalf("seed %d: table %d has %d records, and not %d", seed, table, n, rd.Count(table))
			}
		}
		if h := *rd.Header(); h.Blades != 3 || !h.Created.Equal(header.Created) || h.Format != snapshot.Format {
			t.Fatalf("header %+v", h)
		}
	}
}

func small(t testing.TB) []byte {
	var file bytes.Buffer
	w, err := snapshot.NewWriter(&file, header)
	for _, f := range []func() error{
		func() error { return err },
		func() error { return w.Base(1, []byte("key"), []byte("value")) },
		func() error { return w.Commit(1, []snapshot.Change{{Table: 2, Key: []byte("k"), Value: []byte("v")}}) },
		func() error { _, err := w.Finish(1, tables(1, 2)); return err },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// Every bit counts, and so does every byte at the end.
func TestDamage(t *testing.T) {
	raced.Skip(t)
	p := small(t)
	refused := func(p []byte, what string) {
		t.Helper()
		if _, _, err := contents(p); !errors.Is(err, snapshot.ErrDamaged) && !errors.Is(err, snapshot.ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range p {
		for bit := range 8 {
			if testing.Short() && bit != i%8 {
				continue
			}
			q := bytes.Clone(p)
			q[i] ^= 1 << bit
			refused(q, fmt.Sprintf("byte %d bit %d", i, bit))
		}
		refused(p[:i], fmt.Sprintf("cut off at %d", i))
		// Where it ends, it says.
		if _, _, err := contents(p[:i]); i >= 8 &&
			(err == nil || !strings.Contains(err.Error(), fmt.Sprintf("ends after %d bytes,", i)) ||
				!strings.Contains(err.Error(), "cut off")) {
			t.Errorf("cut off at %d: %v", i, err)
		}
	}
	refused(append(bytes.Clone(p), 0), "one byte more")
	refused(append(bytes.Clone(p), p[8:]...), "twice")
}

// TestTables: each table that has records is listed, and none twice.
func TestTables(t *testing.T) {
	list := func(names ...string) (all []snapshot.Table) {
		for i, name := range names {
			all = append(all, snapshot.Table{ID: uint16(i + 1), Name: name})
		}
		return all
	}
	again := append(list("a", "b"), snapshot.Table{ID: 1, Name: "c"})
	for what, c := range map[string]struct {
		tables []snapshot.Table
		want   error
	}{
		"listed":         {list("a", "b", "c"), nil},
		"not listed":     {list("a", "b"), snapshot.ErrDamaged},
		"a name twice":   {list("a", "b", "a"), snapshot.ErrDamaged},
		"a number twice": {append(again, snapshot.Table{ID: 3, Name: "d"}), snapshot.ErrDamaged},
	} {
		var file bytes.Buffer
		w, err := snapshot.NewWriter(&file, header)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Base(3, []byte("k"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Finish(0, c.tables); err != nil {
			t.Fatal(err)
		}
		if _, _, err := contents(file.Bytes()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	p := small(f)
	f.Add(p)
	f.Add(p[:len(p)/2])
	f.Add([]byte("TXNSNAP1"))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, r, err := contents(p)
		if err != nil {
			return
		}
		if uint64(len(got)) > r.Info().Records+uint64(len(p)) {
			t.Errorf("%d records in %d bytes", len(got), len(p))
		}
	})
}

// TestOverOlder: a backup is written over an older one, of the same database, and does not
// come to its end: the frames that follow are where they should be, and not its own.
func TestOverOlder(t *testing.T) {
	raced.Skip(t)
	backup := func(second int64, value string) []byte {
		var file bytes.Buffer
		h := header
		h.Created = time.Unix(second, 0).UTC()
		w, err := snapshot.NewWriter(&file, h)
		for i := range 10_000 {
			if err == nil {
				err = w.Base(1, fmt.Appendf(nil, "key %05d", i), []byte(value))
			}
		}
		if err == nil {
			_, err = w.Finish(0, tables(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		return file.Bytes()
	}
	older, newer := backup(1, "older"), backup(2, "newer")
	if len(older) != len(newer) {
		t.Fatalf("%d and %d bytes", len(older), len(newer))
	}
	for n := range newer {
		if n%500 != 0 {
			continue
		}
		mixed := append(bytes.Clone(newer[:n]), older[n:]...)
		if _, _, err := contents(mixed); !errors.Is(err, snapshot.ErrDamaged) && !bytes.Equal(mixed, older) {
			t.Fatalf("%d bytes of %d are newer: %v", n, len(newer), err)
		}
	}
	// Where frames begin: behind the magic, each with its length at 4.
	for n := 8; n < len(newer); n += 16 + int(binary.LittleEndian.Uint32(newer[n+4:])) {
		if _, _, err := contents(append(bytes.Clone(newer[:n]), older[n:]...)); n > 8 &&
			!errors.Is(err, snapshot.ErrDamaged) {
			t.Fatalf("the frames from byte %d on are older: %v", n, err)
		}
	}
}

// curt is a writer that takes so many bytes of what it gets, and says nothing.
type curt struct{ left int }

func (c *curt) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	return n, nil
}

// TestShortWrite: a writer that drops bytes in silence does not leave a backup that nobody
// knows is none.
func TestShortWrite(t *testing.T) {
	for _, room := range []int{0, 5, 8, 9, 300, 1000} {
		w, err := snapshot.NewWriter(&curt{room}, header)
		if err == nil {
			if err = w.Base(1, []byte("k"), make([]byte, 1000)); err == nil {
				_, err = w.Finish(0, tables(1))
			}
		}
		if !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}
