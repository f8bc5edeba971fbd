package embedded_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestMain turns the test binary into the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("EMBEDDED_TEST_VICTIM"); dir != "" {
		victim(dir)
	}
	os.Exit(m.Run())
}

// victim opens the database and changes it until it is killed. It says what it
// has added, and what it is about to remove.
func victim(dir string) {
	die := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	d, err := embedded.Open(small(dir))
	die(err)
	s := d.Space()
	thread, err := rdma.NewThread(d.Fabric(), rdma.ThreadOptions{Arena: 1 << 20})
	die(err)
	c := thread.Plain()
	fmt.Println("epoch", s.View().Epoch)
	for i := 0; ; i++ {
		die(s.AdvanceEpoch(nil))
		fmt.Println("epoch", s.View().Epoch)
		if i < 20 {
			x, err := s.NewExtent(c, 10_000)
			die(err)
			fmt.Println("extent", uint64(x.Addr))
			if i%2 == 0 {
				fmt.Println("freeing", uint64(x.Addr))
				_, err = s.FreeExtent(x)
				die(err)
			}
		}
		x, err := s.NewCoordinator()
		die(err)
		fmt.Println("coordinator", x.ID)
		if i%8 != 0 {
			fmt.Println("closing", x.ID)
			die(s.CloseCoordinatorOn(c, x.ID))
		}
		name := fmt.Sprintf("t%d-%d", os.Getpid(), i)
		_, err = s.CreateTable(name, nil)
		die(err)
		fmt.Println("table", name)
	}
}

// TestKill kills a process with SIGKILL at random moments, again and again over
// one directory, and checks each time that what it said was done is there.
func TestKill(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 8))
	extents := map[layout.Addr]bool{}
	tables, coordinators := map[string]bool{}, map[uint32]bool{}
	var last uint32
	var epoch layout.Epoch
	// How far a child gets before it is killed depends on the machine: more of them
	// run, and longer, until they have got somewhere.
	enough := func() bool { return testing.Short() || epoch >= layout.Epoch(rounds) }
	for round := 0; round < rounds || !enough() && round < 20*rounds; round++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "EMBEDDED_TEST_VICTIM="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(r.IntN(60+round))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			what, text, _ := strings.Cut(lines.Text(), " ")
			var n uint64
			_, _ = fmt.Sscan(text, &n)
			switch what {
			case "epoch":
				epoch = layout.Epoch(n)
			case "extent":
				extents[layout.Addr(n)] = true
			case "freeing":
				delete(extents, layout.Addr(n))
			case "coordinator":
				if coordinators[uint32(n)] = true; uint32(n) <= last {
					t.Errorf("coordinator %d after %d", n, last)
				}
				last = uint32(n)
			case "closing":
				delete(coordinators, uint32(n))
			case "table":
				tables[text] = true
			case "error":
				if !strings.Contains(text, "blades are full") {
					t.Errorf("round %d: %s", round, text)
				}
			}
		}
		_ = cmd.Wait() // it was killed

		d := open(t, embedded.Options{Dir: dir, BladeSize: 16 << 20, SegmentSize: 256 << 10, LogArea: 64 << 10})
		l := d.Space().Layout()
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
		if l.Epoch < epoch {
			t.Errorf("round %d: epoch %d, and %d had been reached", round, l.Epoch, epoch)
		}
		for _, tab := range l.Tables {
			delete(tables, tab.Name)
		}
		open := map[uint32]bool{}
		for _, e := range l.Coordinators {
			open[e.ID] = true
		}
		for id := range coordinators {
			if !open[id] {
				t.Errorf("round %d: coordinator %d is forgotten", round, id)
			}
		}
		have := map[layout.Addr]bool{}
		for _, e := range d.Space().Extents() {
			have[e.Addr] = true
		}
		for a := range extents {
			if !have[a] {
				t.Errorf("round %d: the extent at %v is gone", round, a)
			}
		}
		if len(tables) > 0 {
			t.Errorf("round %d: tables are gone: %v", round, tables)
		}
		clear(tables)
		// Make room for the next round.
		for id := range open {
			if err := d.Space().CloseCoordinator(id); err != nil {
				t.Error(err)
			}
		}
		clear(coordinators)
		for _, e := range d.Space().Extents() {
			if _, err := d.Space().FreeExtent(e); err != nil {
				t.Error(err)
			}
		}
		clear(extents)
		closeDB(t, d)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	if !enough() {
		t.Errorf("%d rounds have reached epoch %d only", 20*rounds, epoch)
	}
}
