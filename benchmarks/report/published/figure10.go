package published

// System is one of the systems that figure 10 compares.
type System string

// The systems of figure 10.
const (
	// FORDPlus is FORD's protocol in SMART's code, without SMART's techniques.
	FORDPlus System = "FORD+"
	// SMARTDTX is the same protocol with them.
	SMARTDTX System = "SMART-DTX"
)

// Hardware is what figure 10 was measured on.
const Hardware = "one compute blade with 96 cores (Xeon Gold 6240R), two memory blades, " +
	"200 Gb/s ConnectX-6 that completes at most 110 M verbs/s; every verb crosses that network"

// Setting is how the systems of figure 10 were run.
const Setting = "one backup, 8 coroutines per thread, 100,000 accounts or subscribers; " +
	"an attempt that fails for whatever reason is not retried"

// Point is one measurement of figure 10.
type Point struct {
	Threads      int     `json:"threads"`       // of 8 coroutines each
	AttemptedMps float64 `json:"attempted_mps"` // million transactions per second
	CommittedMps float64 `json:"committed_mps"` // of them
	P50us        float64 `json:"p50_us"`        // of committed transactions
	P99us        float64 `json:"p99_us"`
	// share of the attempts: conflicts, rollbacks by the application, absent rows
	NotCommitted float64 `json:"not_committed"`
	// work requests; slightly too many with many threads, because the warm-up is counted in
	VerbsPerAttempt float64 `json:"verbs_per_attempt"`
}

// Curve returns the points of a system and a workload ("smallbank" or "tatp"),
// by increasing threads; nil if there are none.
func Curve(workload string, s System) []Point { return figure10[workload][s] }

// Best returns the point of a curve with the highest throughput.
func Best(curve []Point) Point {
	best := curve[0]
	for _, p := range curve {
		if p.CommittedMps > best.CommittedMps {
			best = p
		}
	}
	return best
}

// At returns the point of a curve with that many threads.
func At(curve []Point, threads int) (Point, bool) {
	for _, p := range curve {
		if p.Threads == threads {
			return p, true
		}
	}
	return Point{}, false
}

// figure10 is SMART's figure 10, from the raw data of its artifact.
var figure10 = map[string]map[System][]Point{
	"smallbank": {
		FORDPlus: {
			{1, 0.247, 0.212, 34.834, 61.789, 0.141, 13.107},
			{8, 1.232, 1.044, 48.813, 96.889, 0.152, 13.049},
			{16, 1.862, 1.559, 64.098, 130.205, 0.163, 13.007},
			{24, 2.563, 2.120, 65.839, 139.377, 0.173, 12.976},
			{32, 1.837, 1.505, 107.742, 275.112, 0.181, 12.965},
			{40, 1.561, 1.269, 142.576, 468.516, 0.187, 12.973},
			{48, 1.784, 1.433, 151.471, 484.503, 0.197, 12.945},
			{56, 1.442, 1.147, 232.083, 717.048, 0.205, 12.931},
			{64, 1.443, 1.139, 264.612, 881.875, 0.211, 12.943},
			{72, 1.372, 1.071, 284.264, 1024.717, 0.219, 12.930},
			{80, 1.272, 0.988, 329.840, 1593.117, 0.223, 12.969},
			{88, 0.721, 0.558, 489.324, 2338.866, 0.226, 13.029},
			{96, 1.055, 0.803, 449.839, 1645.398, 0.239, 12.954},
		},
		SMARTDTX: {
			{1, 0.238, 0.204, 34.271, 82.990, 0.143, 13.092},
			{8, 1.114, 0.944, 47.173, 127.068, 0.152, 13.055},
			{16, 2.255, 1.889, 49.046, 141.097, 0.162, 13.019},
			{24, 3.084, 2.550, 52.853, 130.570, 0.173, 12.976},
			{32, 3.738, 3.056, 61.298, 150.521, 0.183, 12.948},
			{40, 4.396, 3.552, 59.530, 157.885, 0.192, 12.922},
			{48, 4.941, 3.939, 75.058, 181.808, 0.203, 12.873},
			{56, 5.305, 4.190, 76.445, 192.438, 0.210, 12.868},
			{64, 5.470, 4.265, 87.872, 209.557, 0.220, 12.832},
			{72, 6.043, 4.648, 100.844, 230.794, 0.231, 12.790},
			{80, 6.020, 4.575, 113.274, 255.767, 0.240, 12.764},
			{88, 6.149, 4.618, 125.136, 278.765, 0.249, 12.739},
			{96, 6.236, 4.628, 137.234, 295.179, 0.258, 12.715},
		},
	},
	"tatp": {
		FORDPlus: {
			{1, 0.517, 0.388, 8.744, 57.060, 0.249, 3.347},
			{8, 2.635, 1.973, 13.171, 84.720, 0.251, 3.359},
			{16, 4.366, 3.264, 14.947, 96.384, 0.252, 3.374},
			{24, 6.028, 4.501, 16.102, 104.857, 0.253, 3.393},
			{32, 5.770, 4.305, 21.639, 146.117, 0.254, 3.411},
			{40, 5.306, 3.955, 27.280, 207.407, 0.255, 3.428},
			{48, 6.236, 4.644, 28.194, 198.060, 0.255, 3.446},
			{56, 3.751, 2.792, 40.172, 461.429, 0.256, 3.467},
			{64, 4.371, 3.250, 50.852, 465.275, 0.256, 3.483},
			{72, 4.315, 3.206, 52.431, 478.620, 0.257, 3.502},
			{80, 3.293, 2.446, 76.774, 764.524, 0.257, 3.524},
			{88, 2.545, 1.890, 93.692, 1162.099, 0.257, 3.546},
			{96, 2.913, 2.160, 94.150, 913.137, 0.258, 3.558},
		},
		SMARTDTX: {
			{1, 0.495, 0.370, 7.899, 60.767, 0.251, 3.324},
			{8, 2.631, 1.967, 11.314, 84.630, 0.252, 3.350},
			{16, 4.623, 3.453, 12.671, 92.003, 0.253, 3.369},
			{24, 6.151, 4.590, 13.719, 99.926, 0.254, 3.389},
			{32, 7.389, 5.510, 15.851, 117.565, 0.254, 3.409},
			{40, 8.023, 5.978, 19.350, 141.899, 0.255, 3.427},
			{48, 8.056, 5.998, 21.711, 202.700, 0.256, 3.458},
			{56, 8.215, 6.111, 24.577, 221.541, 0.256, 3.471},
			{64, 8.709, 6.474, 29.267, 221.081, 0.257, 3.486},
			{72, 8.955, 6.653, 32.926, 249.228, 0.257, 3.507},
			{80, 9.022, 6.696, 36.710, 278.236, 0.258, 3.524},
			{88, 8.946, 6.634, 41.079, 309.086, 0.258, 3.543},
			{96, 8.782, 6.504, 40.491, 728.653, 0.259, 3.631},
		},
	},
}
