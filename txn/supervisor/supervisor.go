package supervisor

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// Host is what a supervisor asks of the database that it looks after. Its methods are safe
// for concurrent use.
type Host interface {
	// Control calls fn with the coroutine of the control path. Nothing else that is rare runs
	// meanwhile.
	Control(fn func(c *rdma.Coro) error) error
	// BesideBackups calls fn, which begins an epoch that can wait, unless a backup is made that
	// would have to begin anew by that. Then it is nil, and fn is called later.
	BesideBackups(fn func() error) error
	// Ask asks everything to end that has begun by now, in all processes, as a change that all must
	// know does (memory/rest.go), and returns a function that reports whether it has.
	Ask() (rested func() (bool, error), err error)
	// LookForRest does what is to be done about changes that all must know, and reports whether it
	// is to be called again soon.
	LookForRest() (more bool)
}

// Sessions are those of the process: an occ.Engine. Its methods are safe for concurrent use.
type Sessions interface {
	// Recovery are the options of recoveries in the name of no session.
	Recovery() recovery.Options
	// RenewAll renews the leases of all sessions, and that of the process.
	RenewAll(now int64) error
	// Prolong is RenewAll as far as it needs no catalog.
	Prolong(now int64)
	// CompleteVerdicts keeps the outcomes of transactions that were recovered.
	CompleteVerdicts() error
	// Plenty says that there is room again.
	Plenty()
}

// DefaultLeaseTerm is how often it is looked for what has expired if leases do not end.
const DefaultLeaseTerm = 2 * time.Second

// Options are what a supervisor works with.
type Options struct {
	Space      *memory.Space
	Fabric     rdma.Fabric
	Host       Host
	Logger     *zap.Logger
	Techniques rdma.Techniques
	Thread     int           // the index of the first of its threads
	LeaseTerm  time.Duration // negative: leases do not end
	GiveBack   time.Duration // for how long nothing must be in use of a segment that goes back; negative: none does
}

// Supervisor sees to blades that die and come back, to copies, and to coordinators that are gone.
// Safe for concurrent use, but for Start and Close.
//
// The session that meets a silent blade declares it dead, on its own thread, and decides all
// transactions; the other sessions wait. The rest is done in small steps beside the transactions.
type Supervisor struct {
	opts     Options
	space    *memory.Space
	fabric   rdma.Fabric
	host     Host
	log      *zap.Logger
	sessions atomic.Pointer[Sessions] // nil: there are none yet

	ctx         context.Context // of the goroutines
	end         context.CancelFunc
	done        sync.WaitGroup
	unrenew     func()       // ends renewing
	watches     bool         // a goroutine follows the catalog; never changed after Start
	thread      *rdma.Thread // of the keeper
	tending     atomic.Int32 // rounds of Tenders that run
	maintaining atomic.Int32 // of these, rounds of maintenance
	resting     chan struct{}
	hurry       chan struct{} // has the next round of maintenance begin at once
	kick        chan struct{} // has the keeper look around at once

	sweeper *recovery.Sweeper // of the goroutines, in Host.Control
	// damaged is what the last sweep has come to its end beside, nil: nothing.
	damaged atomic.Pointer[damagedSweep]

	deciding atomic.Bool // a session looks after blades that do not answer
	keeping  atomic.Bool // the next step of what can wait is being done
	degraded atomic.Bool // there is something that can wait
	copier   *memory.Copier
	progress atomic.Pointer[copying]
	suspects atomic.Int32          // that were told of
	failure  atomic.Pointer[error] // what the last step of what can wait has failed with
	looked   atomic.Uint32         // the epoch in which it was looked whether anything is missing
	lookAt   int64                 // when to look next whether a blade is back
	giving   giving
	copying  bool          // this process has the right to take in blades and to build copies
	useless  layout.Epoch  // in which it had no use for it, and leaves it to others
	usefulAt int64         // until then
	rest     int64         // for how long, the last time
	pending  layout.Epoch  // in which it was seen last that transactions wait to be decided
	gatedAt  int64         // since when
	losses   atomic.Uint64 // outages that were noted

	mu       sync.Mutex
	outages  []Outage
	lookedAt int64                  // when it was looked last whether blades answer: see lookAround
	judgeAt  int64                  // when to ask the other members again about blades that this process does without
	askAt    int64                  // when another round of questions may begin about a blade that others hear
	down     [layout.MaxBlades]bool // it is known of a blade, or about to be: see outagesOfOthers
	// expected counts the changes under way of which it is known that a blade may be down after
	// them: see Expecting.
	expected int
}

// New makes a supervisor, which renews the registration of the process from now on, until Close.
func New(o Options) *Supervisor {
	s := &Supervisor{
		opts: o, space: o.Space, fabric: o.Fabric, host: o.Host, log: o.Logger,
		hurry: make(chan struct{}, 1), kick: make(chan struct{}, 1), lookedAt: math.MinInt64 / 2,
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.unrenew = s.renewing()
	return s
}

// Start begins to look after everything, with the sessions of the process.
func (s *Supervisor) Start(own Sessions) (err error) {
	s.sessions.Store(&own)
	s.copier = s.space.NewCopier()
	r := s.space.Redundancy()
	s.degraded.Store(unfinished(r))
	for _, b := range r.Down {
		s.down[b] = true
	}
	if s.Keeps() {
		if s.thread, err = s.newThread(0); err != nil {
			return err
		}
	}
	if s.watches = s.fabric.Caps().RealTime; s.watches && s.space.Shared() {
		s.resting = make(chan struct{}, 1)
		s.done.Go(s.restAll)
	}
	if s.Keeps() {
		s.done.Go(s.keepAll)
	}
	if s.Maintains() {
		s.done.Go(s.maintainAll)
	}
	if s.watches {
		s.done.Go(s.watch)
	}
	return nil
}

// newThread makes thread i of the supervisor.
func (s *Supervisor) newThread(i int) (*rdma.Thread, error) {
	return rdma.NewThread(s.fabric, rdma.ThreadOptions{
		Index: s.opts.Thread + i, Techniques: s.opts.Techniques, Arena: arena,
	})
}

// arena is the arena of a thread, in bytes.
const arena = 4 << 20

// Close ends all goroutines, and waits for them: what they wait for, they wait for no more. Nothing
// is renewed after that.
func (s *Supervisor) Close() (err error) {
	s.end()
	s.done.Wait()
	if s.thread != nil {
		err = s.thread.Close()
	}
	s.unrenew()
	return err
}

// Ended reports whether the goroutines are to end: a large blade takes long to be cleared, and
// Close does not wait for that.
func (s *Supervisor) Ended() bool { return s.Keeps() && s.ctx.Err() != nil }

// Keeps reports whether a goroutine looks after blades and copies, or is to.
func (s *Supervisor) Keeps() bool { return s.fabric.Caps().RealTime && !s.space.ReadOnly() }

// Maintains reports whether a goroutine recovers coordinators, or is to.
func (s *Supervisor) Maintains() bool { return s.Keeps() && s.opts.LeaseTerm >= 0 }

// own are the sessions of the process.
func (s *Supervisor) own() Sessions { return *s.sessions.Load() }

// Term is the lease term, or the default one, in nanoseconds.
func (s *Supervisor) Term() int64 {
	if s.opts.LeaseTerm > 0 {
		return int64(s.opts.LeaseTerm)
	}
	return int64(DefaultLeaseTerm)
}
