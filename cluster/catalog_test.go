package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/layout"
)

// schemes are registered until the process ends.
var schemes atomic.Int64

// TestRegisterCatalog: an address with a scheme goes to the dialer that is registered for it, as it
// is. One without a dialer is an error that says what to import.
func TestRegisterCatalog(t *testing.T) {
	scheme := fmt.Sprintf("mem%d", schemes.Add(1))
	asked, secret := "", ""
	cat := &catalog.Mem{}
	cluster.RegisterCatalog(scheme, func(_ context.Context, address string, o cluster.Options) (layout.Catalog, error) {
		asked, secret = address, string(o.TCP.Secret)
		return cat, nil
	})
	o := cluster.Options{}
	o.TCP.Secret = []byte("correct horse battery staple")
	address := scheme + "://a,b:1/c"
	if got, err := cluster.DialCatalog(t.Context(), address, o); got != cat || err != nil || asked != address ||
		secret != string(o.TCP.Secret) {
		t.Errorf("%v, %v: asked for %q", got, err, asked)
	}
	if err := cluster.CheckCatalog(address); err != nil {
		t.Error(err)
	}
	if _, err := cluster.Ask(t.Context(), address, o); !errors.Is(err, cluster.ErrNone) {
		t.Errorf("an empty catalog: %v", err)
	}
	for address, say := range map[string]string{
		"etcd://a:1/x":      "txnode/cluster/etcd",
		"none://a:1":        "does not know none://",
		"here":              "unix:PATH or tcp:HOST:PORT, or begin with mem1://",
		"unix:/a,mem1://b":  `"mem1://b"`,
		"unix:/a,etcd://b:": "unix:PATH or tcp:HOST:PORT",
		"":                  "unix:PATH or tcp:HOST:PORT",
	} {
		_, err := cluster.DialCatalog(t.Context(), address, o)
		for _, err := range []error{err, cluster.CheckCatalog(address)} {
			if !errors.Is(err, cluster.ErrOptions) || !strings.Contains(err.Error(), say) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v", address, err)
			}
		}
	}
	for _, scheme := range []string{scheme, "unix", "tcp", "", "Etcd", "a:b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("the scheme %q was registered", scheme)
				}
			}()
			cluster.RegisterCatalog(scheme, func(context.Context, string, cluster.Options) (layout.Catalog, error) {
				return cat, nil
			})
		}()
	}
}
