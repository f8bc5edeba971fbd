package ibverbs

import (
	"context"
	"testing"
	"time"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/workload/storetest"
	"txnode/check"
	"txnode/history"
	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/txn"
)

// fabricOf is a fabric with two blades, each of a server of its own.
func fabricOf(tb testing.TB, server, client device, second device) *Fabric {
	tb.Helper()
	a := serve(tb, server, ServerOptions{Blades: sizes(1, 64<<20)})
	b := serve(tb, second, ServerOptions{Blades: sizes(1, 64<<20)})
	return connect(tb, client, Options{}, a.addr, b.addr)
}

func fakes(testing.TB) (server, client, second device) {
	n := newNetwork()
	return n.device("fake0"), n.device("fake1"), n.device("fake2")
}

func real3(tb testing.TB) (server, client, second device) {
	server, client = openEnv(tb)
	second, other := openEnv(tb)
	if err := other.close(); err != nil {
		tb.Error(err)
	}
	return server, client, second
}

func open(t *testing.T, f rdma.Fabric) *engine.Store {
	t.Helper()
	store, err := engine.Open(t.Context(), txn.Options{
		Fabric: f, Catalog: &catalog.Mem{}, Backups: txn.F(1), SegmentSize: 1 << 20, LogArea: 256 << 10,
		IndexGroups: 64, LeaseTerm: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// isolate runs the suite of stores: counters, snapshots, write skew, races of inserts, ranges.
func isolate(t *testing.T, devices func(tb testing.TB) (server, client, second device)) {
	storetest.Test(t, func(t *testing.T) workload.Store {
		server, client, second := devices(t)
		f := fabricOf(t, server, client, second)
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return open(t, f)
	})
}

func TestIsolation(t *testing.T) { isolate(t, fakes) }

func TestDeviceIsolation(t *testing.T) {
	defer storetest.SetRounds(20)()
	isolate(t, real3)
}

// play runs a workload, several transactions a thread at a time. Then its books must be in order, and
// some serial order must explain what its transactions have read and written.
func play(t *testing.T, d workload.Driver, f *Fabric, rounds int) {
	t.Helper()
	store := open(t, f)
	storetest.Load(t, d, store)
	var seen history.Recorder
	store.Record(&seen)
	storetest.Play(t, d, store, rounds)
	store.Record(nil)
	if err := check.Check(append(seen.Txns(), seen.Failed()...), check.Options{}).Err(); err != nil {
		t.Error(err)
	}
	ctx := context.WithoutCancel(t.Context())
	if _, err := d.Verify(ctx, store); err != nil {
		t.Error(err)
	}
	if err := store.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func smallBank(t *testing.T) workload.Driver {
	t.Helper()
	o := smallbank.DefaultOptions()
	o.Accounts, o.HotAccounts, o.InitialBalance = 300, 20, "12.34" // conflicts and overdrafts are frequent
	d, err := smallbank.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func phones(t *testing.T) workload.Driver {
	t.Helper()
	o := tatp.DefaultOptions()
	o.Subscribers = 100
	d, err := tatp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSmallBank(t *testing.T) {
	server, client, second := fakes(t)
	play(t, smallBank(t), fabricOf(t, server, client, second), 200)
}

func TestTATP(t *testing.T) {
	server, client, second := fakes(t)
	play(t, phones(t), fabricOf(t, server, client, second), 200)
}

func TestDeviceSmallBank(t *testing.T) {
	server, client, second := real3(t)
	play(t, smallBank(t), fabricOf(t, server, client, second), 500)
}

func TestDeviceTATP(t *testing.T) {
	server, client, second := real3(t)
	play(t, phones(t), fabricOf(t, server, client, second), 500)
}
