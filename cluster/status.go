package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
	"txnode/txn"
)

// Status is how a cluster is: what its catalog says, and what its servers answer.
type Status struct {
	// Catalog is the address of the catalog that has answered.
	Catalog string
	Servers []ServerStatus
	// Layout is what the catalog says of the database; nil: there is none yet.
	Layout *layout.Layout
	// Behind is why the catalog is an old copy, a *layout.BehindError: a blade was told of a later
	// revision. What it says of the database is of then. nil: it is none, as far as blades answer.
	Behind error
	// Beats are what processes have said last of being alive.
	Beats []layout.Beat
	// Blades are those of all places, by number.
	Blades []BladeStatus
	// Joined are the servers that have announced themselves, by address; those that are in Servers,
	// too, are blades already.
	Joined []ServerLease
	// Processes are those that have registered, and those that report, by number. A report is as
	// old as ProcessReport.Age.
	Processes []ProcessStatus
	// Witnessed: the server of the catalog asks blades, too. Deaf are blades of which it hears
	// nothing, though others do.
	Witnessed bool
	Deaf      []int
	Copies    Copies
}

// ServerLease is a server that has announced itself.
type ServerLease struct {
	Announced
	// Lease is how its lease stands. Ask does not wait for that: AskLeases.
	Lease members.Lease
}

// ServerStatus is a server of blades.
type ServerStatus struct {
	Server
	// Err is why the server is of no use: it does not answer, or has other blades. nil: it answers,
	// or its place is vacant.
	Err error
	// Full are the disks of the server that are full: Report.Full. Servers of earlier
	// releases tell of none.
	Full []string
}

// BladeState is how a blade is.
type BladeState string

// States of a blade.
const (
	BladeUp      BladeState = "up"
	BladeVacant  BladeState = "vacant"  // its place has no server
	BladeDrained BladeState = "drained" // it is empty, and takes no part
	BladeLeaving BladeState = "leaving" // it is up, and what it has moves away
	BladeFull    BladeState = "full"    // it is up, and its disk is full
	BladeUnused  BladeState = "unused"  // the database has not taken it in yet
	BladeDown    BladeState = "down"    // it was declared dead, and its copies are given up
	// BladeSilent: its server does not answer, or has other blades, and it was not declared dead
	BladeSilent    BladeState = "silent"
	BladeRestarted BladeState = "restarted" // its server has begun anew, and no process has looked since what it has
	BladeStopped   BladeState = "stopped"   // its server cannot read or write it
	BladeOld       BladeState = "old"       // it has come with an old copy of its region
	BladeBlank     BladeState = "blank"     // it has come with nothing
	BladeForeign   BladeState = "foreign"   // it is one of another database
	BladeMisplaced BladeState = "misplaced" // it is one of another place of the database
)

// BladeStatus is a blade.
type BladeStatus struct {
	ID     int
	Server BladeAddress
	Size   uint64 // bytes
	Free   uint64 // bytes of places for segments; 0 unless copies can be placed there
	State  BladeState
	Copies int // of segments that it has, those being built included
	// Why it is stopped, silent, full, old, blank, foreign or misplaced, or cannot be taken in
	// again, and what to do; else empty.
	Why string

	stale *layout.StaleError // of one that is old
}

// Away reports whether nothing can be read from a blade that was not given up.
func (b *BladeStatus) Away() bool {
	switch b.State {
	case BladeSilent, BladeRestarted, BladeStopped, BladeOld, BladeBlank, BladeForeign, BladeMisplaced:
		return true
	}
	return false
}

// ProcessStatus is a process that has the database open, or had it open and is registered still.
type ProcessStatus struct {
	ID uint32
	// Registered: the catalog has it, and its registration lasts for Term nanoseconds from each
	// renewal; 0: for ever.
	Registered bool
	Term       int64
	Report     *ProcessReport // nil: it tells nothing of itself
	// CutOff are blades of which it says that it hears nothing, or that it could not ask,
	// though others hear them.
	CutOff []int
}

// Copies are how well the data is copied. Unavailable is how many segments have all of their copies
// on blades that are away for the one that asked, and not given up.
type Copies struct {
	layout.Redundancy
	// Build is how far the process is that builds copies, as it has reported; zero: none does, or
	// it reports nothing.
	Build txn.CopyMetrics
	// Unswept: what dead workers have left is to be swept. A process that builds copies does that
	// beside.
	Unswept bool
	// Undecided is how many workers of dead processes have left transactions that all others wait
	// for.
	Undecided int
}

