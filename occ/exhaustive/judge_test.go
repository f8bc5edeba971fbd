package exhaustive

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"txnode/check"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/verify"
)

// verdict is what a walk over the database finds.
type verdict struct {
	content  string
	findings string
}

// judge walks the database, in which nobody runs, and reads the keys. States of the
// memory that have been seen before are not walked again.
func (w *world) judge(keys []string) verdict {
	w.t.Helper()
	h := w.state()
	if v, ok := w.judged[h]; ok {
		return v
	}
	var v verdict
	v.findings = w.walk()
	v.content = printed(w.content(w.client(), keys))
	w.judged[h] = v
	return v
}

// walk returns what verify finds.
func (w *world) walk() string {
	w.t.Helper()
	d, err := verify.Attach(w.f, w.space.Layout())
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	w.summary, err = d.Check(context.Background(), verify.Options{Report: func(f verify.Finding) error {
		if w.pardon != nil && w.pardon(f) {
			w.pardoned++
			return nil
		}
		fmt.Fprintf(&b, "%v\n", f)
		return nil
	}})
	if err = errors.Join(err, d.Close()); err != nil {
		w.t.Fatal(err)
	}
	return b.String()
}

// sound is what the keys hold of a database in which the walk finds nothing.
func (w *world) sound(keys []string) (content string, err error) {
	w.t.Helper()
	v := w.judge(keys)
	if v.findings != "" {
		return "", fmt.Errorf("the database is damaged:\n%s", v.findings)
	}
	return v.content, nil
}

// consistent checks the history of the run, and of those who have made the database.
func (w *world) consistent() error {
	txns := append(w.initial[:len(w.initial):len(w.initial)], w.rec.Txns()...)
	return check.Check(txns, check.Options{FromEmpty: true}).Err()
}

// state tells states of memory and catalog apart.
func (w *world) state() uint64 {
	w.t.Helper()
	entries, _, err := w.cat.Load()
	if err != nil {
		w.t.Fatal(err)
	}
	h := w.f.Hash()
	for _, e := range entries {
		h = h*31 + maphash.String(seed, e.Key) ^ maphash.Bytes(seed, e.Value)
	}
	return h
}

var seed = maphash.MakeSeed()

// content is what the given keys hold, read by a transaction; "" is absence.
func (w *world) content(s *client, keys []string) map[string]string {
	w.t.Helper()
	out := w.contentOnce(s, keys)
	for range 8 {
		if out["error"] == "" {
			break
		}
		if ok, err := s.tx.Unblock(); !ok || err != nil {
			break
		}
		out = w.contentOnce(s, keys)
	}
	return out
}

// contentOnce is content, without help for who is in somebody's way that is gone.
func (w *world) contentOnce(s *client, keys []string) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	if err := s.tx.Begin(); err != nil {
		w.t.Fatal(err)
	}
	at := make([]int, len(keys))
	for i, key := range keys {
		var err error
		if at[i], err = s.tx.Stage(s.table, []byte(key), false); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := s.tx.Execute(); err != nil {
		_ = s.tx.Rollback()
		return map[string]string{"error": err.Error()}
	}
	for i, key := range keys {
		if v, ok := s.tx.Read(at[i]); ok {
			out[key] = string(v)
		}
	}
	if err := s.tx.Commit(); err != nil {
		return map[string]string{"error": err.Error()}
	}
	return out
}

// print makes a content comparable, and short.
func printed(content map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(content)) {
		v := content[key]
		if len(v) > 12 {
			v = fmt.Sprintf("%s(%d)", v[:1], len(v))
		}
		fmt.Fprintf(&b, "%s=%s ", strings.TrimRight(key, "."), v)
	}
	return b.String()
}

// spare holds the blocks that were given back against what the blades say of them: one
// that is not free, or is there twice, would be somebody's two times.
func (w *world) spare() error {
	seen := map[layout.Addr]bool{}
	v := w.space.View()
	for _, a := range w.space.Spare() {
		if seen[a] {
			return fmt.Errorf("block %v was given back twice", a)
		}
		seen[a] = true
		if v.Copies(a) == 0 {
			continue
		}
		if img := w.image(v.At(a, 0), record.LineSize); img.Meta().State() != record.Free {
			return fmt.Errorf("block %v was given back, and is not free: state %d, version %v",
				a, img.Meta().State(), img.Version())
		}
	}
	return nil
}

// owned demands that every block which is free is in a pool, or a live session has it, and
// that none is there twice: nothing has to be opened again for it. A sweep is over.
func (w *world) owned() error {
	free := w.free[:0]
	v := w.space.View()
	_ = w.everyBlock(func(a layout.Addr, _ uint32) error {
		if img := w.image(v.At(a, 0), record.LineSize); img.Meta().State() == record.Free && !img.Guard().Held() {
			free = append(free, memory.FreeBlock{Addr: a, Version: uint64(img.Version())})
		}
		return nil
	})
	w.free = free
	nobodys, twice := w.space.Unowned(free)
	if len(twice) > 0 {
		return fmt.Errorf("blocks are there twice: %v", twice)
	}
	if len(nobodys) > 0 {
		return fmt.Errorf("%d free blocks are nobody's: %v ... (version %v)", len(nobodys), nobodys[0].Addr,
			record.TxID(nobodys[0].Version))
	}
	return nil
}
