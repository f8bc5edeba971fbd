package published

// HashPoint is one measurement of SMART's hash table. What a figure does not have is 0.
type HashPoint struct {
	Threads  int     `json:"threads"` // of 8 coroutines each
	Theta    float64 `json:"theta"`   // of the Zipf distribution over 100 million keys
	IdleUs   float64 `json:"idle_us"` // waited by each coroutine after each operation
	Mops     float64 `json:"mops"`    // million operations per second
	P50us    float64 `json:"p50_us"`
	P99us    float64 `json:"p99_us"`
	Attempts float64 `json:"attempts"` // compare-and-swaps per update; the text of the paper calls them retries
	// share of the updates that ended with no failed attempt of their thread since the last one
	// ended
	NotFollowed float64 `json:"not_followed"`
}

// HashCurve returns a curve of figures "5a", "5b", "8" (whose first and last curves are
// those of 7a to 7c), "9" or "14", for a mix as hashbench names it ("a", "b", "c",
// "update-only"); nil if there is none. Curves are "RACE", "+ThdResAlloc",
// "+WorkReqThrot", "+ConflictAvoid" of figures 5 and 8; "none", "backoff", "dynamic",
// "all" of 14. "8a", "8b" and "8c" are the mixes "a", "b" and "c" of "8"; "9" has the first and the
// last of its curves.
//
// Its numbers are the raw data of the artifact (fig5a, fig5b, fig8-ycsb-a to -c, fig9, fig14,
// fig14bc). Attempts are printed there as retries per update plus one, by a program that
// is built for statistics and runs apart from that of the throughput.
func HashCurve(figure, mix, curve string) []HashPoint {
	var out []HashPoint
	switch figure {
	case "5a":
		if mix == "update-only" && curve == "RACE" {
			out = figure5a
		}
	case "5b":
		if mix == "update-only" && curve == "RACE" {
			out = figure5b
		}
	case "7", "8", "8a", "8b", "8c":
		if len(figure) == 2 && mix != figure[1:] {
			return nil
		}
		for i, mops := range figure8[mix][curve] {
			out = append(out, HashPoint{Threads: Figure8Threads[i], Theta: 0.99, Mops: mops})
		}
	case "9":
		if mix == "c" {
			out = figure9[curve]
		}
	case "14":
		if mix != "update-only" {
			return nil
		}
		for i, p := range figure14[curve] {
			out = append(out, HashPoint{
				Threads: Figure14Threads[i], Theta: 0.99, Mops: p[0], P50us: p[1], P99us: p[2],
				Attempts: p[3], NotFollowed: p[4],
			})
		}
	}
	return out
}

// HashAt returns the point of a curve with that many threads, that Zipf parameter and that idling.
func HashAt(curve []HashPoint, threads int, theta, idleUs float64) (HashPoint, bool) {
	for _, p := range curve {
		if p.Threads == threads && p.Theta == theta && p.IdleUs == idleUs {
			return p, true
		}
	}
	return HashPoint{}, false
}

// What the figures vary.
var (
	Figure5aThreads = []int{1, 2, 4, 6, 8, 10, 12, 14, 16}
	Figure5bThetas  = []float64{0, 0.4, 0.8, 0.9, 0.95, 0.99}
	Figure8Threads  = []int{1, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96}
	Figure9Idle     = []float64{0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}
	Figure14Threads = []int{1, 16, 32, 48, 64, 80, 88, 96}
)

