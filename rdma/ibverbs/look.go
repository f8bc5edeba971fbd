package ibverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"txnode/rdma"
)

// Info is what there is to know of a device and its port, for people.
type Info struct {
	Name, Firmware string
	Port           int
	Active         bool
	State          string // of the port
	Ethernet       bool   // RoCE; else InfiniBand
	GIDIndex       int
	GID            string
	GIDType        string // such as "RoCE v2"; "": not known
	LID            uint16
	MTU            int // bytes of a packet's payload
	Atomics, Flush bool
	Software       bool // no card
	Starts         int  // READs and atomics that a queue pair has under way
	// Doorbell is why threads have no doorbell registers of their own; nil: they have.
	Doorbell error
	// Registers is why a small registration fails; nil: it does not.
	Registers error
	// Link is the device's place in the host, as "8.0 GT/s PCIe x8"; "": not known. Slower: both
	// ends could do better.
	Link   string
	Slower bool
}

// Look opens a device, and closes it. Errors match ErrNotBuilt or ErrDevice.
func Look(d Device) (*Info, error) {
	dev, err := openDevice(d)
	if err != nil {
		return nil, err
	}
	i := look(dev)
	return i, dev.close()
}

func look(dev device) *Info {
	a := dev.attributes()
	i := &Info{
		Name: a.name, Firmware: a.firmware, Port: a.port, Active: a.active, State: a.state, Ethernet: a.ethernet,
		GIDIndex: a.gidIndex, LID: a.lid, MTU: 128 << a.mtu, Atomics: a.atomics, Flush: a.flush, Software: a.software,
		Starts: int(a.starts), GID: netip.AddrFrom16(a.gid).Unmap().String(),
	}
	root := "/sys/class/infiniband/" + a.name
	i.GIDType = line(fmt.Sprintf("%s/ports/%d/gid_attrs/types/%d", root, a.port, a.gidIndex))
	speed, width := line(root+"/device/current_link_speed"), line(root+"/device/current_link_width")
	if speed != "" && width != "" {
		i.Link = speed + " x" + width
		i.Slower = speed != line(root+"/device/max_link_speed") || width != line(root+"/device/max_link_width")
	}
	i.Doorbell = tryDoorbell(dev)
	i.Registers = tryRegister(dev)
	return i
}

// line is the first line of a file of the system; "" if there is none.
func line(path string) string {
	p, _ := os.ReadFile(path)
	first, _, _ := strings.Cut(string(p), "\n")
	return strings.TrimSpace(first)
}

func tryDoorbell(dev device) error {
	q, err := dev.newQueue(serverQueue, false, true)
	if err != nil {
		return err
	}
	return errors.Join(q.doorbell(), q.close())
}

func tryRegister(dev device) error {
	p, err := mapMemory(rdma.LineSize, false)
	if err != nil {
		return err
	}
	r, err := dev.register(p, accessLocalWrite)
	if err == nil {
		err = r.end()
	}
	return errors.Join(err, unmap(p))
}
