package etcd_test

import (
	"context"
	"errors"
	"log"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"txnode/cluster"
	_ "txnode/cluster/etcd"
	"txnode/memory"
	"txnode/memory/catalog/etcd/etcdtest"
	"txnode/memory/layout"
	"txnode/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAddresses: an address leads to the keys of its prefix, by any member that answers. What is no
// address is an error that says how one looks.
func TestAddresses(t *testing.T) {
	s := etcdtest.NewStandIn(t)
	write := func(address, value string) {
		t.Helper()
		cat, err := cluster.DialCatalog(t.Context(), address, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cat.Apply(0, []layout.Entry{{Key: "k", Value: []byte(value)}}); err != nil {
			t.Error(err)
		}
		if err := cat.Close(); err != nil {
			t.Error(err)
		}
	}
	write("etcd://"+s.Address, "1")
	write("etcd://"+s.Address+"/bank", "2")
	write("etcd://127.0.0.1:1,"+s.Address+"/second/", "3")
	for prefix, value := range map[string]string{"txnode/": "1", "bank/": "2", "second/": "3"} {
		name := "etcd://" + s.Address + "/" + prefix
		cat, err := cluster.DialCatalog(t.Context(), name, cluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if have, _, err := cat.Load(); err != nil || len(have) != 1 || string(have[0].Value) != value ||
			cat.Name() != name || s.Keys()[prefix+"head"] == "" {
			t.Errorf("%s has %q, %v, want %s", cat.Name(), have, err, value)
		}
		if _, err := cluster.Connect(t.Context(), name, cluster.Options{}); !errors.Is(err, cluster.ErrNone) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%v", err)
		}
		if err := cat.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, address := range []string{
		"etcd://", "etcd:///txnode", "etcd://here", "etcd://here:", "etcd://:1",
		"etcd://here:1,/x", "etcd://me@here:1", "etcd://here:1?x", "etcd://here:1/" + strings.Repeat("x", 2000),
	} {
		if _, err := cluster.DialCatalog(t.Context(), address, cluster.Options{}); !errors.Is(err,
			cluster.ErrOptions) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40s: %v", address, err)
		}
	}
	s.Stop()
	for _, address := range []string{"etcd://" + s.Address, "etcd://127.0.0.1:1," + s.Address} {
		o := cluster.Options{}
		o.TCP.Control = 1e8
		if _, err := cluster.DialCatalog(t.Context(), address, o); !errors.Is(err, memory.ErrAway) ||
			!strings.Contains(err.Error(), s.Address) {
			t.Errorf("%s, and etcd has ended: %v", address, err)
		}
	}
}

// A program that imports this package opens a database whose catalog is in an etcd. Before, once:
// txnode cluster init.
func Example() {
	ctx := context.Background()
	db, err := cluster.Open(ctx, "etcd://e0.example:2379,e1.example:2379,e2.example:2379/bank",
		txn.Options{}, cluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	log.Print(db.Tables())
}
