package fabrictest_test

import (
	"testing"

	"txnode/rdma"
	"txnode/rdma/fabrictest"
	"txnode/rdma/inproc"
)

// The test of a fabric: New makes one with blades of the size asked for, and the
// suite does the rest.
func ExampleRun() {
	TestConformance := func(t *testing.T) {
		fabrictest.Run(t, func(tb testing.TB, blades int, size uint64) rdma.Fabric {
			o := inproc.Options{Blades: make([]inproc.BladeOptions, blades)}
			for i := range o.Blades {
				o.Blades[i] = inproc.BladeOptions{Size: size, Key: rdma.Key(i)}
			}
			f, err := inproc.New(o)
			if err != nil {
				tb.Fatal(err)
			}
			return f
		})
	}
	_ = TestConformance // run by go test
}
