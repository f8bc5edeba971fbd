package ibverbs_test

import (
	"fmt"

	"txnode/rdma/ibverbs"
)

func ExampleParseDevice() {
	d, err := ibverbs.ParseDevice("mlx5_0/1/3")
	fmt.Println(d.Name, d.Port, d.GID, err)
	_, err = ibverbs.ParseDevice("mlx5_0/one")
	fmt.Println(err)
	// Output:
	// mlx5_0 1 3 <nil>
	// ibverbs: bad options: device "mlx5_0/one": it must be DEVICE, DEVICE/PORT or DEVICE/PORT/GID, such as mlx5_0/1/3
}

func ExampleControlAddress() {
	fmt.Println(ibverbs.ControlAddress("rdma:blade0:7000"))
	fmt.Println(ibverbs.ControlAddress("unix:/run/blade0"))
	// Output:
	// tcp:blade0:7000 true
	//  false
}
