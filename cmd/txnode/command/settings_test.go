package command_test

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
)

// TestServeSettings: a flag goes before the environment, that before the file, and that
// before the default.
func TestServeSettings(t *testing.T) {
	dir := socketDir(t)
	listen := "unix:" + filepath.Join(dir, "s")
	file := filepath.Join(dir, "serve.yaml")
	if err := os.WriteFile(file, []byte("# a comment\nlisten:\n  - "+listen+"\n  - "+listen+
		"2\nmemory: 3MiB\nlog-level: warn\nhuge-pages: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	both := listen + ", " + listen + "2\n"
	for _, x := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"--config", file}, "a blade of 3MiB serves " + both},
		{map[string]string{"TXNODE_CONFIG": file}, nil, "a blade of 3MiB serves " + both},
		{map[string]string{"TXNODE_CONFIG": file, "TXNODE_MEMORY": "2MiB"}, nil, "a blade of 2MiB serves " + both},
		{
			map[string]string{"TXNODE_MEMORY": "2MiB", "TXNODE_LISTEN": listen},
			[]string{"--config", file, "--memory", "1MiB"}, "a blade of 1MiB serves " + listen + "\n",
		},
		{map[string]string{
			"TXNODE_LISTEN": listen + "," + listen + "2", "TXNODE_BLADE": "1MiB,64KiB", "TXNODE_LOG_LEVEL": "error",
		}, nil, "2 blades of 1MiB, 64KiB serve " + both},
		{nil, []string{"--config", file, "--listen", listen + "3"}, "a blade of 3MiB serves " + listen + "3\n"},
		// What goes before replaces also what excludes it.
		{nil, []string{"--config", file, "--blade", "1MiB", "--blade", "64KiB"}, "2 blades of 1MiB, 64KiB serve " +
			both},
		{
			map[string]string{"TXNODE_BLADE": "1MiB,64KiB"}, []string{"--config", file, "--memory", "2MiB"},
			"a blade of 2MiB serves " + both,
		},
		{
			map[string]string{"TXNODE_MEMORY": "2MiB", "TXNODE_SHM": dir, "TXNODE_LOG_LEVEL": "error"},
			[]string{"--listen", listen}, "a blade of 2MiB serves " + listen + "\n",
		},
	} {
		line, end := startServeIn(t, x.env, x.args...)
		if line != x.want {
			t.Errorf("%v %v: %q; want %q", x.env, x.args, line, x.want)
		}
		if code, stderr := end(); code != 0 || stderr != "" {
			t.Errorf("%v %v: exit code %d, %s", x.env, x.args, code, stderr)
		}
	}
}

// TestServeSettingsErrors: what is wrong with a file is told with its line, and what is wrong with
// a variable by its name.
func TestServeSettingsErrors(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "f")
	run := func(env map[string]string, want int, say string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		w := command.System()
		w.Stdout, w.Stderr, w.StderrTerminal = &stdout, &stderr, false
		w.Getenv, w.Environ = func(name string) string { return env[name] }, func() (all []string) {
			for name, v := range env {
				all = append(all, name+"="+v)
			}
			return append(all, "PATH=/bin")
		}
		code := command.Main(t.Context(), w, append([]string{"serve"}, args...))
		if code != want || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 ||
			!strings.Contains(stderr.String(), say) {
			t.Errorf("%v %v: exit code %d, not %d with %q: %s%s", env, args, code, want, say,
				stdout.String(), stderr.String())
		}
	}
	for text, say := range map[string]string{
		"memory: 1MiB\nmemroy: 1MiB\n":             file + `:2: "memroy" is no setting; the nearest is "memory"`,
		"\n\ntls_cert: x":                          file + `:3: "tls_cert" is no setting; the nearest is "tls-cert"`,
		"config: x":                                file + `:1: "config" is no setting`,
		"help: true":                               file + `:1: "help" is no setting`,
		"memory: 1MiB\n\nmemory: 2MiB":             file + ":3: memory is there twice, first in line 1",
		"listen: unix:/x\nmemory: much":            file + `:2: memory is "much": want a size in bytes`,
		"connections: [1, 2]":                      file + ":1: connections has one value, and no list",
		"blade:\n  - 1MiB\n  - {a: b}":             file + ":3: blade needs a value",
		"memory:":                                  file + ":1: memory needs a value",
		"- memory":                                 file + ":1: lines of NAME: VALUE are expected",
		"memory: [":                                "line 1",
		"memory: 1MiB\n---\nmemory: 1MiB":          "several documents",
		"huge-pages: maybe":                        file + `:1: huge-pages is "maybe"`,
		"x: 1\ny: 2":                               file + `:2: "y" is no setting`,
		"listen: nowhere\nlog-level: loud":         "--log-level is \"loud\"",
		"listen: unix:" + dir + "/s\nmemory: 1KiB": "--memory is 1KiB; it must be a positive multiple",
		"": "--listen is missing", "# nothing": "--listen is missing",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(nil, 2, say, "--config", file)
	}
	run(nil, 1, "--config: open "+file+"none: no such file", "--config", file+"none")
	run(map[string]string{"TXNODE_CONNECTIONS": "many"}, 2, `TXNODE_CONNECTIONS is "many"`)
	run(map[string]string{"TXNODE_LOG_FORMAT": "xml"}, 2, `--log-format is "xml"; it must be text or json`)
	run(map[string]string{"TXNODE_CONFIG": file + "none"}, 1, "no such file")
	run(map[string]string{"TXNODE_MEMORRY": "1MiB", "TXNODE_HISTORY": "x", "TXNODE_DEBUG": "1"}, 2,
		"TXNODE_MEMORRY is no setting; the nearest is TXNODE_MEMORY")
	run(map[string]string{"TXNODE_HELP": "true"}, 2, "TXNODE_HELP is no setting")
	run(nil, 2, "the path has 121 bytes, which is too long for a socket: at most 103 are possible",
		"--listen", "unix:/"+strings.Repeat("x", 120))
}

