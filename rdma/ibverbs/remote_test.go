package ibverbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
)

// The suite with blades in processes of their own, which may be in another guest: TestDeviceHost
// waits there at serveEnv for connections of TestDeviceRemote, which has the same address in
// remoteEnv. Each connection gets a process of blades, whose file 3 is the connection:
//
//	to it      {"blades":2,"size":65536}        serve so many blades
//	from it    {"address":"rdma:10.1.0.2:40001"}
//	to it      {"stop":true,"blade":1}          or {"restart":true,"blade":1,"memory":true}
//	from it    {"error":"..."}                  "": it is done
//
// The process ends with the connection.
const (
	serveEnv  = "TXNODE_RDMA_SERVE"  // HOST:PORT
	remoteEnv = "TXNODE_RDMA_REMOTE" // HOST:PORT
	childEnv  = "TXNODE_RDMA_CHILD"  // HOST of a process of blades
)

// order is a line to a process of blades.
type order struct {
	Blades   int          `json:"blades,omitempty"`
	Size     uint64       `json:"size,omitempty"`
	ReadOnly bool         `json:"readonly,omitempty"`
	Stop     bool         `json:"stop,omitempty"`
	Restart  bool         `json:"restart,omitempty"`
	Blade    rdma.BladeID `json:"blade,omitempty"`
	Memory   bool         `json:"memory,omitempty"`
}

// told is a line from it.
type told struct {
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

// envDevice is the device that the environment names: the first of two.
func envDevice(tb testing.TB) device {
	tb.Helper()
	server, client := openEnv(tb)
	if err := client.close(); err != nil {
		tb.Error(err)
	}
	return server
}

// TestDeviceHost starts processes of blades, until it is ended.
func TestDeviceHost(t *testing.T) {
	at := os.Getenv(serveEnv)
	if at == "" {
		t.Skipf("%s is not set: make test-rdma sets it", serveEnv)
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ := net.SplitHostPort(at) // Listen has
	fmt.Println("blades are served at", at)
	for {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.(*net.TCPConn).File()
		if err = errors.Join(err, c.Close()); err != nil {
			t.Fatal(err)
		}
		p := exec.Command(os.Args[0], "-test.run", "^TestDeviceChild$", "-test.timeout", "0")
		p.Env = append(os.Environ(), childEnv+"="+host)
		p.Stdout, p.Stderr, p.ExtraFiles = os.Stderr, os.Stderr, []*os.File{f}
		if err = errors.Join(p.Start(), f.Close()); err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := p.Wait(); err != nil {
				fmt.Println("a process of blades:", err)
			}
		}()
	}
}

// TestDeviceChild is a process of blades.
func TestDeviceChild(t *testing.T) {
	name := os.Getenv(childEnv)
	if name == "" {
		t.Skip("it is a process of TestDeviceHost")
	}
	in, out := json.NewDecoder(os.NewFile(3, "orders")), json.NewEncoder(os.NewFile(3, "answers"))
	var o order
	if err := in.Decode(&o); err != nil {
		t.Fatal(err)
	}
	h := serveAt(t, net.JoinHostPort(name, "0"), envDevice(t), ServerOptions{
		Blades: sizes(o.Blades, o.Size), ReadOnly: o.ReadOnly,
	})
	answer := told{Address: h.addr}
	for {
		if err := out.Encode(answer); err != nil {
			return // the client is gone
		}
		o = order{}
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Log(err)
			return
		}
		var err error
		switch {
		case o.Stop:
			err = h.StopBlade(o.Blade)
		case o.Restart:
			err = h.RestartBlade(o.Blade, o.Memory)
		}
		if answer = (told{}); err != nil {
			answer.Error = err.Error()
		}
	}
}

// remote is a process of blades, as its client has it.
type remote struct {
	*Fabric
	mu  sync.Mutex
	c   net.Conn
	in  *json.Decoder
	out *json.Encoder
}

func (r *remote) ask(o order) (a told, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = r.c.SetDeadline(time.Now().Add(time.Minute)); err == nil {
		err = r.out.Encode(o)
	}
	if err == nil {
		err = r.in.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

func (r *remote) StopBlade(b rdma.BladeID) error {
	_, err := r.ask(order{Stop: true, Blade: b})
	return err
}

func (r *remote) RestartBlade(b rdma.BladeID, memory bool) error {
	_, err := r.ask(order{Restart: true, Blade: b, Memory: memory})
	return err
}

// openRemote has a process of blades begin, and connects to them.
func openRemote(tb testing.TB, o order) *remote {
	tb.Helper()
	c, err := net.Dial("tcp", os.Getenv(remoteEnv))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	r := &remote{c: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}
	a, err := r.ask(o)
	if err != nil {
		tb.Fatal(err)
	}
	server, client := openEnv(tb)
	if err := server.close(); err != nil {
		tb.Error(err)
	}
	to := patient
	if f := EnvFiles(tb); f != nil {
		to.Credentials = f.Client
	}
	r.Fabric = connect(tb, client, Options{TCP: to}, a.Address)
	return r
}

// TestDeviceRemote runs the suite on blades in processes of their own.
func TestDeviceRemote(t *testing.T) {
	if os.Getenv(remoteEnv) == "" {
		t.Skipf("%s is not set: make test-rdma sets it", remoteEnv)
	}
	fabrictest.Run(t, func(tb testing.TB, n int, size uint64) rdma.Fabric {
		return openRemote(tb, order{Blades: n, Size: size})
	})
	t.Run("read-only", func(t *testing.T) {
		fabrictest.ReadOnly(t, func(tb testing.TB, size uint64) rdma.Fabric {
			return openRemote(tb, order{Blades: 1, Size: size, ReadOnly: true}).Fabric
		})
	})
}
