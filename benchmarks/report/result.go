package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"txnode/benchmarks/workload"
)

// Schema of Result.
const (
	ResultSchema  = "txnode/result"
	ResultVersion = 1
)

// Result is a benchmark: what was run, on what, and what came out.
type Result struct {
	Schema        string      `json:"schema"`
	SchemaVersion int         `json:"schema_version"`
	ID            uint64      `json:"id,omitempty"`   // in the history
	Name          string      `json:"name,omitempty"` // given by the user
	Time          time.Time   `json:"time"`           // when it ended
	Command       []string    `json:"command,omitempty"`
	Workload      string      `json:"workload"`
	Store         Store       `json:"store"`
	Parameters    []Parameter `json:"parameters"` // of the workload
	Drive         Drive       `json:"drive"`
	Environment   Environment `json:"environment"`
	Load          Load        `json:"load"`
	Runs          []Run       `json:"runs"`
	Summary       []Summary   `json:"summary"` // per type in the order of the mix, then all; empty without a run
	Interrupted   bool        `json:"interrupted"`
	// LostBlades are those of the engine that were lost though nobody had asked for it.
	LostBlades []LostBlade `json:"lost_blades,omitempty"`
	// Copies of segments that are missing at the end, although their data is there; and segments
	// without any, and with copies only on blades that are away.
	CopiesMissing       int `json:"copies_missing,omitempty"`
	SegmentsLost        int `json:"segments_lost,omitempty"`
	SegmentsUnavailable int `json:"segments_unavailable,omitempty"`
	// Verified: every run's books balance, and its history, if it was recorded,
	// is strictly serializable.
	Verified bool   `json:"verified"`
	Error    string `json:"error,omitempty"` // what ended the benchmark early
}

// Store is what ran the transactions.
type Store struct {
	Name        string   `json:"name"`
	Fabric      string   `json:"fabric"` // what the verbs go over, for people
	Policy      string   `json:"policy"`
	Techniques  []string `json:"techniques"` // of SMART's, those that are on
	Replicas    int      `json:"replicas"`   // backups of each record (f)
	Blades      int      `json:"blades"`
	BladeBytes  int64    `json:"blade_bytes"`
	Directory   string   `json:"directory,omitempty"` // empty: memory only
	Power       bool     `json:"survives_power_loss,omitempty"`
	ReadBackups bool     `json:"read_backups,omitempty"` // what is only read
	HugePages   bool     `json:"huge_pages,omitempty"`   // explicit ones
}

// Techniques are the names of all of SMART's techniques that a store may use.
var Techniques = []string{"doorbells", "throttle", "backoff", "dynlimit", "corolimit"}

// LostBlade is a blade that was lost while the benchmark ran.
type LostBlade struct {
	Blade  int    `json:"blade"`
	Cause  string `json:"cause"`
	Back   bool   `json:"back"`             // at the end it takes part
	Vacant bool   `json:"vacant,omitempty"` // at the end it has no place any more
}

// Parameter is an option of the workload, by its flag.
type Parameter struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default bool   `json:"default"` // the value is the default
}

// Drive is how the workload was driven.
type Drive struct {
	Processes     int     `json:"processes,omitempty"` // each with the threads below; 0: one
	Threads       int     `json:"threads"`
	Coroutines    int     `json:"coroutines"` // per thread
	WarmupNs      int64   `json:"warmup_ns"`
	DurationNs    int64   `json:"duration_ns"` // asked for; 0: by transactions
	Txns          int64   `json:"txns"`        // asked for; 0: by duration
	Runs          int     `json:"runs"`        // asked for
	RatePerS      float64 `json:"rate_per_s"`  // 0: closed loop
	Seed          uint64  `json:"seed"`
	LatencySample int     `json:"latency_sample"` // one transaction in so many was measured
	Verify        bool    `json:"verify"`
}

