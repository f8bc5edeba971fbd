package command_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"txnode/cmd/txnode/command"
)

// TestReplaceLostBesideDamage: what is left in place of a region that is gone has junk in the
// place of a record, which looks locked for ever. Copies are made of all the rest, and the command says so.
func TestReplaceLostBesideDamage(t *testing.T) {
	b := newBed(t)
	makeDatabase(t, b)
	dir := filepath.Join(b.dir, "data")
	if err := os.Remove(filepath.Join(dir, "blade-001.region")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "blade-000.region")
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Index(p, []byte("balance 100"))
	if value < 0x20 {
		t.Fatal("there is no such record")
	}
	copy(p[value-0x20:], bytes.Repeat([]byte{0xff}, 64))
	if err := os.WriteFile(path, p, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var said bytes.Buffer
		code, err := command.ReplaceLost(context.Background(), command.World{Stdout: io.Discard, Stderr: &said}, dir, 200*time.Millisecond)
		if err != nil || !strings.Contains(said.String(), "looked locked by nobody") {
			t.Errorf("exit code %d: %v\n%s", code, err, &said)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if code, _, stderr := b.run("check", dir); code != command.ExitVerification {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
