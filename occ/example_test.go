package occ_test

import (
	"fmt"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/occ"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// A transaction over two blades in this process, and what it has posted.
func Example() {
	try := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	fabric, err := inproc.New(inproc.Options{
		Blades: []inproc.BladeOptions{{Size: 16 << 20}, {Size: 16 << 20}}, Seed: 1,
	})
	try(err)
	defer fabric.Close()
	thread, err := rdma.NewThread(fabric, rdma.ThreadOptions{Techniques: rdma.AllTechniques})
	try(err)
	defer thread.Close()
	space, err := memory.Open(thread.Plain(), fabric, &catalog.Mem{},
		memory.Options{Backups: 1, SegmentSize: 1 << 20, LogArea: 64 << 10})
	try(err)
	_, accounts, err := race.Create(thread.Plain(), space, 1, race.Options{Groups: 16})
	try(err)
	table := &occ.Table{ID: 1, Name: "accounts", Index: accounts}

	engine := occ.NewEngine(space, occ.Options{CacheBytes: 1 << 20})
	session, err := engine.NewSession(thread)
	try(err)
	defer session.Close()
	tx, err := session.NewTx(thread.Plain())
	try(err)

	move := func(to string) {
		try(tx.Begin())
		ada, err := tx.Stage(table, []byte("ada"), true)
		try(err)
		bob, err := tx.Stage(table, []byte("bob"), true)
		try(err)
		try(tx.Execute()) // locks and reads both
		try(tx.Put(ada, []byte("70")))
		try(tx.Put(bob, []byte(to)))
		try(tx.Commit())
	}
	move("20") // inserts them
	before := *tx.Phases()
	move("30")
	for p, now := range tx.Phases() {
		if n := now.Sub(&before[p]); n.Total() > 0 {
			fmt.Printf("%v: %d verbs, %d round trips\n", occ.Phase(p), n.Total(), n.RoundTrips)
		}
	}
	// Output:
	// lock+read: 4 verbs, 1 round trips
	// commit: 4 verbs, 1 round trips
	// release: 2 verbs, 0 round trips
}
