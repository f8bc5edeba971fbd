package verbs_test

import (
	"fmt"

	"txnode/rdma"
	"txnode/rdma/sim/verbs"
)

// Queue pairs of their own do not help 96 threads that share doorbells.
func ExampleRun() {
	for _, p := range []rdma.QPPolicy{rdma.PerThreadQP, rdma.PerThreadDoorbell} {
		r, err := verbs.Run(verbs.Config{Threads: 96, Depth: 8, Policy: p})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v: more than 50 M READs/s: %v\n", p, r.Mops > 50)
	}
	// Output:
	// per-thread-qp: more than 50 M READs/s: false
	// per-thread-doorbell: more than 50 M READs/s: true
}
