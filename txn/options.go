package txn

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"go.uber.org/zap"

	"txnode/history"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/supervisor"
)

// Options of a database. The zero value is a database of two blades in the memory of this process,
// with one backup of each record.
type Options struct {
	// Dir keeps blades and catalog in files of this directory. The data is there again when the
	// directory is opened again. Empty: anonymous memory, gone with Close.
	Dir string
	// Blades is the number of memory blades, at most layout.MaxBlades (64); 0: 2,
	// or what Dir has.
	Blades int
	// BladeSize is the size of a blade's region in bytes, a multiple of 64 KiB up to 64 TiB;
	// 0: 16 GiB. Memory and disk are used as data comes. Open refuses a new database whose blades
	// have no room for one table: two blades of 1,114,112 bytes have, with one backup.
	BladeSize uint64
	// SegmentSize is the unit in which blades hand out memory, in bytes: a power
	// of two from 256 KiB to 64 MiB; 0: 64 MiB, or in Dir 8 MiB, or less if the blades
	// are small, or what Dir has. In files a segment takes its disk space when it is
	// handed out; a table of small records, its index and the logs of two workers take
	// about 5 on each blade.
	SegmentSize uint32
	// Backups is f, the number of copies beside the primary: 0, 1 or 2, each on a
	// blade of its own. nil: 1, or 0 with one blade, or what Dir has.
	Backups *int
	// HugePages uses explicit huge pages, which must be reserved. Transparent ones
	// are used anyway.
	HugePages bool
	// ReadOnly opens Dir without writing to it: no file is made or changed. A database that others
	// share by a Fabric gets no table, index or record of this process, which registers and does
	// its part of recovery. Where there is no database yet, none is made.
	ReadOnly bool
	// ReplaceLost opens a database in Dir although region files are missing or blank, which is
	// refused otherwise. The blades of such files count as lost, begin anew with blank files, and
	// get copies from the other blades while transactions run (DB.Redundancy). Data whose every
	// copy was in them is ErrLost. What such a file held is never asked for again: first make sure
	// that it cannot be brought back.
	//
	// It also opens a database that was open with DurabilityPower and not closed although every
	// copy of some records had been lost before, which is ErrLost otherwise. The indexes are built
	// anew, so these records are absent then.
	ReplaceLost bool

	// Fabric and Catalog run the database on blades of the caller's; Dir, Blades, BladeSize and
	// HugePages must then be zero. The caller closes them after Close. SegmentSize, LogArea and
	// Backups are, where they are zero, what the database has that is there.
	Fabric  rdma.Fabric
	Catalog layout.Catalog
	// Closer, if not nil, is closed by DB.Close after everything else, and by Open when it fails.
	Closer io.Closer
	// Shared makes a new database one that several processes can have open at once, through a
	// catalog that they share: see package cluster. It belongs to the database, and needs a
	// LeaseTerm that is not negative. One process at a time can restore such a database, while no
	// other one has it open: else it is memory.ErrShared. DB.Backup goes on beside others.
	// DurabilityPower is not possible.
	Shared bool

	// Policy decides which verbs commit. PolicyDefault posts as few as possible, PolicyFORD those
	// of FORD, to compare.
	Policy Policy
	// Techniques of SMART adapt how many verbs are under way and how soon a conflict is retried;
	// nil: all.
	Techniques *rdma.Techniques
	// Tuner is how the limit of verbs under way is found, where Techniques.Throttle is on and verbs
	// do not complete at once: for all threads together, or for each alone.
	Tuner rdma.TunerPolicy
	// QPPolicy allocates queue pairs and doorbells, on fabrics where that matters; the
	// zero value is a doorbell for each thread.
	QPPolicy rdma.QPPolicy
	// ReadBackups reads from the first backup what is only read, which spreads the load over the
	// blades. The primary then validates it, even where a single read would need no validation.
	ReadBackups bool
	// Durability is what a commit survives before it is acknowledged: DurabilityProcess, the zero
	// value, or DurabilityPower. It belongs to this opening, not to the database.
	Durability Durability

	// LeaseTerm is how long others wait for a process, or a worker of their own, that has stopped
	// before they decide its transactions; 0: 2 seconds, a year at most; negative: for ever, or
	// until the next opening. Safety depends neither on it nor on clocks; only the time until a
	// dead worker's locks are gone does. There is one exception, in a shared database: if a process
	// hears nothing of a blade that another one reaches, see ClockDrift.
	LeaseTerm time.Duration
	// ClockDrift bounds how much faster another's clock may run, as a part of LeaseTerm; 0: 0.1. If
	// it is more, live workers are taken for dead, which loses nothing; and a process of a shared
	// database that has lost the catalog may read old data, for as long, from a blade that was
	// declared dead for its silence.
	ClockDrift float64
	// GiveBack is for how long nothing has to be in use of a segment of records before the memory
	// of the segment serves records of other sizes, and indexes; 0: 10 s, negative: for ever. It is
	// up to 64 times as long for a size that has needed another segment soon after; at most a day.
	// Of each size in use one such segment is kept. If the blades are full, none of that counts,
	// and transactions wait for it, 2 s at most, before they fail with ErrNoSpace. It goes back
	// when all transactions have ended that had begun before, and none is interrupted; a worker
	// that stays in one for a LeaseTerm is recovered then. A process does so for segments that it
	// has made or adopted.
	GiveBack time.Duration
	// Workers bounds the workers that Update, View and Begin borrow; 0: 4 per CPU. There are fewer
	// when the blades have no room for the logs of more. With DurabilityPower more workers share a
	// flush, so more of them commit more.
	Workers int
	// WorkerWait bounds how long Update, View and Begin wait for a worker before they return
	// ErrNoWorker; 0: 10 seconds; negative: as long as their context allows.
	WorkerWait time.Duration
	// Retries bounds how often Update tries again after conflicts; 0: 1000. The more transactions
	// of the process have many conflicts, the longer each waits between two attempts. Waiting for
	// one lock counts as an attempt for each millisecond.
	Retries int
	// SingleAttempt makes Update and View try once. A conflict is returned as ErrConflict, and the
	// worker backs off after every attempt without a commit. FORD's and SMART's benchmarks count
	// and retry so. With PolicyFORD a transaction that ends itself also posts FORD's verbs: it logs
	// what it locked, and does not check that what it saw was true at one moment. For comparisons
	// only.
	SingleAttempt bool
	// Arena is the registered memory of a worker's thread in bytes; 0: 16 MiB. The records of a
	// transaction, as read and as written, must fit, beside 288 KiB and 64 KiB for each coroutine
	// of the thread. DB.Run refuses more coroutines than fit.
	//
	// Pieces are rounded up to powers of two: a value of 1 MiB takes two, and an absent key takes 2
	// KiB. 16 MiB hold 6,500 new keys, or two values of 1 MiB that are read and replaced. A record
	// in a larger block than it needs, as on full blades, takes up to 4 KiB more.
	Arena int
	// CacheBytes bounds the cache of record addresses; 0: 512 MiB.
	CacheBytes int
	// LogArea is the log space of a worker on each blade in bytes, a power of two of at least 4
	// KiB; 0: 4 MiB, or SegmentSize if that is smaller. It bounds what one transaction can write.
	LogArea uint32
	// ReclaimAfter is the number of deletes of a worker until it frees the block and slot of the
	// first deleted key; 0: 16384. Until then an insert of the key uses them again. The worker
	// keeps no more than about 5 MiB of such blocks.
	ReclaimAfter int
	// IndexGroups is the number of bucket groups in a sub-table of a new table's
	// index, of 192 bytes each; 0: 127, or 1,023 in a table that is made for more than
	// 32,768 records. Small ones make tables resize often.
	IndexGroups uint32
	// LeafIndex gives a hash table that is created an index of leaves, which are blocks that commits
	// change (package index/bucket), in place of RACE's slots. It is for comparisons of the two, and
	// becomes what all tables have. Hash tables that have slots get leaves when the database is opened
	// for writing, unless other processes have it open: see docs/ordered.md.
	LeafIndex bool
	// NodeEntries is the number of entries that a node of an ordered table's index has at
	// most before this handle splits it: 2 or more; 0: as many as have room. Small ones make
	// high trees, for tests.
	NodeEntries int
	// LatencySample: Metrics.Latency times one transaction in so many of each worker; 1: all.
	// Reading the clock twice costs as much as several verbs in memory. 0: 61, or 1 where a commit
	// takes longer than that anyway: with DurabilityPower, or on a fabric whose verbs do not
	// complete at once.
	LatencySample int
	// Seed of all randomness; 0: from the clock.
	Seed uint64
	// History records what every committed transaction read and wrote, for package
	// check. It costs memory without bound.
	History *history.Recorder
	// Logger of rare events; nil: none. SlogLogger makes one of a *slog.Logger. A goroutine of
	// the database calls it, and nothing waits for it but DB.Close, for up to a second. Lines
	// that find 256 others waiting are left out, and so are those of a kind of which there
	// were 10 in the same second; a line tells how many. On a fabric with virtual time all
	// lines are written at once.
	Logger *zap.Logger
}