// Ask asks the catalog at an address, as Connect does, and then all servers of blades at once.
// Servers that do not answer are no error: ServerStatus.Err; each has the deadlines of Options to
// answer. It changes nothing.
func Ask(ctx context.Context, address string, o Options) (*Status, error) {
	cat, err := DialCatalog(ctx, address, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cat.Close() }() // it was asked only
	return AskOf(ctx, cat, o)
}

// AskLeases is Ask, and waits until every server that has announced itself has said that it is
// alive, or its term has passed.
func AskLeases(ctx context.Context, address string, o Options) (*Status, error) {
	cat, err := DialCatalog(ctx, address, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cat.Close() }() // it was asked only
	began := time.Now()
	var leases members.Leases
	hear := func() error {
		beats, err := heed(ctx, cat).KeepAlive(layout.Beat{})
		leases.Heed(beats, int64(time.Since(began)))
		return err
	}
	if err := hear(); err != nil {
		return nil, oneLine(err)
	}
	st, err := AskOf(ctx, cat, o)
	if err != nil {
		return nil, err
	}
	for {
		if err := hear(); err != nil {
			return nil, oneLine(err)
		}
		unknown := false
		for i := range st.Joined {
			x := &st.Joined[i]
			x.Lease = leases.State(x.Number, int64(x.Term), int64(time.Since(began)))
			unknown = unknown || x.Lease == members.LeaseUnknown && leases.Known(x.Number)
		}
		if !unknown {
			return st, nil
		}
		if sleep(ctx, leasePause); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// leasePause is how often AskLeases hears of leases.
const leasePause = 20 * time.Millisecond

// AskOf is Ask with a catalog that is there, which stays the caller's.
func AskOf(ctx context.Context, cat layout.Catalog, o Options) (*Status, error) {
	cat = heed(ctx, cat)
	entries, _, err := cat.Load()
	if err != nil {
		return nil, oneLine(err)
	}
	content, err := contentOf(cat, entries)
	if err == nil && content.servers == nil && content.announced == nil {
		_, err = find(cat, entries) // that there is none
	}
	if err != nil {
		return nil, err
	}
	servers, l := content.servers, content.layout
	beats, err := cat.KeepAlive(layout.Beat{})
	if err != nil {
		return nil, oneLine(err)
	}
	st := &Status{Catalog: cat.Name(), Layout: l, Beats: beats, Servers: make([]ServerStatus, len(servers))}
	for _, a := range content.announced {
		st.Joined = append(st.Joined, ServerLease{Announced: a})
	}
	slices.SortFunc(st.Joined, func(a, b ServerLease) int { return cmp.Compare(a.Address, b.Address) })
	found := make([]probed, len(servers))
	reports := make([]*Report, len(servers)+1) // nil: it is no daemon of txnode, or an older one
	var asked sync.WaitGroup
	for i, s := range servers {
		if s.Vacant() {
			continue
		}
		asked.Go(func() {
			p := &found[i]
			if *p = probeHeads(ctx, servers[i], o); p.err == nil {
				p.err = compare(string(s.Address), s.Blades, p.blades)
			}
			if p.err == nil {
				reports[i], _ = AskReport(ctx, string(s.Address), o)
			}
		})
	}
	if own := cat.Name(); onSockets(own) && !slices.Contains(addressesOf(servers), own) {
		asked.Go(func() { reports[len(servers)], _ = AskReport(ctx, own, o) })
	}
	asked.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err // servers were not given their time
	}
	if told := toldOf(l, found); told > 0 {
		now, err := cat.Revision() // behind what blades were told
		if err != nil {
			return nil, oneLine(err)
		}
		st.Behind = layout.Behind(cat.Name(), now, told)
	}
	for i, s := range servers {
		st.Servers[i] = ServerStatus{Server: s, Err: found[i].err}
		if r := reports[i]; r != nil {
			st.Servers[i].Full = r.Full
		}
		for k := range s.Blades {
			b := BladeStatus{ID: len(st.Blades), Server: s.Address, Size: s.Blades[k]}
			b.see(l, &st.Servers[i], &found[i], reports[i], k)
			st.Blades = append(st.Blades, b)
		}
	}
	told := latest(reports)
	st.ofProcesses(told)
	if l == nil {
		return st, nil
	}
	st.remedies()
	st.Copies.Redundancy, st.Copies.Build = l.Redundancy(), BuildOf(told)
	st.Copies.Unavailable = l.Unavailable(func(b rdma.BladeID) bool {
		return int(b) < len(st.Blades) && st.Blades[b].Away()
	})
	st.Copies.Unswept = l.Unswept && !l.OnlyDamage
	for i := range l.Coordinators {
		if l.Coordinators[i].Promoted {
			st.Copies.Undecided++
		}
	}
	st.cutOff()
	return st, nil
}

// see says how blade k of a server is.
func (b *BladeStatus) see(l *layout.Layout, s *ServerStatus, p *probed, r *Report, k int) {
	infos := p.blades
	var x layout.Blade
	known := l != nil && b.ID < len(l.Blades)
	if known {
		x = l.Blades[b.ID]
		b.Copies = l.Held(rdma.BladeID(b.ID)) // there are MaxBlades
	}
	down := known && x.State == layout.BladeDown
	fault := ""
	if r != nil && k < len(r.Blades) {
		fault = r.Blades[k].Fault
	}
	switch {
	case s.Vacant():
		b.State = BladeVacant
	case down && x.Leaving:
		b.State = BladeDrained
	case down:
		b.State = BladeDown
		if fault, why := b.examine(l, p, k); fault == layout.HeaderForeign || fault == layout.HeaderMisplaced {
			b.Why = why
		}
	case s.Err != nil:
		b.State, b.Why = BladeSilent, s.Err.Error()
	case k < len(infos) && infos[k].Unheard:
		b.State, b.Why = BladeSilent, "its server does not answer any more"
	case fault != "":
		b.State, b.Why = BladeStopped, fault
	case l != nil && !known:
		b.State = BladeUnused
	case known && x.Incarnation != 0 && k < len(infos) && infos[k].Incarnation != x.Incarnation:
		b.State = BladeRestarted
		if fault, why := b.examine(l, p, k); faulty[fault] != "" {
			b.State, b.Why = faulty[fault], why
		}
	case known && x.Leaving:
		b.State = BladeLeaving
	case len(s.Full) > 0:
		b.State, b.Why = BladeFull, strings.Join(s.Full, "; ")
	default:
		b.State = BladeUp
	}
	if known && l.Stays(b.ID) && !b.Away() {
		b.Free = uint64(l.Vacancies(rdma.BladeID(b.ID))) * uint64(l.SegmentSize) // a number of places
	}
}

// latest are the reports of processes, each as the daemon has it that was told last.
func latest(daemons []*Report) []ProcessReport {
	last := map[uint64]ProcessReport{}
	for _, r := range daemons {
		if r == nil {
			continue
		}
		for _, p := range r.Processes {
			if was, ok := last[p.Life]; !ok || p.At > was.At {
				last[p.Life] = p
			}
		}
	}
	return slices.SortedFunc(maps.Values(last), byProcess)
}

// BuildOf is how far the process is that builds copies, of all that report; zero: none does.
func BuildOf(reports []ProcessReport) (m txn.CopyMetrics) {
	for i := range reports {
		// one has the right at a time; another one may have had it a second ago
		if x := &reports[i].Metrics.Copies; x.Total > m.Total {
			m = *x
		}
	}
	return m
}

// ofProcesses lists the processes.
func (st *Status) ofProcesses(reports []ProcessReport) {
	told := map[uint32]*ProcessReport{}
	for i := range reports {
		told[reports[i].Process] = &reports[i]
	}
	if st.Layout != nil {
		for _, p := range st.Layout.Processes {
			if !p.Resigned() {
				st.Processes = append(st.Processes, ProcessStatus{
					ID: p.ID, Registered: true, Term: p.Term, Report: told[p.ID],
				})
				delete(told, p.ID)
			}
		}
	}
	for _, r := range told {
		st.Processes = append(st.Processes, ProcessStatus{ID: r.Process, Report: r})
	}
	slices.SortFunc(st.Processes, func(a, b ProcessStatus) int { return cmp.Compare(a.ID, b.ID) })
}

// cutOff finds members that say that they hear nothing of a blade which others hear, or
// which answers here.
func (st *Status) cutOff() {
	l := st.Layout
	st.Witnessed = l.Witnessed
	for i := range l.Blades {
		b := rdma.BladeID(i) // there are MaxBlades
		if l.Blades[i].State != layout.BladeUp || i < len(st.Blades) && st.Blades[i].Away() {
			continue // all say the same
		}
		round := members.Judge(l, b, func(uint32) bool { return false }).Round
		for _, s := range l.Sights {
			if s.Blade != b || s.Round != round || s.Says != layout.Silent && s.Says != layout.Troubled {
				continue
			}
			if s.Member == layout.Witness {
				st.Deaf = append(st.Deaf, i)
				continue
			}
			if k := slices.IndexFunc(st.Processes, func(p ProcessStatus) bool { return p.ID == s.Member }); k >= 0 {
				st.Processes[k].CutOff = append(st.Processes[k].CutOff, i)
			}
		}
	}
}

// Trouble is something that is wrong with a cluster.
type Trouble struct {
	Kind TroubleKind
	// Server and Blade are those that it is about; -1: of no blade.
	Server BladeAddress
	Blade  int
	// Err, of a server that does not answer.
	Err  error
	Text string // what is wrong, in a line
}

// TroubleKind is what is wrong.
type TroubleKind uint8

// Kinds of troubles, the worst first.
const (
	TroubleCatalog     TroubleKind = iota // the catalog is an old copy
	TroubleLost                           // data is lost, and no wait brings it back
	TroubleUnavailable                    // data is on blades that are away
	TroubleUndecided                      // all transactions wait
	TroubleServer                         // a server does not answer, or has other blades
	TroubleBlade                          // a blade takes no part
	TroubleFull                           // the disk of a blade is full
	TroubleCutOff                         // a member does not reach a blade that others reach
	TroubleMissing                        // copies are missing, or being built
	TroubleTogether                       // copies of a segment are in one domain
)

// Troubles are what is wrong, the worst first. Blades that leave, and places that are vacant, are
// as they were asked to be.
func (st *Status) Troubles() (out []Trouble) {
	add := func(k TroubleKind, server BladeAddress, blade int, err error, format string, args ...any) {
		out = append(out, Trouble{Kind: k, Server: server, Blade: blade, Err: err, Text: fmt.Sprintf(format, args...)})
	}
	if st.Behind != nil {
		add(TroubleCatalog, "", -1, st.Behind, "%v", st.Behind)
	}
	c := &st.Copies
	if c.Lost > 0 {
		add(TroubleLost, "", -1, nil, "data is lost: %d of %d segments have no copy", c.Lost, c.Segments)
	}
	if c.Unavailable > 0 {
		add(TroubleUnavailable, "", -1, nil,
			"data is unavailable: all copies of %d of %d segments are on blades that are away, and not given up",
			c.Unavailable, c.Segments)
	}
	if c.Undecided > 0 {
		add(TroubleUndecided, "", -1, nil, "transactions wait until those of %d dead workers are decided", c.Undecided)
	}
	for i := range st.Servers {
		s := &st.Servers[i]
		if s.Err != nil {
			add(TroubleServer, s.Address, -1, s.Err, "a server is of no use: %v", s.Err)
		}
		for _, full := range s.Full {
			add(TroubleFull, s.Address, -1, nil, "the server %s: %s", s.Address, full)
		}
	}
	for i := range st.Blades {
		switch b := &st.Blades[i]; b.State {
		case BladeDown:
			text := "blade %d was declared dead, and is not taken in again yet"
			if b.Why != "" {
				text += ": " + strings.ReplaceAll(b.Why, "%", "%%")
			}
			add(TroubleBlade, b.Server, b.ID, nil, text, b.ID)
		case BladeOld, BladeBlank, BladeForeign, BladeMisplaced:
			add(TroubleBlade, b.Server, b.ID, nil, "%s", b.Why)
		case BladeRestarted:
			add(TroubleBlade, b.Server, b.ID, nil,
				"the server of blade %d has restarted, and no process has taken the blade in since", b.ID)
		case BladeStopped:
			add(TroubleBlade, b.Server, b.ID, nil, "blade %d is stopped: %s", b.ID, b.Why)
		case BladeUnused:
			add(TroubleBlade, b.Server, b.ID, nil, "the database does not use blade %d yet", b.ID)
		}
	}
	if len(st.Deaf) > 0 {
		add(TroubleCutOff, "", -1, nil, "the witness does not reach blades that others reach: %s", numbers(st.Deaf))
	}
	for i := range st.Processes {
		if p := &st.Processes[i]; len(p.CutOff) > 0 {
			add(TroubleCutOff, "", -1, nil, "process %d does not reach blades that others reach: %s",
				p.ID, numbers(p.CutOff))
		}
	}
	if c.Missing > 0 {
		first := ""
		if c.Unswept {
			first = "; what dead workers have left is swept beside that"
		}
		add(TroubleMissing, "", -1, nil, "copies of %d segments: %d are missing, and %d of these are being built%s",
			c.Segments, c.Missing, c.Building, first)
	}
	if c.Together > 0 {
		why := "no other domain has room: add a server in one, or make room there"
		if c.Moving > 0 {
			why = "they move"
		}
		add(TroubleTogether, "", -1, nil, "%d of %d segments have copies in one domain; %s",
			c.Together, c.Segments, why)
	}
	return out
}

func numbers(all []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}
