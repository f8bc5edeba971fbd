package ibverbs

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"txnode/internal/validate"
	"txnode/rdma/tcp"
)

// Device names a device of this host, a port of it, and a GID of the port. The zero value is the
// first device with an active port; on Ethernet its GID for RoCE v2, IPv4 before IPv6.
type Device struct {
	Name string // of the kernel, such as mlx5_0; "": the first
	Port int    // from 1; 0: the first that is active
	// GID is an index in the table of the port; -1, or 0 in the zero value: it is chosen.
	GID    int
	chosen bool // GID counts
}

// ParseDevice reads DEVICE, DEVICE/PORT or DEVICE/PORT/GID, as txnode's --rdma; "" is the zero
// value. Errors are ErrOptions.
func ParseDevice(s string) (Device, error) {
	d := Device{}
	if s == "" {
		return d, nil
	}
	parts := strings.Split(s, "/")
	d.Name = parts[0]
	bad := fmt.Errorf("%w: device %q: it must be DEVICE, DEVICE/PORT or DEVICE/PORT/GID, such as mlx5_0/1/3",
		ErrOptions, s)
	if len(parts) > 3 || d.Name == "" {
		return d, bad
	}
	var err error
	if len(parts) > 1 {
		if d.Port, err = strconv.Atoi(parts[1]); err != nil || d.Port < 1 || d.Port > 255 {
			return d, bad
		}
	}
	if len(parts) > 2 {
		d.chosen = true
		if d.GID, err = strconv.Atoi(parts[2]); err != nil || d.GID < 0 || d.GID > 1<<16 {
			return d, bad
		}
	}
	return d, nil
}

// String is what ParseDevice reads.
func (d Device) String() string {
	switch {
	case d.chosen:
		return fmt.Sprintf("%s/%d/%d", d.Name, d.Port, d.GID)
	case d.Port != 0:
		return fmt.Sprintf("%s/%d", d.Name, d.Port)
	}
	return d.Name
}

// Options configure a client: Dial. The zero value is usable.
type Options struct {
	// TCP is for the control path. Verb is how long a request may be without a completion: then its
	// queue pair is put into the error state, and what is outstanding there fails with
	// StatusTimeout.
	TCP tcp.Options
	// Device of this host.
	Device Device
	// Spin is how long a thread polls for completions before it sleeps; 0: DefaultSpin on a card,
	// and not at all on a device in software, which needs the processor for the verbs themselves.
	// Negative: not at all.
	Spin time.Duration
	// Report is told of asynchronous events of the device, and of requests that have failed for
	// another reason than their key, in words; nil: nothing is. Threads call it: it must not block.
	Report func(error)
}

// DefaultSpin is the default of Options.Spin on a card.
const DefaultSpin = 4 * time.Microsecond

// ServerOptions configure a server.
type ServerOptions struct {
	// Blades are the sizes of the blades' regions in bytes: multiples of 64 KiB.
	Blades []uint64
	// HugePages asks for explicit huge pages, which must have been reserved; sizes are multiples
	// of theirs. Transparent ones are used anyway.
	HugePages bool
	// ReadOnly rejects WRITEs and atomics.
	ReadOnly bool
	// Device of this host. All blades are reached through it: atomics of two devices do not know
	// of each other.
	Device Device
	// Report is told of asynchronous events of the device, in words; nil: nothing is.
	Report func(error)
}

const (
	sizeUnit  = 1 << 16
	maxBlades = 1 << 12
)

func (o *ServerOptions) validate() error {
	var f validate.Faults
	f.Check(len(o.Blades) > 0 && len(o.Blades) <= maxBlades, "%d blades: between 1 and %d are possible",
		len(o.Blades), maxBlades)
	for i, n := range o.Blades {
		f.Check(n > 0 && n%sizeUnit == 0 && n <= 1<<46,
			"blade %d of %d bytes: the size must be a multiple of 64 KiB, from 64 KiB to 64 TiB", i, n)
	}
	return f.Err(ErrOptions)
}
