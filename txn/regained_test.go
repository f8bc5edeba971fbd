package txn_test

import (
	"testing"

	"txnode/memory/catalog"
	"txnode/rdma"
	"txnode/rdma/sim"
	"txnode/txn"
)

// TestWorkerLooksAgain: no goroutine looks whether a process reaches a blade again that it does
// without, and no session does, since the process has none. One that begins looks itself.
func TestWorkerLooksAgain(t *testing.T) {
	f, err := sim.New(sim.Options{
		Blades: []sim.BladeOptions{{Size: 32 << 20, Key: 1}}, ThreadsPerBlade: 4, Remote: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	o := onFabric(f, txn.PolicyDefault)
	o.Catalog, o.Shared, o.LeaseTerm = &catalog.Mem{}, true, 0
	db := mustOpen(t, o)
	db.Space().CutOff(map[rdma.BladeID]string{0: "it was silent"})
	w, err := db.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	if db.Space().IsCutOff() {
		t.Error("the blade answers, and the process does without it")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