// Environment is what a result was measured on.
type Environment struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	MemoryMiB  int    `json:"memory_mib"`
	HugePages  string `json:"transparent_huge_pages"`
	OS         string `json:"os"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Revision   string `json:"revision"`
	Version    string `json:"version"`
}

// Load is what loading has done.
type Load struct {
	Existed bool   `json:"existed"` // the data was there already
	Records int    `json:"records"`
	Summary string `json:"summary"`
	TimeNs  int64  `json:"time_ns"`
}

// Run is one measured run.
type Run struct {
	Seed        uint64    `json:"seed"`
	ElapsedNs   int64     `json:"elapsed_ns"`
	Interrupted bool      `json:"interrupted"`
	Types       []Measure `json:"types"`
	All         Measure   `json:"all"`
	Arrivals    int64     `json:"arrivals,omitempty"` // open loop: due in the time measured
	Backlog     int64     `json:"backlog,omitempty"`  // of them not begun at the end
	Books       Books     `json:"books"`
	History     *History  `json:"history,omitempty"`
	Failover    *Failover `json:"failover,omitempty"` // of a run in which blades were stopped
	// What plots are made of; all of it is missing from results of older versions.
	Throughput  *Throughput     `json:"throughput,omitempty"`
	Histogram   *Histogram      `json:"latency_histogram,omitempty"` // of all types, like the next
	Percentiles []Percentile    `json:"latency_percentiles,omitempty"`
	Phases      []MeasuredPhase `json:"phases,omitempty"` // per committed transaction
}

// Measure is what was measured of a transaction type, or of all.
type Measure struct {
	Name          string    `json:"name"`
	SharePercent  float64   `json:"share_percent"`
	Committed     uint64    `json:"committed"`
	RolledBack    uint64    `json:"rolled_back"`
	RowAbsent     uint64    `json:"row_absent"`
	Conflicts     Conflicts `json:"conflicts"`
	Attempts      uint64    `json:"attempts"`
	CommittedPerS float64   `json:"committed_per_s"`
	LatencyNs     Latency   `json:"latency_ns"` // of committed transactions
	PerCommitted  Cost      `json:"per_committed"`
	PerAttempt    Cost      `json:"per_attempt"`
}

// Ended is the number of transactions that ended, in whatever way.
func (m *Measure) Ended() uint64 { return m.Committed + m.RolledBack + m.RowAbsent }

// Conflicts counts attempts that ended in a conflict, by reason.
type Conflicts [workload.NumAbortReasons]uint64

// Total is the number for all reasons.
func (c Conflicts) Total() uint64 {
	var n uint64
	for _, v := range c {
		n += v
	}
	return n
}

// conflictKeys are the names of the reasons in JSON and CSV.
var conflictKeys = [workload.NumAbortReasons]string{
	workload.AbortLocked:     "locked",
	workload.AbortReadLocked: "read_locked",
	workload.AbortValidation: "validation",
	workload.AbortPhantom:    "phantom",
	workload.AbortStale:      "stale",
	workload.AbortOther:      "other",
}

// MarshalJSON writes an object with the number for each reason.
func (c Conflicts) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for r, key := range conflictKeys {
		if r > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%q:%d", key, c[r])
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON writes. Reasons that it does not know
// count as other.
func (c *Conflicts) UnmarshalJSON(b []byte) error {
	var m map[string]uint64
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*c = Conflicts{}
	for key, n := range m {
		r := int(workload.AbortOther)
		for i, k := range conflictKeys {
			if k == key {
				r = i
			}
		}
		c[r] += n
	}
	return nil
}

// Latency sums a histogram up, in ns. All zero when nothing was measured.
type Latency struct {
	Samples int64   `json:"samples"`
	Min     int64   `json:"min"`
	Mean    float64 `json:"mean"`
	P50     int64   `json:"p50"`
	P90     int64   `json:"p90"`
	P99     int64   `json:"p99"`
	P999    int64   `json:"p99_9"`
	Max     int64   `json:"max"` // of the samples
}

// Cost is what one transaction, or attempt, has cost in the mean.
type Cost struct {
	Verbs        float64 `json:"verbs"`
	RoundTrips   float64 `json:"round_trips"`
	BytesRead    float64 `json:"bytes_read"`
	BytesWritten float64 `json:"bytes_written"`
}

// Books is the check of the workload's rules after a run.
type Books struct {
	Balance bool    `json:"balance"`
	Records int     `json:"records"`
	Checks  []Check `json:"checks"`
	Error   string  `json:"error,omitempty"` // why they could not be checked, or the first rule broken
}

// Check is one rule.
type Check struct {
	Rule   string `json:"rule"`
	Holds  bool   `json:"holds"`
	Detail string `json:"detail"`
}

// History is the check of a recorded history.
type History struct {
	Serializable bool   `json:"strictly_serializable"`
	Txns         int    `json:"txns"`
	Ops          int    `json:"ops"`
	Edges        int    `json:"edges"`
	Windows      int    `json:"windows"`
	Ambiguous    int    `json:"ambiguous"` // 0: the verdict is exact
	CheckNs      int64  `json:"check_ns"`
	Violation    string `json:"violation,omitempty"`
}

// Stat is the median of a metric over runs, and its range.
type Stat struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summary is a Measure over all runs.
type Summary struct {
	Name              string  `json:"name"`
	SharePercent      float64 `json:"share_percent"`
	CommittedPerS     Stat    `json:"committed_per_s"`
	CommittedPercent  Stat    `json:"committed_percent"`   // of the transactions that ended
	RolledBackPercent Stat    `json:"rolled_back_percent"` // of them
	RowAbsentPercent  Stat    `json:"row_absent_percent"`  // of them
	ConflictPercent   Stat    `json:"conflict_percent"`    // of attempts
	// ByReason splits ConflictPercent, medians only, in the order of workload's reasons.
	ByReason     ReasonPercents `json:"conflict_percent_by_reason"`
	P50Ns        Stat           `json:"p50_ns"`
	P90Ns        Stat           `json:"p90_ns"`
	P99Ns        Stat           `json:"p99_ns"`
	P999Ns       Stat           `json:"p99_9_ns"`
	MaxNs        Stat           `json:"max_ns"`
	Verbs        Stat           `json:"verbs"` // per committed, like the next three
	RoundTrips   Stat           `json:"round_trips"`
	BytesRead    Stat           `json:"bytes_read"`
	BytesWritten Stat           `json:"bytes_written"`
	VerbsAttempt Stat           `json:"verbs_per_attempt"`
}

// ReasonPercents are percentages of attempts that ended in a conflict, by reason.
type ReasonPercents [workload.NumAbortReasons]float64

// MarshalJSON writes an object with the percentage for each reason.
func (p ReasonPercents) MarshalJSON() ([]byte, error) {
	m := make(map[string]float64, len(p))
	for r, key := range conflictKeys {
		m[key] = p[r]
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *ReasonPercents) UnmarshalJSON(b []byte) error {
	var m map[string]float64
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	for r, key := range conflictKeys {
		p[r] = m[key]
	}
	return nil
}

// All returns the summary of all types; nil without a run.
func (r *Result) All() *Summary {
	if len(r.Summary) == 0 {
		return nil
	}
	return &r.Summary[len(r.Summary)-1]
}

// WriteJSON writes v, indented, with a line feed at the end.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// DecodeResult reads a Result in JSON. The error wraps ErrSchema if it is
// something else, or newer.
func DecodeResult(b []byte) (*Result, error) {
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%w: not a result: %w", ErrSchema, err)
	}
	if r.Schema != ResultSchema || r.SchemaVersion < 1 {
		return nil, fmt.Errorf("%w %q, version %d; want %q, version 1 to %d", ErrSchema, r.Schema, r.SchemaVersion,
			ResultSchema, ResultVersion)
	}
	if r.SchemaVersion > ResultVersion {
		return nil, fmt.Errorf("%w: version %d of %q was written by a newer txnode, this one knows version %d; update",
			ErrSchema, r.SchemaVersion, r.Schema, ResultVersion)
	}
	return &r, nil
}
