package etcdtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Server is an etcd with one member, in a process of its own, on a unix socket. It ends with the
// test.
type Server struct {
	// Endpoint is where it serves clients.
	Endpoint string
	// Address is another such place: HOST:PORT.
	Address string

	path string // of the program
	dir  string
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// Start starts a server with an empty directory, and more arguments. The test is skipped where
// there is no etcd, and with -short.
func Start(t *testing.T, args ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("a real etcd takes seconds: without -short")
	}
	path := program()
	if path == "" {
		t.Skip("there is no etcd: make etcd, or apt-get install -y etcd-server")
	}
	s := &Server{path: path, dir: tempDir(t), args: args}
	s.Endpoint = "unix://" + filepath.Join(s.dir, socket)
	t.Cleanup(s.Kill)
	s.Address = forward(t, filepath.Join(s.dir, socket))
	s.Restart(t)
	return s
}

// program is the path of the program: that of PATH, or the one that make etcd has put into bin.
// "": there is none.
func program() string {
	if path, err := exec.LookPath("etcd"); err == nil {
		return path
	}
	for dir, _ := os.Getwd(); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "tool.sh")); err == nil {
			path, err := exec.LookPath(filepath.Join(dir, "bin", "etcd"))
			if err != nil {
				return ""
			}
			return path
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// tempDir is t.TempDir with a path that is short enough for a socket.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Names of the sockets: etcd makes them in its directory.
const (
	socket = "client:1"
	peers  = "peer:1"
)

// Restart starts the server again after Kill, and waits until it answers.
func (s *Server) Restart(t *testing.T) {
	t.Helper()
	for _, name := range []string{socket, peers} {
		_ = os.Remove(filepath.Join(s.dir, name))
	}
	s.log.Reset()
	s.cmd = exec.Command(s.path, append([]string{"--data-dir", "data", "--logger", "zap", "--log-level", "warn",
		"--listen-client-urls", "unix://" + socket, "--advertise-client-urls", "unix://" + socket,
		"--listen-peer-urls", "unix://" + peers, "--initial-advertise-peer-urls",
		"unix://" + peers, "--initial-cluster", "default=unix://" + peers,
	}, s.args...)...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	answers := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { defer close(answers); s.ask(ctx) }()
	cmd := s.cmd
	go func() { ended <- cmd.Wait() }()
	select {
	case <-answers:
	case err := <-ended:
		t.Fatalf("etcd has ended: %v\n%s", err, s.log.String())
	}
}

// ask returns when the server has answered a read, or ctx has ended.
func (s *Server) ask(ctx context.Context) {
	conn, err := grpc.NewClient(s.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err) // the endpoint is wrong
	}
	defer func() { _ = conn.Close() }()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := etcdserverpb.NewKVClient(conn).Range(once, &etcdserverpb.RangeRequest{Key: []byte("none")},
			grpc.WaitForReady(true))
		cancel()
		if err == nil {
			return
		}
	}
}

// Kill ends the process at once. Its directory stays.
func (s *Server) Kill() { _ = s.cmd.Process.Kill() }
