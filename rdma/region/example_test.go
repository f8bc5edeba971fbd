package region_test

import (
	"fmt"
	"log"

	"txnode/rdma"
	"txnode/rdma/region"
)

// A lane executes requests on a region. A region that has granted another key, and revoked those
// before, shuts out requests that carry them.
func Example() {
	set, err := region.New(region.Config{Regions: []region.Options{{Size: 1 << 16, Key: 7}}})
	if err != nil {
		log.Fatal(err)
	}
	lane, err := set.NewLane(4096)
	if err != nil {
		log.Fatal(err)
	}
	copy(lane.Arena(), "eight by")
	wrs := []rdma.WR{
		{Op: rdma.OpWrite, Key: 7, Off: 64, Len: 8},
		{Op: rdma.OpRead, Key: 7, Off: 64, Local: 128, Len: 8},
	}
	fmt.Println("failed:", lane.Execute(wrs))
	fmt.Printf("%s\n", lane.Arena()[128:136])

	key, err := set.Grant(0)
	if err == nil {
		err = set.Revoke(0, key)
	}
	if err != nil {
		log.Fatal(err)
	}
	wrs = wrs[:1]
	fmt.Println("failed:", lane.Execute(wrs), wrs[0].Status)
	if err := lane.Close(); err != nil {
		log.Fatal(err)
	}
	if err := set.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// failed: 0
	// eight by
	// failed: 1 stale access key
}
