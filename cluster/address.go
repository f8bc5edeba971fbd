package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"txnode/rdma/ibverbs"
	"txnode/rdma/tcp"
)

// BladeAddress is where a server of blades is: see the package's documentation.
type BladeAddress string

// shmPrefix begins the address of a server of package shm.
const shmPrefix = "shm:"

// shared takes the address of a server of package shm apart; ok: it is one.
func (a BladeAddress) shared() (dir, name string, ok bool) {
	path, ok := strings.CutPrefix(string(a), shmPrefix)
	if !ok {
		return "", "", false
	}
	dir, name = filepath.Split(strings.TrimPrefix(path, "//"))
	return filepath.Clean(dir), name, true
}

// device reports whether a is the address of a server of package ibverbs.
func (a BladeAddress) device() bool {
	_, ok := ibverbs.ControlAddress(string(a))
	return ok
}

// controlOf is where package tcp asks a daemon whose address is on sockets, or that of a device's
// control path.
func controlOf(address string) string {
	if a, ok := ibverbs.ControlAddress(address); ok {
		return a
	}
	return address
}

// kind is in which way a blade is reached: all of a cluster are of one kind. Atomics of a device do
// not know of those of a processor.
func (a BladeAddress) kind() string {
	_, _, shm := a.shared()
	switch {
	case shm:
		return "shared memory"
	case strings.HasPrefix(string(a), "rdma:"):
		return "RDMA devices"
	}
	return "sockets"
}

// absolute is an address that leads to the same server from every directory: programs of any take
// it from the catalog.
func (a BladeAddress) absolute() (BladeAddress, error) {
	for _, scheme := range []string{"unix:", shmPrefix} {
		path, ok := strings.CutPrefix(string(a), scheme)
		if path = strings.TrimPrefix(path, "//"); !ok || path == "" || filepath.IsAbs(path) || path[0] == '@' {
			continue
		}
		if scheme == shmPrefix && !strings.Contains(path, "/") { // a directory only: check says what is wrong
			continue
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return "", fmt.Errorf("%w: %s: the directory that it begins in: %w", ErrOptions, a, err)
		}
		return BladeAddress(scheme + path), nil
	}
	return a, nil
}

// check checks addresses, of which there must be some.
func check(addresses []BladeAddress) error {
	if len(addresses) == 0 {
		return fmt.Errorf("%w: no addresses of blades", ErrOptions)
	}
	first, _, _ := addresses[0].shared()
	seen := map[BladeAddress]bool{}
	for _, a := range addresses {
		dir, name, ok := a.shared()
		switch {
		case seen[a]:
			return fmt.Errorf("%w: %s is named twice", ErrOptions, a)
		case a.kind() != addresses[0].kind():
			return fmt.Errorf("%w: %s and %s: a cluster has blades of shared memory, of sockets, or of RDMA devices, "+
				"and not several kinds", ErrOptions, addresses[0], a)
		case ok && (dir == "." || name == ""):
			return fmt.Errorf("%w: %s: it must be shm:DIRECTORY/NAME", ErrOptions, a)
		case ok && dir != first:
			return fmt.Errorf("%w: %s and %s: all blades of shared memory are in one directory",
				ErrOptions, addresses[0], a)
		}
		if !ok {
			if _, _, err := tcp.ParseAddress(controlOf(string(a))); err != nil {
				return fmt.Errorf("%w: %q must be unix:PATH, tcp:HOST:PORT, rdma:HOST:PORT or shm:DIRECTORY/NAME: %w",
					ErrOptions, a, err)
			}
		}
		seen[a] = true
	}
	return nil
}
