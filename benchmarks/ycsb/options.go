package ycsb

import (
	"fmt"
	"slices"
	"strings"

	"txnode/benchmarks/workload"
)

// Options are the parameters of the benchmark. Start from DefaultOptions: the zero value is not
// valid.
type Options struct {
	// Workload is the letter of YCSB's core workload, in lower case: a to f, or load,
	// the inserts by which YCSB fills its table. It decides the shares
	// of the operations, and the distribution unless that is given. Default a.
	Workload string
	// Table is Hash or Ordered. Workload e needs Ordered. Default: Ordered for workload e, else
	// Hash.
	Table string
	// Records is the number of records loaded. Default 100,000; at least 1.
	Records int
	// ValueSize is the size of a value in bytes, 8 at least. Default 100.
	ValueSize int
	// Keys is Random or Dense: what the key of a record number is. Default Random.
	Keys string
	// KeyType is Uint64 or Text. Default Uint64.
	KeyType string
	// Distribution of the records that operations use, one of Distributions. Default: Latest for
	// workload d, else Scrambled.
	Distribution string
	// ScanLength is the most records that a scan reads: it draws from 1 to so many. Default 100.
	ScanLength int
	// Theta is the skew of the distributions other than Uniform, from 0 to below 1. Default 0.99.
	Theta float64
}

// Values of Options.Table.
const (
	Hash    = "hash"
	Ordered = "ordered"
)

// Values of Options.Keys.
const (
	Random = "random" // a bijection of the record number, spread over 64 bits: YCSB's "hashed" order
	Dense  = "dense"  // the record number
)

// Values of Options.KeyType.
const (
	Uint64 = "uint64"
	Text   = "text" // "user" and 20 decimal digits, in a store whose keys are bytes
)

// Values of Options.Distribution.
const (
	Zipfian   = "zipfian"   // popular records are neighbours by number
	Scrambled = "scrambled" // popular records are spread over all numbers: what YCSB calls zipfian
	Latest    = "latest"    // what was inserted last is the most popular
	Uniform   = "uniform"
)

// Distributions are the values of Options.Distribution.
var Distributions = []string{Scrambled, Zipfian, Latest, Uniform}

// Workloads are the values of Options.Workload that a kind of table can run.
func Workloads(table string) []string {
	var out []string
	for _, c := range core {
		if table == Ordered || c.shares[Scan] == 0 {
			out = append(out, c.letter)
		}
	}
	return out
}

// core are YCSB's core workloads, and its load phase: percentages by type.
var core = []struct {
	letter, distribution string
	shares               [NumTypes]float64
}{
	{"a", Scrambled, [NumTypes]float64{Read: 50, Update: 50}},
	{"b", Scrambled, [NumTypes]float64{Read: 95, Update: 5}},
	{"c", Scrambled, [NumTypes]float64{Read: 100}},
	{"d", Latest, [NumTypes]float64{Read: 95, Insert: 5}},
	{"e", Scrambled, [NumTypes]float64{Scan: 95, Insert: 5}},
	{"f", Scrambled, [NumTypes]float64{Read: 50, ReadModifyWrite: 50}},
	{"load", Scrambled, [NumTypes]float64{Insert: 100}},
}

// Limits of Options.
const (
	minValue   = 8
	maxValue   = 1 << 20
	maxRecords = 1 << 31
	maxScan    = 1 << 20
)

// DefaultOptions returns workload A on 100,000 records of 100 bytes.
func DefaultOptions() Options {
	return Options{
		Workload: "a", ScanLength: 100, Records: 100_000, ValueSize: 100, Keys: Random, KeyType: Uint64, Theta: 0.99,
	}
}

// Validate returns nil, or an *workload.OptionsError that lists every fault.
func (o *Options) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	oneOf := func(field, value string, of ...string) {
		if !slices.Contains(of, value) {
			fault("%s is %q; it must be one of %s", field, value, strings.Join(of, ", "))
		}
	}
	oneOf("Workload", o.Workload, Workloads(Ordered)...)
	if o.Table != "" {
		oneOf("Table", o.Table, Hash, Ordered)
	}
	if o.Workload == "e" && o.Table == Hash {
		fault("Table is %s; workload e scans, which needs %s", Hash, Ordered)
	}
	oneOf("Keys", o.Keys, Random, Dense)
	oneOf("KeyType", o.KeyType, Uint64, Text)
	if o.Distribution != "" {
		oneOf("Distribution", o.Distribution, Distributions...)
	}
	if o.Records < 1 || o.Records > maxRecords {
		fault("Records is %d; it must be from 1 to %d", o.Records, maxRecords)
	}
	if o.ValueSize < minValue || o.ValueSize > maxValue {
		fault("ValueSize is %d; it must be from %d to %d", o.ValueSize, minValue, maxValue)
	}
	if o.ScanLength < 1 || o.ScanLength > maxScan {
		fault("ScanLength is %d; it must be from 1 to %d", o.ScanLength, maxScan)
	}
	if !(o.Theta >= 0 && o.Theta < 1) {
		fault("Theta is %v; it must be from 0 to less than 1", o.Theta)
	}
	if faults != nil {
		return &workload.OptionsError{Of: "ycsb", Faults: faults}
	}
	return nil
}

// distribution returns the distribution that is used.
func (o *Options) distribution() string {
	if o.Distribution != "" {
		return o.Distribution
	}
	return core[o.core()].distribution
}

// table is Options.Table, or its default.
func (o *Options) table() string {
	switch {
	case o.Table != "":
		return o.Table
	case core[o.core()].shares[Scan] > 0:
		return Ordered
	}
	return Hash
}

func (o *Options) core() int {
	for i := range core {
		if core[i].letter == o.Workload {
			return i
		}
	}
	return -1
}
