package calibrate

import "txnode/rdma"

// The measurements that the constants are fitted to: throughput in million
// 8-byte READs per second on the machine of the SMART paper (ASPLOS'24), figures
// 3a and 4a, as published with its artifact. Nothing else is used.

// figure3Threads are the columns of figure3.
var figure3Threads = []int{1, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96}

// figure3: the allocation policies, 8 requests per doorbell.
var figure3 = []struct {
	name   string
	policy rdma.QPPolicy
	share  int // threads per queue pair
	mops   []float64
}{
	{"shared QP", rdma.SharedQP, 0, []float64{
		1.903, 0.581, 0.439, 0.396, 0.342, 0.296, 0.268, 0.264, 0.264, 0.249, 0.253, 0.24, 0.255,
	}},
	{"4 threads per QP", rdma.MultiplexedQP, 4, []float64{
		1.903, 1.256, 2.554, 3.628, 5.005, 7.117, 7.808, 8.983, 9.104, 11.498, 10.352, 10.655, 12.062,
	}},
	{"2 threads per QP", rdma.MultiplexedQP, 2, []float64{
		1.902, 3.22, 8.502, 14.368, 18.154, 19.516, 19.916, 21.701, 22.78, 23.773, 22.521, 20.366, 18.868,
	}},
	{"QP per thread", rdma.PerThreadQP, 0, []float64{
		1.917, 14.821, 29.036, 39.037, 39.085, 32.282, 29.433, 23.344, 23.003, 21.41, 20.838, 20.006, 19.158,
	}},
	{"doorbell per thread", rdma.PerThreadDoorbell, 0, []float64{
		1.809, 14.535, 28.71, 42.083, 55.201, 64.302, 75.383, 84.567, 90.325, 99.422, 105.486, 109.85, 111.177,
	}},
}

// figure4Depths are the columns of figure4: requests per doorbell.
var figure4Depths = []int{1, 4, 8, 16, 24, 32}

// figure4: a doorbell per thread.
var figure4 = []struct {
	threads int
	mops    []float64
}{
	{12, []float64{5.103, 13.591, 21.799, 31.122, 36.984, 40.367}},
	{24, []float64{10.02, 26.023, 41.835, 60.763, 69.242, 76.986}},
	{36, []float64{14.336, 38.457, 61.294, 86.276, 97.83, 104.209}},
	{48, []float64{18.52, 48.747, 75.472, 102.509, 111.123, 103.987}},
	{60, []float64{22.309, 58.152, 89.197, 111.045, 104.962, 85.735}},
	{72, []float64{25.847, 66.897, 98.616, 107.14, 96.071, 73.152}},
	{84, []float64{29.5, 74.276, 108.366, 92.207, 86.449, 62.448}},
	{96, []float64{32.969, 81.563, 110.982, 78.111, 76.959, 55.161}},
}
