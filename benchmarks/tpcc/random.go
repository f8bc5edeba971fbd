package tpcc

import "txnode/benchmarks/workload"

// random draws what TPC-C prescribes (clauses 2.1.6, 4.3.2).
type random struct{ workload.Rand }

// between returns a number from lo to hi, both inclusive.
func (r *random) between(lo, hi int) int { return lo + r.Intn(hi-lo+1) }

// nonUniform is NURand(A, lo, hi) with its constant C.
func (r *random) nonUniform(a, c, lo, hi int) int {
	return ((r.between(0, a)|r.between(lo, hi))+c)%(hi-lo+1) + lo
}

// The constants C of NURand. Those of last names must differ by 65 to 119, and not by 96 or 112,
// between loading and running (clause 2.1.6.1).
const (
	lastNameLoad = 157
	lastNameRun  = 223
	customerC    = 259
	itemC        = 7911
)

func (r *random) customer(o *Options) uint16 {
	return uint16(r.nonUniform(1023, customerC, 1, o.Customers))
}

func (r *random) item(o *Options) uint32 { return uint32(r.nonUniform(8191, itemC, 1, o.Items)) }

// lastName draws the number of a last name.
func (r *random) lastName(o *Options, c int) int { return r.nonUniform(255, c, 0, o.names()-1) }

const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// text fills text with lo to len(text) letters and digits, and zeros behind them. It
// returns their number.
func (r *random) text(text []byte, lo int) int {
	n := r.between(lo, len(text))
	bits := uint64(0)
	for i := range text[:n] {
		if i%10 == 0 {
			bits = r.Uint64()
		}
		text[i] = alphanumeric[bits%64%uint64(len(alphanumeric))]
		bits /= 64
	}
	clear(text[n:])
	return n
}

// digits fills text with decimal digits.
func (r *random) digits(text []byte) {
	for i := range text {
		text[i] = '0' + byte(r.Intn(10))
	}
}

// data is text of which one in ten contains "ORIGINAL".
func (r *random) data(text []byte) {
	n := r.text(text, 26)
	if r.Intn(10) == 0 {
		copy(text[r.between(0, n-len(original)):], original)
	}
}

const original = "ORIGINAL"

// numNames is how many last names TPC-C has.
const numNames = 1000

var syllables = [10]string{"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}

// putLastName writes the last name of a number, and zeros behind it.
func putLastName(text []byte, number int) {
	n := copy(text, syllables[number/100])
	n += copy(text[n:], syllables[number/10%10])
	n += copy(text[n:], syllables[number%10])
	clear(text[n:])
}
