package ibverbs

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"txnode/rdma"
	"txnode/rdma/tcp"
)

// faultsEnv names the network interface and the device of the client of TXNODE_RDMA, as "v1,rxp1",
// on which TestDeviceFaults may do what it likes: in a guest of scripts/rdma/guest.sh -p.
const faultsEnv = "TXNODE_RDMA_FAULTS"

func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// TestDeviceFaults: packets are lost, the link is down, the device is removed.
func TestDeviceFaults(t *testing.T) {
	netdev, dev, ok := strings.Cut(os.Getenv(faultsEnv), ",")
	if !ok {
		t.Skipf("%s is not set: make test-rdma sets it", faultsEnv)
	}
	server, client := openEnv(t)
	told := make(chan error, 100)
	h := serve(t, server, ServerOptions{Blades: sizes(1, 1<<16)})
	f := connect(t, client, Options{
		TCP: tcp.Options{Verb: 20 * time.Second}, Report: func(err error) { told <- err },
	}, h.addr)
	thread, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	at := rdma.RemoteAddr{Key: f.Known()[0].Key}
	c := thread.Plain()
	var b rdma.Batch
	// count adds up to n, and returns how many additions are certain and how many are not.
	count := func(n int) (sure, unsure uint64) {
		t.Helper()
		for range n {
			b.Reset()
			b.Write(rdma.RemoteAddr{Key: at.Key, Off: 4096}, 0, 4096)
			i := b.FAA(at, 1)
			switch err := c.Do(&b); {
			case err == nil:
				sure++
			case b.WR(i).Status.Uncertain():
				unsure++
				fallthrough
			default:
				if !errors.Is(err, rdma.ErrBladeDown) {
					t.Fatal(err)
				}
				if err := thread.Reconnect(0); err != nil {
					t.Fatal(err)
				}
			}
		}
		return sure, unsure
	}
	value := func() uint64 {
		t.Helper()
		b.Reset()
		i := b.FAA(at, 0)
		if err := c.Do(&b); err != nil {
			t.Fatal(err)
		}
		return b.Result(i)
	}

	command(t, "/usr/bin/tc", "qdisc", "add", "dev", netdev, "root", "netem", "loss", "5%")
	sure, unsure := count(100)
	command(t, "/usr/bin/tc", "qdisc", "del", "dev", netdev, "root")
	if n := value(); n < sure || n > sure+unsure {
		t.Errorf("with packets lost: %d additions are certain and %d not, and the word is %d", sure, unsure, n)
	}
	t.Logf("5%% of packets lost: %d of 100 additions certain", sure)

	was := value()
	command(t, "/usr/bin/ip", "link", "set", netdev, "down")
	b.Reset()
	b.FAA(at, 1)
	if err := c.Do(&b); !errors.Is(err, rdma.ErrBladeDown) || !b.WR(0).Status.Uncertain() {
		t.Errorf("an addition while the link is down: %v", err)
	}
	if err := <-told; !strings.Contains(err.Error(), "port is down") {
		t.Errorf("it was reported: %v", err)
	}
	command(t, "/usr/bin/ip", "link", "set", netdev, "up")
	for i := 0; ; i++ { // until the port has its address again
		err := thread.Reconnect(0)
		if err == nil {
			b.Reset()
			b.FAA(at, 0)
			if err = c.Do(&b); err == nil {
				break
			}
		}
		if i == 300 {
			t.Fatalf("the link is up, and it does not connect: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if n := value(); n > was+1 {
		t.Errorf("one addition while the link was down has made %d of %d", n, was)
	}

	// Newer kernels take the device from its users. Older ones wait until nobody has it open.
	removal := exec.Command("/usr/bin/rdma", "link", "del", dev)
	if err := removal.Start(); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 300 && !f.gone.Load(); i++ {
		time.Sleep(10 * time.Millisecond)
	}
	if f.gone.Load() {
		b.Reset()
		b.FAA(at, 1)
		if err := c.Do(&b); !errors.Is(err, rdma.ErrBladeDown) && b.WR(0).Status != rdma.StatusFlushed {
			t.Errorf("an addition on a device that was removed: %v", err)
		}
		if err := thread.Reconnect(0); !errors.Is(err, ErrDevice) {
			t.Errorf("Reconnect on a device that was removed: %v", err)
		}
	} else {
		t.Log("this kernel waits with the removal")
	}
	if err := thread.Close(); err != nil {
		t.Errorf("closing a thread: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Logf("closing the fabric: %v", err)
	}
	if err := removal.Wait(); err != nil {
		t.Errorf("removing the device: %v", err)
	}
}