var figure5a = []HashPoint{
	{Threads: 1, Theta: 0.99, Mops: 0.237, P50us: 31.538, P99us: 70.006},
	{Threads: 2, Theta: 0.99, Mops: 0.545, P50us: 26.312, P99us: 74.758},
	{Threads: 4, Theta: 0.99, Mops: 1.116, P50us: 23.374, P99us: 130.674},
	{Threads: 6, Theta: 0.99, Mops: 1.441, P50us: 23.652, P99us: 253.185},
	{Threads: 8, Theta: 0.99, Mops: 1.574, P50us: 23.689, P99us: 447.885},
	{Threads: 10, Theta: 0.99, Mops: 1.515, P50us: 24.845, P99us: 741.628},
	{Threads: 12, Theta: 0.99, Mops: 0.949, P50us: 32.982, P99us: 1861.465},
	{Threads: 14, Theta: 0.99, Mops: 0.731, P50us: 43.464, P99us: 2922.841},
	{Threads: 16, Theta: 0.99, Mops: 0.533, P50us: 60.087, P99us: 4475.455},
}

var figure5b = []HashPoint{
	{Threads: 16, Theta: 0, Mops: 3.731, P50us: 29.492, P99us: 53.708},
	{Threads: 16, Theta: 0.4, Mops: 3.641, P50us: 30.332, P99us: 55.643},
	{Threads: 16, Theta: 0.8, Mops: 3.791, P50us: 28.891, P99us: 54.569},
	{Threads: 16, Theta: 0.9, Mops: 3.110, P50us: 29.481, P99us: 233.953},
	{Threads: 16, Theta: 0.95, Mops: 1.224, P50us: 36.629, P99us: 1255.473},
	{Threads: 16, Theta: 0.99, Mops: 0.669, P50us: 46.526, P99us: 3503.948},
}

// figure8 is the throughput at Figure8Threads, by mix and curve.
var figure8 = map[string]map[string][]float64{
	"a": {
		"RACE":           {0.341, 2.799, 1.584, 0.689, 0.518, 0.482, 0.407, 0.305, 0.251, 0.218, 0.203, 0.204, 0.201},
		"+ThdResAlloc":   {0.334, 2.744, 1.521, 0.709, 0.537, 0.497, 0.391, 0.296, 0.244, 0.224, 0.209, 0.213, 0.193},
		"+WorkReqThrot":  {0.324, 2.635, 4.216, 4.023, 5.146, 1.895, 1.394, 0.480, 0.453, 0.381, 0.391, 0.298, 0.226},
		"+ConflictAvoid": {0.325, 2.683, 4.535, 5.347, 5.533, 5.553, 5.643, 5.498, 5.468, 5.323, 5.321, 5.306, 5.234},
	},
	"b": {
		"RACE": {0.509, 3.322, 5.718, 8.218, 9.634, 9.555, 11.505, 8.340, 7.470, 7.352, 6.946, 6.137, 5.128},
		"+ThdResAlloc": {
			0.500, 3.439, 6.444, 10.064, 13.644, 15.493, 17.087, 18.430, 8.868, 7.971, 5.594, 4.202, 3.064,
		},
		"+WorkReqThrot": {
			0.496, 3.418, 6.648, 10.194, 12.850, 14.608, 16.814, 17.854, 13.218, 9.782, 7.710, 6.748, 9.467,
		},
		"+ConflictAvoid": {
			0.495, 3.562, 6.872, 9.699, 12.107, 14.943, 16.757, 18.926, 20.209, 20.331, 20.198, 20.690, 20.882,
		},
	},
	"c": {
		"RACE": {
			0.571, 4.318, 6.727, 10.158, 10.435, 10.038, 11.502, 8.803, 8.132, 8.278, 7.629, 6.891, 6.455,
		},
		"+ThdResAlloc": {
			0.574, 4.578, 8.467, 12.130, 15.784, 18.705, 20.754, 21.987, 23.147, 23.850, 23.848, 23.796, 23.942,
		},
		"+WorkReqThrot": {
			0.557, 4.359, 8.357, 11.741, 15.592, 17.549, 20.051, 20.922, 22.843, 23.687, 23.621, 23.728, 23.886,
		},
		"+ConflictAvoid": {
			0.561, 4.462, 8.627, 12.063, 15.786, 18.338, 20.559, 22.233, 23.138, 23.574, 23.678, 23.719, 23.856,
		},
	},
}

