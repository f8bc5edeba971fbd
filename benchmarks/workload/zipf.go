package workload

import "math"

// Zipf draws ranks from 0 to n-1 with probabilities proportional to 1/(rank+1)^theta, in constant
// time (Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD'94, section
// 3.2). It is the method of YCSB: ranks 0 and 1 have their exact probabilities, the others
// approximate ones. Not safe for concurrent use; copies are independent.
type Zipf struct {
	n, theta               float64
	alpha, zetan, eta, two float64
}

// NewZipf returns a distribution over n ranks, n > 0, with 0 <= theta < 1. Theta 0 is uniform.
func NewZipf(n uint64, theta float64) Zipf {
	z := Zipf{theta: theta, zetan: zeta(n, theta), two: 1 + math.Pow(0.5, theta)}
	z.set(n)
	return z
}

func (z *Zipf) set(n uint64) {
	z.n, z.alpha = float64(n), 0
	if z.theta == 0 || n < 3 {
		return
	}
	z.alpha = 1 / (1 - z.theta)
	z.eta = (1 - math.Pow(2/z.n, 1-z.theta)) / (1 - float64(z.two/z.zetan))
}

// N returns the number of ranks.
func (z *Zipf) N() uint64 { return uint64(z.n) }

// Grow makes it a distribution over n ranks, which are not fewer than before. It takes time in
// proportion to the ranks added.
func (z *Zipf) Grow(n uint64) {
	if n == z.N() {
		return
	}
	for i := z.N() + 1; i <= n; i++ {
		z.zetan += 1 / math.Pow(float64(i), z.theta)
	}
	z.set(n)
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

// Rank returns the rank that 64 random bits draw.
func (z *Zipf) Rank(random uint64) uint64 {
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

// Scatter maps numbers to keys that are spread over 64 bits: a bijection, so that keys are
// as many as numbers.
func Scatter(number uint64) uint64 { return mix64(number + goldenGamma) }
