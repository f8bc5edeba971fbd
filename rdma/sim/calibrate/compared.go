package calibrate

import "txnode/rdma"

// Compared returns measurements that nothing is fitted to, of the same machine and artifact:
// figures 3b and 4b, which are 3a and 4a with WRITEs, and the throttled row of figures 13a
// (threads, 16 requests at a time) and 13b (requests at a time, 96 threads).
func Compared() []Point {
	var out []Point
	for i, s := range figure3 {
		for j, m := range figure3b[i] {
			out = append(out, Point{"3b", s.name, s.policy, s.share, figure3Threads[j], 8, m, rdma.OpWrite, false})
		}
	}
	for i, s := range figure4 {
		for j, m := range figure4b[i] {
			out = append(out, Point{
				"4b", "doorbell per thread", rdma.PerThreadDoorbell, 0, s.threads, figure4Depths[j],
				m, rdma.OpWrite, false,
			})
		}
	}
	const name = "doorbell per thread, throttled"
	for i, m := range figure13a {
		out = append(out, Point{"13a", name, rdma.PerThreadDoorbell, 0, figure3Threads[i], 16, m, rdma.OpRead, true})
	}
	for i, m := range figure13b {
		out = append(out, Point{"13b", name, rdma.PerThreadDoorbell, 0, 96, figure13Depths[i], m, rdma.OpRead, true})
	}
	return out
}

// figure3b: the allocation policies of figure3, 8 WRITEs at a time.
var figure3b = [][]float64{
	{1.8, 0.558, 0.43, 0.395, 0.349, 0.314, 0.269, 0.257, 0.266, 0.253, 0.263, 0.255, 0.252},
	{1.848, 1.276, 2.417, 3.413, 5.602, 5.706, 8.647, 7.867, 9.431, 11.242, 11.324, 11.313, 12.679},
	{1.81, 5.053, 9.606, 13.109, 20.155, 19.072, 19.598, 25.195, 21.805, 23.271, 20.848, 21.423, 20.968},
	{1.816, 13.982, 27.229, 35.927, 37.444, 30.924, 29.244, 23.307, 23.565, 21.465, 20.45, 19.667, 19.133},
	{1.704, 13.882, 27.256, 39.073, 50.329, 59.882, 68.782, 73.555, 78.399, 81.075, 84.441, 89.061, 90.553},
}

// figure4b: WRITEs at the threads and depths of figure4.
var figure4b = [][]float64{
	{4.991, 13.247, 20.298, 29.547, 35.191, 38.741},
	{9.673, 25.321, 38.779, 54.745, 65.455, 72.566},
	{13.672, 36.807, 56.543, 79.467, 86.502, 91.355},
	{17.387, 45.865, 68.566, 85.832, 84.194, 69.884},
	{21.052, 53.124, 75.788, 92.728, 66.205, 65.107},
	{24.054, 59.322, 81.577, 66.975, 64.123, 63.594},
	{27.183, 64.741, 86.294, 64.484, 63.428, 62.943},
	{30.188, 71.221, 89.542, 62.787, 62.984, 63.052},
}

// figure13a: READs of figure3Threads threads, 16 at a time, throttled.
var figure13a = []float64{
	2.493, 20.858, 39.422, 58.456, 76.234, 87.425, 98.874, 108.697, 109.876, 107.396, 109.467, 110.414, 109.516,
}

// figure13Depths are the columns of figure13b.
var figure13Depths = []int{1, 4, 8, 12, 16, 20, 24, 28, 32}

// figure13b: READs of 96 threads, throttled.
var figure13b = []float64{32.803, 80.447, 110.5, 107.034, 108.994, 109.542, 109.516, 109.169, 109.294}
