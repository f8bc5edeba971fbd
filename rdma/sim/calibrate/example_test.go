package calibrate_test

import (
	"context"
	"fmt"

	"txnode/rdma/sim"
	"txnode/rdma/sim/calibrate"
)

// What the model says of one published point: 24 threads, a doorbell each, 8
// READs per doorbell.
func ExampleEvaluate() {
	var points []calibrate.Point
	for _, p := range calibrate.Points() {
		if p.Figure == "4a" && p.Threads == 24 && p.Depth == 8 {
			points = append(points, p)
		}
	}
	r, err := calibrate.Evaluate(context.Background(), sim.ConnectX6(), points, 20_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d point, measured %.1f Mop/s, within 10%%: %v\n", len(points), points[0].Mops, r.MaxError() < 0.1)
	// Output: 1 point, measured 41.8 Mop/s, within 10%: true
}
