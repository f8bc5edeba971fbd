package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/catalog/remote"
	"txnode/rdma/tcp"
)

// TestCatalogSurvives: the daemon of a catalog is killed again and again while a client changes it. What the client was told
// is there when the next one serves the directory, and the client goes on.
func TestCatalogSurvives(t *testing.T) {
	dir, err := os.MkdirTemp("", "catalog") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := "unix:" + filepath.Join(dir, "s")
	serve := func() *program {
		return start(t, "serve", "--listen", address, "--catalog", filepath.Join(dir, "data"), "--memory", "0")
	}
	p := serve()
	var c *remote.Client
	for {
		if c, err = remote.Dial(t.Context(), address, tcp.Options{}); err == nil {
			break
		}
		if !errors.Is(err, remote.ErrAway) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	defer c.Close()
	_, rev, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	watching, stop := context.WithCancel(t.Context())
	go func() { // revisions grow, whatever becomes of the daemon
		var after memory.Revision
		for {
			now, err := c.Await(watching, after)
			if err == nil && now <= after {
				err = fmt.Errorf("revision %d after %d", now, after)
			}
			if err != nil {
				watched <- err
				return
			}
			after = now
		}
	}()
	const rounds, each = 3, 20
	told := map[string]bool{} // true: the change was made; false: it may have been
	for round := range rounds {
		for i := range each {
			if i == each/2 {
				go func() { _ = p.Process.Kill() }() // its end is seen below
			}
			key := fmt.Sprintf("%d/%02d", round, i)
			next, err := c.Apply(rev, []memory.Entry{{Key: key, Value: []byte("x")}})
			if err != nil {
				if !errors.Is(err, remote.ErrAway) {
					t.Errorf("%s: %v", key, err)
				}
				told[key] = false
				break
			}
			told[key], rev = true, next
		}
		if code := p.end(t); code != -1 && code != 0 {
			t.Fatalf("the daemon ends with %d: %s", code, p.err.String())
		}
		p = serve()
		var entries []memory.Entry
		for {
			if entries, rev, err = c.Load(); !errors.Is(err, remote.ErrAway) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, e := range entries {
			have[e.Key] = true
			if _, ok := told[e.Key]; !ok {
				t.Errorf("%s is there, and was never written", e.Key)
			}
		}
		for key, made := range told {
			if made && !have[key] {
				t.Errorf("round %d: %s is lost", round, key)
			}
			if !made { // it is decided now
				told[key] = have[key]
			}
		}
	}
	stop()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
