package hashbench

import "math"

// zipf draws ranks from 0 to n-1 with probabilities proportional to 1/(rank+1)^theta,
// theta below 1, in constant time (Gray et al., "Quickly Generating Billion-Record
// Synthetic Databases", SIGMOD'94, section 3.2).
type zipf struct {
	n                      float64
	alpha, zetan, eta, two float64
}

func newZipf(n uint64, theta float64) zipf {
	z := zipf{n: float64(n), zetan: zeta(n, theta), two: 1 + math.Pow(0.5, theta)}
	if theta == 0 || n < 3 {
		z.alpha = 0
		return z
	}
	z.alpha = 1 / (1 - theta)
	z.eta = (1 - math.Pow(2/float64(n), 1-theta)) / (1 - float64(z.two/z.zetan))
	return z
}

// exactTerms of the sum are added up; the rest is an integral, which at 1/n^theta a
// term is good to ten digits.
const exactTerms = 1 << 20

func zeta(n uint64, theta float64) float64 {
	sum := 0.0
	for i := uint64(1); i <= min(n, exactTerms); i++ {
		sum += 1 / math.Pow(float64(i), theta)
	}
	if n > exactTerms {
		from, to := float64(exactTerms)+0.5, float64(n)+0.5
		sum += (math.Pow(to, 1-theta) - math.Pow(from, 1-theta)) / (1 - theta)
	}
	return sum
}

// rank draws a rank from 64 random bits.
func (z *zipf) rank(random uint64) uint64 {
	u := float64(random>>11) / (1 << 53)
	if z.alpha == 0 {
		return min(uint64(u*z.n), uint64(z.n)-1)
	}
	uz := float64(u * z.zetan)
	if uz < 1 {
		return 0
	}
	if uz < z.two {
		return 1
	}
	return min(uint64(z.n*math.Pow(float64(z.eta*u)-z.eta+1, z.alpha)), uint64(z.n)-1)
}

// keyOf scatters ranks: a bijection, so that keys are as many as ranks.
func keyOf(rank uint64) uint64 {
	z := rank + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
