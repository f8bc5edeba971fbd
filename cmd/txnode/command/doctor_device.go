package command

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"txnode/cluster"
	"txnode/rdma/ibverbs"
	"txnode/rdma/tcp"
)

// lookAt is ibverbs.Look, but in tests.
var lookAt = ibverbs.Look

// devices reports whether blades are behind RDMA devices.
func (c *examined) devices() bool {
	return slices.ContainsFunc(c.servers, func(s cluster.Server) bool {
		_, ok := ibverbs.ControlAddress(string(s.Address))
		return ok
	})
}

// sourceTo is the address of this host from which packets to an address leave; in tests another one.
// Nothing is sent.
var sourceTo = func(address string) (netip.Addr, error) {
	c, err := net.Dial("udp", address)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }() // it was not used
	a, err := netip.ParseAddrPort(c.LocalAddr().String())
	return a.Addr().Unmap().WithZone(""), err
}

// checkDevice examines the RDMA device of this host, and its way to servers of blades.
func (e *exam) checkDevice(servers []cluster.Server) {
	d, err := ibverbs.ParseDevice(e.access.RDMA)
	var i *ibverbs.Info
	if err == nil {
		i, err = lookAt(d)
	}
	switch {
	case errors.Is(err, ibverbs.ErrNotBuilt):
		e.bad(healthFail, "CGO_ENABLED=1 go build -tags ibverbs ./cmd/txnode", "rdma device", e.access.RDMA,
			"this program was built without RDMA")
		return
	case err != nil:
		e.bad(healthFail, "ibv_devices lists those that there are; Soft-RoCE: rdma link add rxe0 type rxe netdev eth0",
			"rdma device", e.access.RDMA, "%s", oneLine(err))
		return
	}
	kind := "a card"
	if i.Software {
		kind = "a device in software"
	}
	e.ok("rdma device", i.Name, "%s, firmware %s", kind, shown(i.Firmware))
	e.checkDevicePort(i)
	if i.Atomics {
		e.ok("rdma atomics", i.Name, "exact among all of this device; a queue pair has %d READs and atomics under way",
			i.Starts)
	} else {
		e.bad(healthFail, "use another device", "rdma atomics", i.Name, "it has none, and locks are atomics")
	}
	flush := "a READ behind the WRITE stands for it"
	if i.Flush {
		flush = "the device has it"
	}
	e.ok("rdma flush", i.Name, "%s", flush)
	if i.Registers != nil {
		e.bad(healthFail, "ulimit -l unlimited; of a systemd unit: LimitMEMLOCK=infinity", "rdma memory", i.Name, "%s",
			oneLine(i.Registers))
	}
	e.checkDoorbells(i)
	switch {
	case i.Slower:
		e.bad(healthWarn, "put the card into a faster slot: lspci -vv shows both ends", "rdma slot", i.Name,
			"%s, and the card could do more", i.Link)
	case i.Link != "":
		e.ok("rdma slot", i.Name, "%s", i.Link)
	}
	e.checkRoutes(i, servers)
}

// checkRoutes examines whether the GID of the device is the address from which packets to servers
// leave. The device sends from its GID, whatever the routes of the host are.
func (e *exam) checkRoutes(i *ibverbs.Info, servers []cluster.Server) {
	gid, err := netip.ParseAddr(i.GID)
	if err != nil || !i.Ethernet || gid.IsUnspecified() {
		return // InfiniBand goes by LIDs, and an empty GID was found before
	}
	for _, s := range servers {
		control, ok := ibverbs.ControlAddress(string(s.Address))
		if !ok {
			continue
		}
		_, address, err := tcp.ParseAddress(control)
		var from netip.Addr
		if err == nil {
			from, err = sourceTo(address)
		}
		switch name := string(s.Address); {
		case err != nil:
			e.bad(healthFail, "ip route get ADDRESS; ping ADDRESS", "rdma route", name, "no way leads there: %s",
				oneLine(err))
		case from == gid:
			e.ok("rdma route", name, "GID %d of %s has the address from which packets leave, %v", i.GIDIndex,
				i.Name, from)
		case from.IsLoopback():
			e.ok("rdma route", name, "it is this host")
		case from.Is4() != gid.Is4():
			e.ok("rdma route", name, "packets leave from %v, which is of another kind than GID %d of %s", from,
				i.GIDIndex, i.Name)
		default:
			e.bad(healthWarn, "name the device and its GID with this address (ibv_devinfo -v): --rdma DEVICE/PORT/GID",
				"rdma route", name, "packets leave from %v, and GID %d of %s is %v", from, i.GIDIndex, i.Name, gid)
		}
	}
}

// checkDevicePort examines link, GID and MTU.
func (e *exam) checkDevicePort(i *ibverbs.Info) {
	layer := "InfiniBand"
	if i.Ethernet {
		layer = "Ethernet"
	}
	if i.Active {
		e.ok("rdma port", i.Name, "port %d is active: %s", i.Port, layer)
	} else {
		e.bad(healthFail, "look at cable and switch; ip link set NETDEV up; on InfiniBand start a subnet manager",
			"rdma port", i.Name, "port %d is %s: %s", i.Port, i.State, layer)
	}
	gid := "ip address add ADDRESS/24 dev NETDEV; or name another GID: --rdma DEVICE/PORT/GID"
	switch {
	case !i.Ethernet:
		e.ok("rdma address", i.Name, "LID %d", i.LID)
	case i.GID == "::":
		e.bad(healthFail, gid, "rdma address", i.Name, "GID %d is empty", i.GIDIndex)
	case i.GIDType != "" && i.GIDType != "RoCE v2":
		e.bad(healthWarn, gid, "rdma address", i.Name, "GID %d is of %s, which routers do not know", i.GIDIndex,
			i.GIDType)
	case strings.HasPrefix(i.GID, "fe80:"):
		e.bad(healthWarn, gid, "rdma address", i.Name, "GID %d is %s, which leads to no other network", i.GIDIndex,
			i.GID)
	default:
		e.ok("rdma address", i.Name, "GID %d: %s %s", i.GIDIndex, i.GIDType, i.GID)
	}
	if i.MTU < 1024 || i.MTU < 4096 && !i.Software && i.Ethernet {
		e.bad(healthWarn, "ip link set NETDEV mtu 4200, or 9000, on all hosts and switches", "rdma mtu", i.Name,
			"%d bytes a packet: 4096 are possible", i.MTU)
	} else {
		e.ok("rdma mtu", i.Name, "%d bytes a packet", i.MTU)
	}
}

// checkDoorbells examines whether threads have doorbell registers of their own (SMART, section 4.1).
func (e *exam) checkDoorbells(i *ibverbs.Info) {
	const mlx5 = "MLX5_TOTAL_UUARS"
	switch {
	case i.Doorbell == nil:
		e.ok("rdma doorbells", i.Name, "each thread has its own")
	case i.Software:
		e.ok("rdma doorbells", i.Name, "a device in software has none")
	case strings.HasPrefix(i.Name, "mlx5") && e.w.Getenv(mlx5) == "":
		e.bad(healthWarn, "export "+mlx5+"=512", "rdma doorbells", i.Name, "threads share them: %s",
			oneLine(i.Doorbell))
	default:
		e.bad(healthWarn, "use a newer rdma-core", "rdma doorbells", i.Name, "threads share them: %s",
			oneLine(i.Doorbell))
	}
}
