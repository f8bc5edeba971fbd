package command_test

import (
	"errors"
	"strings"
	"testing"

	"txnode/cmd/txnode/command"
	"txnode/rdma/ibverbs"
)

// TestDoctorDevice: what is wrong with an RDMA device is found, with what mends it.
func TestDoctorDevice(t *testing.T) {
	look := func(i *ibverbs.Info, err error) []check {
		defer command.SetDevice(i, err)()
		return doctor(t, "--rdma", "mlx5_0/1/3")
	}
	good := ibverbs.Info{
		Name: "mlx5_0", Firmware: "22.41.1000", Port: 1, Active: true, State: "active", Ethernet: true, GIDIndex: 3,
		GID: "10.0.0.1", GIDType: "RoCE v2", MTU: 4096, Atomics: true, Starts: 16, Link: "16.0 GT/s PCIe x16",
	}
	all := look(&good, nil)
	for _, name := range []string{
		"rdma device", "rdma port", "rdma address", "rdma mtu", "rdma atomics", "rdma flush", "rdma doorbells",
		"rdma slot",
	} {
		finds(t, all, "ok", name)
	}
	bad := good
	bad.Active, bad.State, bad.Atomics, bad.MTU, bad.Slower = false, "down", false, 1024, true
	bad.GIDType, bad.Doorbell, bad.Registers = "IB/RoCE v1", errors.New("no room"), errors.New("no memory")
	all = look(&bad, nil)
	finds(t, all, "fail", "rdma port", "port 1 is down", "ip link set")
	finds(t, all, "warn", "rdma address", "RoCE v1", "--rdma DEVICE/PORT/GID")
	finds(t, all, "warn", "rdma mtu", "1024", "mtu 4200")
	finds(t, all, "fail", "rdma atomics", "it has none")
	finds(t, all, "fail", "rdma memory", "no memory", "LimitMEMLOCK")
	finds(t, all, "warn", "rdma doorbells", "no room", "MLX5_TOTAL_UUARS")
	finds(t, all, "warn", "rdma slot", "x16", "lspci")
	bad = good
	bad.GID, bad.GIDType = "fe80::1", ""
	finds(t, look(&bad, nil), "warn", "rdma address", "fe80::1", "ip address add")
	bad.GID = "::"
	finds(t, look(&bad, nil), "fail", "rdma address", "GID 3 is empty")
	bad.Ethernet, bad.LID = false, 17
	finds(t, look(&bad, nil), "ok", "rdma address", "LID 17")
	finds(t, look(nil, ibverbs.ErrNotBuilt), "fail", "rdma device", "-tags ibverbs")
	finds(t, look(nil, ibverbs.ErrDevice), "fail", "rdma device", "no such device", "ibv_devices")
	bad = good
	bad.Software, bad.Name, bad.Doorbell = true, "rxe0", errors.New("not supported")
	finds(t, look(&bad, nil), "ok", "rdma doorbells", "software")
}

// TestDoctorRoutes: a device whose GID is not the address from which packets to a server leave is
// found.
func TestDoctorRoutes(t *testing.T) {
	i := ibverbs.Info{Name: "mlx5_0", Ethernet: true, GIDIndex: 3, GID: "10.0.0.1"}
	for _, x := range []struct{ from, want string }{
		{"10.0.0.1", "ok rdma route rdma:10.0.0.2:7000: GID 3 of mlx5_0 has the address"},
		{"127.0.0.1", "ok rdma route rdma:10.0.0.2:7000: it is this host"},
		{
			"10.9.0.1",
			"warn rdma route rdma:10.0.0.2:7000: packets leave from 10.9.0.1, and GID 3 of mlx5_0 is 10.0.0.1",
		},
		{"fd00::1", "ok rdma route rdma:10.0.0.2:7000: packets leave from fd00::1, which is of another kind"},
		{"", "fail rdma route rdma:10.0.0.2:7000: no way leads there"},
	} {
		got := command.Routes(&i, x.from, "rdma:10.0.0.2:7000", "unix:/run/b")
		if len(got) != 1 || !strings.HasPrefix(got[0], x.want) {
			t.Errorf("from %q: %q; want %q", x.from, got, x.want)
		}
	}
	i.Ethernet = false
	if got := command.Routes(&i, "10.9.0.1", "rdma:10.0.0.2:7000"); got != nil {
		t.Errorf("InfiniBand: %q", got)
	}
}
