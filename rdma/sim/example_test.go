package sim_test

import (
	"fmt"

	"txnode/rdma"
	"txnode/rdma/sim"
)

// Two threads count to a hundred together, under virtual time: the same run,
// to the nanosecond, every time.
func Example() {
	f, err := sim.New(sim.Options{
		Blades: []sim.BladeOptions{{Size: 1 << 20, Key: 7}},
		Seed:   1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	counter := rdma.RemoteAddr{Blade: 0, Key: 7, Off: 64}
	f.Run(2, func(i int) {
		t, err := rdma.NewThread(f, rdma.ThreadOptions{Index: i, Techniques: rdma.AllTechniques})
		if err != nil {
			fmt.Println(err)
			return
		}
		var b rdma.Batch
		for range 50 {
			b.Reset()
			b.FAA(counter, 1)
			if err := t.Plain().Do(&b); err != nil {
				fmt.Println(err)
			}
		}
		if err := t.Close(); err != nil {
			fmt.Println(err)
		}
	})
	var word [8]byte
	if err := f.ReadMemory(0, counter.Off, word[:]); err != nil {
		fmt.Println(err)
	}
	fmt.Println(word[0], f.Now() > 50*2_000, f.Now() < 100*4_000)
	// Output: 100 true true
}

// A fault prints as the expression that makes it.
func ExampleParseFault() {
	x, err := sim.ParseFault("late(thread=1, verb=9, by=5ms)")
	fmt.Println(x, err)
	// Output: late(thread=1,verb=9,by=5ms) <nil>
}
