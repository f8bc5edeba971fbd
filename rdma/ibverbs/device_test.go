package ibverbs

import (
	"os"
	"testing"
)

// rdmaEnv names the device for the tests of a real one: DEVICE/PORT/GID, or two of them with a
// comma, for the server and for the client. make test-rdma sets it, in a guest.
const rdmaEnv = "TXNODE_RDMA"

// openEnv opens the devices that the environment names.
func openEnv(tb testing.TB) (server, client device) {
	tb.Helper()
	name := os.Getenv(rdmaEnv)
	if name == "" || !Built {
		tb.Skipf("there is no RDMA device: make test-rdma has one, and sets %s", rdmaEnv)
	}
	names := []string{name, name}
	for i := range name {
		if name[i] == ',' {
			names = []string{name[:i], name[i+1:]}
		}
	}
	var all []device
	for _, n := range names {
		d, err := ParseDevice(n)
		if err != nil {
			tb.Fatal(err)
		}
		dev, err := openDevice(d)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, dev)
	}
	return all[0], all[1]
}

// TestDevice runs the conformance suite on a device of the kernel.
func TestDevice(t *testing.T) {
	conform(t, openEnv)
}