// figure9 is what 96 threads do that idle.
var figure9 = map[string][]HashPoint{
	"RACE": idling([][3]float64{
		{5.766, 105.936, 281.874}, {5.945, 67.303, 195.763}, {6.337, 50.438, 167.677}, {6.233, 26.077, 96.765},
		{4.688, 13.526, 48.375}, {2.668, 10.997, 24.778}, {1.414, 9.463, 19.386}, {0.728, 9.955, 22.583},
		{0.368, 9.787, 23.381}, {0.186, 9.880, 23.647}, {0.093, 10.310, 23.874},
	}),
	"+ConflictAvoid": idling([][3]float64{
		{15.641, 30.374, 57.353}, {14.067, 18.349, 34.057}, {11.604, 11.377, 31.201}, {7.909, 12.099, 25.478},
		{4.804, 11.885, 21.725}, {2.674, 10.104, 19.272}, {1.411, 9.440, 18.192}, {0.727, 9.523, 21.734},
		{0.369, 9.325, 22.592}, {0.186, 9.409, 22.596}, {0.093, 9.979, 23.027},
	}),
}

// idling makes points at Figure9Idle of throughput, p50 and p99.
func idling(rows [][3]float64) []HashPoint {
	var out []HashPoint
	for i, r := range rows {
		out = append(out, HashPoint{
			Threads: 96, Theta: 0.99, IdleUs: Figure9Idle[i], Mops: r[0], P50us: r[1], P99us: r[2],
		})
	}
	return out
}

// figure14 is throughput (of fig14) and p50, p99, attempts per update and updates
// without retries (of fig14bc) at Figure14Threads.
var figure14 = map[string][][5]float64{
	"none": {
		{0.234, 25.322, 83.378, 1.020, 0.981}, {2.351, 24.158, 456.264, 1.632, 0.652},
		{1.134, 27.854, 4050.821, 2.876, 0.749}, {0.391, 213.611, 23268.770, 6.566, 0.412},
		{0.223, 289.448, 42410.799, 8.732, 0.377}, {0.178, 331.857, 62961.010, 10.467, 0.366},
		{0.171, 358.835, 71167.740, 10.981, 0.370}, {0.176, 382.029, 85347.558, 12.060, 0.354},
	},
	"backoff": {
		{0.237, 31.700, 88.485, 1.017, 0.984}, {1.737, 11.697, 82.949, 1.103, 0.918},
		{1.878, 11.431, 76.004, 1.114, 0.925}, {1.699, 12.062, 82.342, 1.122, 0.933},
		{1.506, 11.743, 83.349, 1.126, 0.934}, {1.472, 12.204, 86.340, 1.130, 0.936},
		{1.292, 12.001, 85.743, 1.131, 0.936}, {1.429, 12.243, 88.232, 1.136, 0.938},
	},
	"dynamic": {
		{0.246, 27.029, 88.418, 1.019, 0.982}, {2.411, 14.921, 1074.484, 1.534, 0.678},
		{2.679, 13.055, 2460.349, 1.503, 0.717}, {2.643, 12.930, 3278.471, 1.544, 0.718},
		{2.590, 13.158, 4078.286, 1.482, 0.780}, {2.525, 13.381, 5435.633, 1.498, 0.801},
		{2.482, 13.236, 7185.081, 1.484, 0.826}, {2.445, 13.281, 8137.343, 1.493, 0.838},
	},
	"all": {
		{0.233, 31.453, 90.974, 1.017, 0.984}, {2.698, 40.600, 308.175, 1.458, 0.692},
		{2.962, 74.276, 364.872, 1.391, 0.779}, {2.947, 102.602, 509.727, 1.372, 0.899},
		{2.806, 106.653, 1102.714, 1.346, 0.924}, {2.744, 108.851, 1555.929, 1.363, 0.911},
		{2.716, 107.361, 1944.284, 1.359, 0.930}, {2.663, 108.776, 2698.161, 1.378, 0.908},
	},
}