// Policy is a way to commit; see docs/protocol.md.
type Policy = occ.Policy

// Policies.
const (
	PolicyDefault = occ.PolicyDefault
	PolicyFORD    = occ.PolicyFORD
)

// Defaults of options.
const (
	DefaultBlades    = 2
	DefaultBladeSize = embedded.DefaultBladeSize // bytes
	DefaultBackups   = 1
	DefaultRetries   = 1000
	DefaultLeaseTerm = supervisor.DefaultLeaseTerm
	DefaultGiveBack  = 10 * time.Second
	maxGiveBack      = 24 * time.Hour
	maxLeaseTerm     = 365 * 24 * time.Hour
	// DefaultWorkerWait is longer than thousands of waiting transactions take.
	DefaultWorkerWait = 10 * time.Second
	maxWorkers        = 1024
	maxLatencySample  = 1 << 20
	// cheapLatencySample is prime, so that it does not keep time with what is done every 32
	// transactions.
	cheapLatencySample = 61
)

// F returns a pointer to n, for Options.Backups.
func F(n int) *int { return &n }

// embedded is the part of the options that makes blades in this process. What is
// zero is taken from the database in Dir, or its default.
func (o Options) embedded() embedded.Options {
	e := embedded.Options{
		Dir: o.Dir, Blades: o.Blades, BladeSize: o.BladeSize, SegmentSize: o.SegmentSize, LogArea: o.LogArea,
		ReadOnly: o.ReadOnly, ReplaceLost: o.ReplaceLost, HugePages: o.HugePages,
		Durable: o.Durability == DurabilityPower, Seed: o.Seed,
	}
	if o.Backups != nil {
		e.Replicas = *o.Backups + 1
	}
	return e
}