// TestDeploy: the example of a file is one, and the unit of systemd runs a command that there is.
func TestDeploy(t *testing.T) {
	deploy := filepath.Join("..", "..", "..", "deploy")
	b := newBed(t)
	if code, _, stderr := b.run("serve", "--config", filepath.Join(deploy, "serve.yaml")); code != 1 ||
		!strings.Contains(stderr, "the certificate: open /etc/txnode/tls.crt") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	unit, err := os.ReadFile(filepath.Join(deploy, "txnode.service"))
	if err != nil {
		t.Fatal(err)
	}
	_, start, ok := strings.Cut(string(unit), "\nExecStart=/usr/local/bin/txnode ")
	start, _, _ = strings.Cut(start, "\n")
	cmd, args, err := command.Root().Find(strings.Fields(start))
	if !ok || err != nil || cmd.Name() != "serve" || cmd.ParseFlags(args) != nil || cmd.Flags().NArg() > 0 {
		t.Errorf("%q: %v", start, err)
	}
	for _, say := range []string{
		"\nType=notify\n", "\nWatchdogSec=", "\nProtectSystem=strict\n", "\nNoNewPrivileges=yes\n",
	} {
		if !strings.Contains(string(unit), say) {
			t.Errorf("the unit lacks %q", say)
		}
	}
}

// TestServeNotify: systemd hears that the daemon serves, that it lives, and that it ends.
func TestServeNotify(t *testing.T) {
	dir := socketDir(t)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hear := func() string {
		t.Helper()
		p := make([]byte, 4096)
		n, err := l.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(p[:n])
	}
	env := map[string]string{"NOTIFY_SOCKET": filepath.Join(dir, "notify"), "WATCHDOG_USEC": "2000"}
	line, end := startServeIn(t, env, "--listen", "unix:"+filepath.Join(dir, "s"), "--memory", "64KiB",
		"--log-level", "warn")
	if got := hear(); got != "READY=1\nSTATUS="+strings.TrimSpace(line) {
		t.Errorf("%q", got)
	}
	for range 3 {
		if got := hear(); got != "WATCHDOG=1" {
			t.Errorf("%q", got)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if code, stderr := end(); code != 0 || stderr != "" {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	}()
	for got := hear(); got != "STOPPING=1"; got = hear() {
		if got != "WATCHDOG=1" {
			t.Errorf("%q", got)
		}
	}
	<-ended

	// Without one that listens the daemon serves, and says so.
	env["NOTIFY_SOCKET"] = filepath.Join(dir, "none")
	_, end = startServeIn(t, env, "--listen", "unix:"+filepath.Join(dir, "s"), "--memory", "64KiB")
	if code, stderr := end(); code != 0 || !strings.Contains(stderr, "systemd does not listen") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestServeLog: lines of JSON, or of text, from a level on.
func TestServeLog(t *testing.T) {
	dir := socketDir(t)
	run := func(args ...string) string {
		t.Helper()
		_, end := startServeIn(t, nil,
			append([]string{"--listen", "unix:" + filepath.Join(dir, "s"), "--memory", "64KiB"}, args...)...)
		code, stderr := end()
		if code != 0 {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		return stderr
	}
	var said []string
	for l := range strings.Lines(run("--log-format", "json")) {
		var x struct{ Level, Msg, Ts string }
		if err := json.Unmarshal([]byte(l), &x); err != nil || x.Level != "info" || x.Ts == "" {
			t.Errorf("%q: %v", l, err)
		}
		said = append(said, x.Msg)
	}
	if len(said) != 2 || said[0] != "serving" || !strings.HasPrefix(said[1], "ending") {
		t.Errorf("%q", said)
	}
	if got := run(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "\tinfo\tserving\t") {
		t.Errorf("%q", got)
	}
	if got := run("--log-level", "warn"); got != "" {
		t.Errorf("%q", got)
	}
}
