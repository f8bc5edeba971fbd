package command_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"txnode/cmd/txnode/command"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma/ibverbs"
	"txnode/rdma/shm"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// socketDir is a directory whose name is short enough for sockets.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "serve") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startServe runs txnode serve until end is called, which returns the exit code and what was
// printed on standard error; line is what the command says when it serves.
func startServe(t *testing.T, args ...string) (line string, end func() (int, string)) {
	t.Helper()
	return startServeIn(t, nil, append([]string{"--log-level", "warn"}, args...)...)
}

// startServeIn is startServe in an environment that has some variables more.
func startServeIn(t *testing.T, env map[string]string, args ...string) (line string, end func() (int, string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, out := io.Pipe()
	var stderr bytes.Buffer
	w := command.System()
	w.Getenv, w.Environ = func(name string) string { return env[name] }, nil
	w.Again = nil // its end is the context's
	w.Stdout, w.Stderr, w.StderrTerminal = out, &stderr, false
	code := make(chan int, 1)
	go func() {
		code <- command.Main(ctx, w, append([]string{"serve"}, args...))
		out.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		cancel()
		t.Fatalf("%v: exit code %d, %s", args, <-code, stderr.String())
	}
	return line, func() (int, string) {
		cancel()
		return <-code, stderr.String()
	}
}

// TestServe: a program has a database on two blades that are served, and they end in good order.
func TestServe(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	var ends []func() (int, string)
	for _, listen := range []string{"unix:" + filepath.Join(dir, "a"), "tcp:127.0.0.1:0"} {
		line, end := startServe(t, "--listen", listen, "--memory", "64MiB", "--secret-file", secret)
		address, ok := strings.CutPrefix(strings.TrimSpace(line), "a blade of 64MiB serves ")
		if !ok {
			t.Fatalf("it says %q", line)
		}
		addresses, ends = append(addresses, address), append(ends, end)
	}
	f, err := tcp.Dial(ctx, addresses, tcp.Options{Secret: []byte("correct horse battery staple")})
	if err != nil {
		t.Fatal(err)
	}
	db, err := txn.Open(ctx, txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, SegmentSize: 1 << 20, LogArea: 256 << 10, IndexGroups: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := txn.CreateTable(db, "words", txn.String, txn.Plain[uint64]())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(ctx, func(tx *txn.Tx) error { return table.Put(tx, "hello", 42) }); err != nil {
		t.Fatal(err)
	}
	if err := db.View(ctx, func(tx *txn.Tx) error {
		if v, err := table.Get(tx, "hello"); err != nil || v != 42 {
			t.Errorf("%d, %v", v, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := db.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tcp.Dial(ctx, addresses, tcp.Options{}); err == nil {
		t.Error("a client without the secret has connected")
	}
	for i, end := range ends {
		if code, stderr := end(); code != 0 || !strings.Contains(stderr, "secret") {
			t.Errorf("blade %d: exit code %d, %q", i, code, stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !os.IsNotExist(err) {
		t.Errorf("its socket is left: %v", err)
	}
}

// TestServeSocketMode: a unix socket is for all users where a secret lets clients in, and for the
// own one where the user does.
func TestServeSocketMode(t *testing.T) {
	dir := socketDir(t)
	path, secret := filepath.Join(dir, "s"), filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		flags []string
		want  os.FileMode
	}{
		{nil, 0o600}, {[]string{"--secret-file", secret}, 0o666},
		{[]string{"--secret-file", secret, "--socket-mode", "660"}, 0o660},
	} {
		_, end := startServe(t, append(x.flags, "--listen", "unix:"+path, "--memory", "1MiB")...)
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != x.want {
			t.Errorf("%v: %v, %v", x.flags, st.Mode(), err)
		}
		if code, stderr := end(); code != 0 {
			t.Errorf("%v: exit code %d: %s", x.flags, code, stderr)
		}
	}
}

// TestServeErrors: what cannot be served is one clear line.
func TestServeErrors(t *testing.T) {
	dir := socketDir(t)
	b := newBed(t)
	one := func(code int, say string, args ...string) {
		t.Helper()
		got, out, stderr := b.run(append([]string{"serve"}, args...)...)
		if got != code || !strings.Contains(stderr, say) || strings.Count(stderr, "\n") != 1 || out != "" {
			t.Errorf("%v: exit code %d, not %d: %s%s", args, got, code, out, stderr)
		}
	}
	one(2, "--listen is missing")
	one(2, "both given", "--listen", "unix:/tmp/a", "--shm", "/tmp/b")
	one(2, "rdma:HOST:PORT", "--listen", "here")
	one(2, "reached in one way", "--listen", "rdma:127.0.0.1:0", "--listen", "unix:/tmp/a")
	one(2, "reached in one way", "--listen", "rdma:127.0.0.1:0", "--shm", "/tmp/b", "--catalog", "memory")
	one(2, "no RDMA device may pin", "--listen", "rdma:127.0.0.1:0", "--dir", dir)
	one(2, "DEVICE/PORT/GID", "--listen", "rdma:127.0.0.1:0", "--rdma", "mlx5_0/x")
	if !ibverbs.Built {
		one(1, "-tags ibverbs", "--listen", "rdma:127.0.0.1:0")
	}
	one(2, "--memory is 1000; it must be a positive multiple of 64KiB", "--listen", "unix:x", "--memory", "1000")
	one(2, "--connections is 0", "--listen", "unix:x", "--connections", "0")
	one(2, "octal digits", "--listen", "unix:x", "--socket-mode", "rw")
	one(2, "takes no argument", "--listen", "unix:x", "now")
	one(2, "--patience is 0s; it must be more than 0s", "--shm", dir, "--patience", "0s")
	one(2, "--patience is 25h0m0s; it must be more than 0s, and at most 24h0m0s", "--shm", dir, "--patience", "25h")
	one(2, "where to serve the catalog", "--catalog", "memory")
	one(2, "where to serve the catalog", "--catalog", "memory", "--shm", dir)
	one(2, "--memory is 0; it must be a positive multiple of 64KiB", "--listen", "unix:x", "--memory", "0")
	one(2, "--memory is 0; it must be a positive multiple of 64KiB", "--listen", "unix:x", "--memory", "0", "--shm",
		dir, "--catalog", "memory")
	one(1, "127.0.0.1", "--listen", "tcp:0.0.0.0:0", "--memory", "64KiB")
	one(1, "no such file", "--listen", "unix:x", "--secret-file", filepath.Join(dir, "none"))
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one(1, "at least 16", "--listen", "unix:x", "--secret-file", short)
	one(1, "no socket", "--listen", "unix:"+short)

	one(1, "not a directory", "--listen", "unix:"+filepath.Join(dir, "c"), "--catalog", short)
	if err := os.Mkdir(filepath.Join(dir, "damaged"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "damaged", "catalog.db"), []byte("no catalog"), 0o600); err != nil {
		t.Fatal(err)
	}
	one(1, "damaged or not a catalog", "--listen", "unix:"+filepath.Join(dir, "c"), "--catalog",
		filepath.Join(dir, "damaged"))

	socket := filepath.Join(dir, "s")
	_, end := startServe(t, "--listen", "unix:"+socket, "--memory", "64KiB")
	one(1, "another process serves it", "--listen", "unix:"+socket, "--memory", "64KiB")
	if code, stderr := end(); code != 0 || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}

	// What a killed process leaves is no reason not to serve.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, end = startServe(t, "--listen", "unix:"+socket, "--memory", "64KiB")
	if code, stderr := end(); code != 0 || stderr != "" {
		t.Errorf("after a killed one: exit code %d, %s", code, stderr)
	}
}

// TestServeShared: a program has a database on two blades that it maps, and they end in good order.
func TestServeShared(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("for Linux")
	}
	ctx, dir := t.Context(), socketDir(t)
	var ends []func() (int, string)
	for _, name := range []string{"a", "b"} {
		line, end := startServe(t, "--shm", dir, "--name", name, "--memory", "64MiB")
		if want := "a blade of 64MiB is in " + dir + " as " + name + "\n"; line != want {
			t.Fatalf("it says %q; want %q", line, want)
		}
		ends = append(ends, end)
	}
	f, err := shm.Dial(ctx, dir, shm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	db, err := txn.Open(ctx, txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, SegmentSize: 1 << 20, LogArea: 256 << 10, IndexGroups: 64,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Close(ctx), f.Close()); err != nil {
		t.Error(err)
	}
	for _, end := range ends {
		if code, stderr := end(); code != 0 || stderr != "" {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	}
	if f, err = shm.Dial(ctx, dir, shm.Options{Servers: []string{"a"}}); err == nil {
		t.Error("a blade that has ended is dialled")
		_ = f.Close()
	}
}

// TestServeCatalog: a catalog is served beside a blade, without one, and beside a blade that is
// mapped. A file keeps it.
func TestServeCatalog(t *testing.T) {
	ctx, dir := t.Context(), socketDir(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("correct horse battery staple"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := "unix:" + filepath.Join(dir, "s")
	file := filepath.Join(dir, "made", "here")
	options := tcp.Options{Secret: []byte("correct horse battery staple")}
	for i, x := range []struct {
		say   string
		args  []string
		keeps bool
	}{
		{
			"a blade of 64KiB and a catalog in memory serve " + address,
			[]string{"--memory", "64KiB", "--catalog", "memory"}, false,
		},
		{"a catalog in memory serves " + address, []string{"--memory", "0", "--catalog", "memory"}, false},
		{"the catalog in " + file + " serves " + address, []string{"--memory", "0", "--catalog", file}, true},
		{
			"a blade of 64KiB and the catalog in " + file + " serve " + address,
			[]string{"--memory", "64KiB", "--catalog", file}, true,
		},
		{
			"a blade of 64KiB is in " + dir + " as a; the catalog in " + file + " serves " + address,
			[]string{"--memory", "64KiB", "--shm", dir, "--catalog", file}, true,
		},
	} {
		if strings.Contains(x.say, " as a;") && runtime.GOOS != "linux" {
			continue
		}
		line, end := startServe(t, append([]string{"--listen", address, "--secret-file", secret}, x.args...)...)
		if line != x.say+"\n" {
			t.Errorf("it says %q, not %q", line, x.say)
		}
		c, err := remote.Dial(ctx, address, options)
		if err != nil {
			t.Fatal(err)
		}
		entries, rev, err := c.Load()
		if err != nil || x.keeps && i > 2 && len(entries) != i-2 || !x.keeps && len(entries) > 0 {
			t.Errorf("%v: %v, %v", x.args, entries, err)
		}
		if _, err := c.Apply(rev, []layout.Entry{{Key: fmt.Sprint(i), Value: []byte("x")}}); err != nil {
			t.Error(err)
		}
		if x.keeps {
			b := newBed(t)
			code, _, stderr := b.run("serve", "--listen", address+"2", "--catalog", file, "--memory", "0")
			if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, file) ||
				!strings.Contains(stderr, "is open in another process") {
				t.Errorf("two of one file: exit code %d, %s", code, stderr)
			}
		}
		if strings.Contains(x.say, " as a;") {
			f, err := shm.Dial(ctx, dir, shm.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := c.Await(context.Background(), rev+100)
			waiting <- err
		}()
		if code, stderr := end(); code != 0 || stderr != "" {
			t.Errorf("%v: exit code %d, %s", x.args, code, stderr)
		}
		if _, _, err := c.Load(); !errors.Is(err, remote.ErrAway) {
			t.Errorf("a catalog whose daemon has ended: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waiting; !errors.Is(err, memory.ErrClosed) {
			t.Errorf("what waits while the daemon ends: %v", err)
		}
	}
}

// TestServeReports: the log of a daemon says which client a key fence waits for, which
// was killed, and why.
func TestServeReports(t *testing.T) {
	for _, x := range []struct {
		err  error
		want []string
	}{
		{
			&shm.KilledError{Server: "a", Process: 4242, User: 7, Silent: 10 * time.Second},
			[]string{`"level":"error"`, `"process":4242`, `"user":7`, `"silent":10`, "no sign of life"},
		},
		{
			fmt.Errorf("blade 1: %w: process 4242", shm.ErrStuck),
			[]string{`"level":"warn"`, "waits for a client", "process 4242"},
		},
		{shm.ErrRefused, []string{`"level":"warn"`, "/dev/shm/blades", "refused"}},
	} {
		var log strings.Builder
		command.ReportShared(&log, x.err)
		for _, want := range x.want {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%v is logged as %s; want %s", x.err, log.String(), want)
			}
		}
	}
}