func (o Options) withDefaults() Options {
	if o.Techniques == nil {
		t := rdma.AllTechniques
		o.Techniques = &t
	}
	if o.Workers == 0 {
		o.Workers = min(4*runtime.GOMAXPROCS(0), maxWorkers)
	}
	if o.GiveBack == 0 {
		o.GiveBack = DefaultGiveBack
	}
	if o.LeaseTerm == 0 {
		o.LeaseTerm = DefaultLeaseTerm
	}
	if o.ClockDrift == 0 {
		o.ClockDrift = 0.1
	}
	if o.WorkerWait == 0 {
		o.WorkerWait = DefaultWorkerWait
	}
	if o.Retries == 0 {
		o.Retries = DefaultRetries
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Validate lists every fault of the options at once; its error is an ErrOptions.
func (o Options) Validate() error {
	var faults []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	if o.Fabric != nil {
		bad(o.Catalog == nil, "Fabric needs a Catalog")
		n := len(o.Fabric.Blades())
		bad(n > layout.MaxBlades, "Fabric has %d blades: at most %d are possible", n, layout.MaxBlades)
		bad(o.Dir != "" || o.Blades != 0 || o.BladeSize != 0 || o.HugePages,
			"Dir, Blades, BladeSize and HugePages do not go with Fabric")
	} else {
		bad(o.Catalog != nil, "Catalog needs a Fabric")
		bad(o.Shared, "Shared needs Fabric and Catalog: a directory belongs to one process")
		blades := o.Blades
		if blades == 0 {
			blades = DefaultBlades
		}
		bad(o.Blades < 0 || o.Blades > layout.MaxBlades, "Blades is %d: 1 to %d are possible",
			o.Blades, layout.MaxBlades)
		o.checkBladeSize(bad)
		bad(o.Backups != nil && o.Dir == "" && *o.Backups >= blades,
			"Backups is %d: more blades than backups are needed, there are %d", deref(o.Backups), blades)
	}
	bad(o.Backups != nil && (*o.Backups < 0 || *o.Backups >= layout.MaxReplicas),
		"Backups is %d: 0, 1 and 2 are possible", deref(o.Backups))
	bad(o.HugePages && o.Dir != "", "HugePages are for anonymous memory, and Dir is %q", o.Dir)
	bad(o.ReplaceLost && (o.Dir == "" && o.Fabric == nil || o.ReadOnly),
		"ReplaceLost needs Dir, or Fabric, and writes to it")
	bad(o.ReadOnly && o.Dir == "" && o.Fabric == nil, "ReadOnly needs Dir")
	bad(o.Durability > DurabilityPower, "Durability %d is unknown", o.Durability)
	bad(o.Durability == DurabilityPower && o.Policy == occ.PolicyFORD,
		"Durability power needs PolicyDefault: FORD's undo log would have to be durable before every image")
	bad(o.Durability == DurabilityPower && o.Dir == "" && o.Fabric == nil,
		"Durability power needs Dir: anonymous memory does not survive anything")
	bad(o.NodeEntries < 0 || o.NodeEntries == 1, "NodeEntries is %d: 0, or from 2 on, are possible", o.NodeEntries)
	bad(o.GiveBack > maxGiveBack, "GiveBack is %v, and %v at most: for ever is a negative one", o.GiveBack, maxGiveBack)
	bad(o.ReclaimAfter < 0, "ReclaimAfter is %d: it counts deletes", o.ReclaimAfter)
	bad(o.Workers < 0 || o.Workers > maxWorkers, "Workers is %d: 1 to %d are possible", o.Workers, maxWorkers)
	bad(o.LeaseTerm > maxLeaseTerm, "LeaseTerm is %v, and %v at most: for ever is a negative one",
		o.LeaseTerm, maxLeaseTerm)
	bad(!(o.ClockDrift >= 0 && o.ClockDrift <= 10), "ClockDrift is %v: it must be from 0 to 10", o.ClockDrift)
	bad(o.Retries < 0, "Retries is %d: it must not be negative", o.Retries)
	bad(o.Arena < 0 || o.Arena > 1<<30 || o.Arena > 0 && o.Arena < 1<<20, "Arena is %d: 1 MiB to 1 GiB are possible",
		o.Arena)
	bad(o.LatencySample < 0 || o.LatencySample > maxLatencySample, "LatencySample is %d: 1 to %d are possible",
		o.LatencySample, maxLatencySample)
	bad(o.CacheBytes < 0, "CacheBytes is %d: it must not be negative", o.CacheBytes)
	bad(o.QPPolicy > rdma.SharedQP, "QPPolicy %d is unknown", o.QPPolicy)
	bad(o.Policy > occ.PolicyFORD, "Policy %d is unknown", o.Policy)
	if err := (memory.Options{SegmentSize: o.SegmentSize, LogArea: o.LogArea}).Validate(); err != nil {
		faults = append(faults, err)
	}
	if o.IndexGroups != 0 {
		if err := (race.Options{Groups: o.IndexGroups}).Validate(); err != nil {
			faults = append(faults, fmt.Errorf("IndexGroups: %w", err))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrOptions, errors.Join(faults...))
}

func deref(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}
