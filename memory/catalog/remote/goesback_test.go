package remote_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"txnode/memory"
	"txnode/memory/layout"
)

// TestSameRevisionElsewhere: a change that is made for a catalog does not reach another one that is
// served at its address by now, whatever revision that one has; and the one that it is for is used
// on when it is back.
func TestSameRevisionElsewhere(t *testing.T) {
	mine, other := inMemory(), inMemory()
	open := mine
	d := newDaemon(t, func() layout.Catalog { return open() })
	c := d.dial()
	_, rev := loaded(t, c)
	d.stop()
	open = other
	d.start()
	_, err := until(func() (layout.Revision, error) { return c.Apply(rev, entry("a", "mine")) })
	if !errors.Is(err, layout.ErrForeign) || errors.Is(err, memory.ErrRevision) {
		t.Errorf("a change: %v", err)
	}
	if now, err := c.Await(t.Context(), rev); now != 0 || !errors.Is(err, layout.ErrForeign) {
		t.Errorf("waiting: %d, %v", now, err)
	}
	if _, now, err := c.Load(); now != 0 || !errors.Is(err, layout.ErrForeign) ||
		!strings.Contains(err.Error(), d.socket) {
		t.Errorf("loading: %d, %v", now, err)
	}
	if entries, _, err := d.cat.Load(); len(entries) != 0 || err != nil {
		t.Errorf("the other catalog has %v, %v", entries, err)
	}
	d.stop()
	open = mine
	d.start()
	if _, err := until(func() (layout.Revision, error) { return c.Apply(rev, entry("a", "mine")) }); err != nil {
		t.Errorf("the catalog is back: %v", err)
	}
}

// TestOlderFile: a client that has seen a later revision refuses an old copy of the file, with both
// revisions; the newest, which is brought back, is used on.
func TestOlderFile(t *testing.T) {
	open := inFile(t)
	d := newDaemon(t, open)
	c := d.dial()
	path := d.cat.Name()
	_, rev := loaded(t, c)
	first := must[layout.Revision](t)(c.Apply(rev, entry("a", "1")))
	old := must[[]byte](t)(os.ReadFile(path))
	last := must[layout.Revision](t)(c.Apply(first, entry("a", "2")))
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Await(context.Background(), last)
		waiting <- err
	}()
	await(t, "remote.(*Client).pollOnce")
	d.stop()
	newest := must[[]byte](t)(os.ReadFile(path))
	exchange := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	exchange(old)
	d.start()
	for what, call := range map[string]func() (layout.Revision, error){
		"Load":     func() (layout.Revision, error) { _, rev, err := c.Load(); return rev, err },
		"Revision": c.Revision,
		"Await":    func() (layout.Revision, error) { return c.Await(t.Context(), last) },
	} {
		now, err := until(call)
		behind, ok := errors.AsType[*layout.BehindError](err)
		if !ok || *behind != (layout.BehindError{Name: d.address(), Have: first, Seen: last}) ||
			!errors.Is(err, layout.ErrForeign) || now != 0 && what != "Revision" {
			t.Errorf("%s: %d, %v", what, now, err)
		}
	}
	if err := <-waiting; !errors.Is(err, layout.ErrForeign) {
		t.Errorf("waiting since before: %v", err)
	}
	if _, err := c.Apply(last, entry("a", "3")); !errors.Is(err, memory.ErrRevision) {
		t.Errorf("a change of the old copy: %v", err)
	}
	d.stop()
	exchange(newest)
	d.start()
	if _, err := until(func() (layout.Revision, error) { return c.Apply(last, entry("a", "3")) }); err != nil {
		t.Errorf("the newest is back: %v", err)
	}
	if all, _ := loaded(t, c); all != "a=3" {
		t.Errorf("%q", all)
	}
}

// TestRevisionsOutlive: revisions and identity are those of the file, whichever process serves it,
// and clients agree on them.
func TestRevisionsOutlive(t *testing.T) {
	d := newDaemon(t, inFile(t))
	c := d.dial()
	_, rev := loaded(t, c)
	rev = must[layout.Revision](t)(c.Apply(rev, entry("a", "1")))
	id := must[layout.Identity](t)(c.Identity())
	d.stop()
	d.start()
	c2 := d.dial()
	if got, err := c2.Identity(); got != id || id == (layout.Identity{}) || err != nil {
		t.Errorf("%v and %v, %v", id, got, err)
	}
	if _, now := loaded(t, c2); now != rev {
		t.Errorf("revision %d, %d before", now, rev)
	}
	if _, err := until(func() (layout.Revision, error) { return c.Apply(rev, entry("a", "2")) }); err != nil {
		t.Errorf("nothing has changed since: %v", err)
	}
	if err := c2.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c2.Identity(); err != nil {
		t.Errorf("what it knows: %v", err)
	}
}
