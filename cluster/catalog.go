package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// Dialer connects to the catalog at an address, which begins with the scheme that the dialer is
// registered for. ctx bounds the connecting only, which also the package that registers the
// dialer bounds. Options are those of Connect. Errors are one line and name the address:
// ErrOptions for an address that cannot be, memory.ErrAway for a catalog that does not answer,
// and those of the dialer's package. The catalog belongs to the caller. Several goroutines may
// call a dialer at once.
type Dialer func(ctx context.Context, address string, o Options) (layout.Catalog, error)

var (
	dialersMu sync.RWMutex
	dialers   = map[string]Dialer{} // by scheme
)

// RegisterCatalog has all functions of this package take addresses of catalogs that begin with
// SCHEME and "://". The functions init of packages call it. It panics if the scheme is registered
// already, or is "unix", "tcp" or no word of lowercase letters and digits. It may be called by
// several goroutines at once.
func RegisterCatalog(scheme string, dial Dialer) {
	dialersMu.Lock()
	defer dialersMu.Unlock()
	switch {
	case scheme == "unix" || scheme == "tcp" || !word(scheme) || dial == nil:
		panic(fmt.Sprintf("cluster: no catalogs can be registered for the scheme %q", scheme))
	case dialers[scheme] != nil:
		panic(fmt.Sprintf("cluster: the scheme %q is registered twice", scheme))
	}
	dialers[scheme] = dial
}

// word says whether a string has lowercase letters and digits only, and at least one.
func word(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// dialerOf returns what connects to a catalog: ErrOptions for an address that cannot be.
func dialerOf(address string) (Dialer, error) {
	scheme, _, ok := strings.Cut(address, "://")
	if !ok || scheme == "unix" || scheme == "tcp" || !word(scheme) {
		for a := range strings.SplitSeq(address, ",") {
			if _, _, err := tcp.ParseAddress(controlOf(a)); err != nil {
				if strings.HasPrefix(a, "unix:") { // its path is too long, or empty
					return nil, fmt.Errorf("%w: the address of a catalog is %q: %w", ErrOptions, a, err)
				}
				return nil, fmt.Errorf("%w: the address of a catalog is %q; it must be unix:PATH or tcp:HOST:PORT%s",
					ErrOptions, a, registered())
			}
		}
		return dialRemote, nil
	}
	dialersMu.RLock()
	defer dialersMu.RUnlock()
	if dial := dialers[scheme]; dial != nil {
		return dial, nil
	}
	return nil, fmt.Errorf("%w: the address of a catalog is %q, and this program does not know %s://: import the "+
		"package that registers it, such as txnode/cluster/etcd for etcd://",
		ErrOptions, address, scheme)
}

// registered are the schemes for an error.
func registered() string {
	dialersMu.RLock()
	defer dialersMu.RUnlock()
	s := ""
	for _, scheme := range slices.Sorted(maps.Keys(dialers)) {
		s += ", or begin with " + scheme + "://"
	}
	return s
}

// CheckCatalog says whether DialCatalog takes an address: ErrOptions. It connects to nothing, and
// leaves what is behind a registered scheme to its dialer.
func CheckCatalog(address string) error {
	_, err := dialerOf(address)
	return err
}

// DialCatalog connects to the catalog at an address: "unix:PATH" or "tcp:HOST:PORT", also with two
// slashes behind the colon, or several with commas between them, of which the first that answers is
// taken; or one with a scheme that is registered, such as "etcd://HOST:PORT/PREFIX". ctx bounds the
// connecting only. The catalog belongs to the caller. Errors are those of Connect.
func DialCatalog(ctx context.Context, address string, o Options) (layout.Catalog, error) {
	dial, err := dialerOf(address)
	if err != nil {
		return nil, err
	}
	return dial(ctx, address, o)
}

// dialRemote is the dialer of catalogs that processes serve.
func dialRemote(ctx context.Context, list string, o Options) (layout.Catalog, error) {
	var silent []error
	for a := range strings.SplitSeq(list, ",") {
		c, err := remote.Dial(ctx, controlOf(a), o.tcp())
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, remote.ErrAway) {
			return nil, err
		}
		silent = append(silent, err)
	}
	return nil, oneLine(silent...)
}
