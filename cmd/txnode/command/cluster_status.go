package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/memory"
	"txnode/txn"
)

// clusterStatusOptions are the flags of txnode cluster status.
type clusterStatusOptions struct {
	Wait    bool
	Timeout time.Duration
	output  textOrJSON
	access  accessOptions
}

func newClusterStatus(w *World) *cobra.Command {
	o := &clusterStatusOptions{}
	cmd := &cobra.Command{
		Use: "status address", Short: "Say whether a cluster is whole, and what is wrong with it",
		Long: `Asks the catalog at an address, and all servers of blades at once. It lists the blades
with their state and free room; servers that have announced themselves, with lease, domain
and release, also those that have no blades yet; the members: processes that have the
database open, and the witness, which is the daemon of the catalog; and the copies of the
database: those that are missing or being built, segments that are unavailable, since all
of their copies are on blades that are away, and segments that are lost. What is wrong is
listed at the end, the worst first. The exit code is 1 if anything is, and 0 if the cluster is
whole. Servers that do not answer hold it up for seconds only.

States of blades: up; full: its disk is; leaving: it is being drained, and drained then;
down: it was declared dead, and its copies were given up; silent: its server does not
answer, and it was not declared dead; restarted: its server has begun anew, and no
process has taken it in yet; old, blank, foreign or misplaced: it has come with an old
copy of its memory, with nothing, or with that of another database or place; stopped:
its server cannot use its file; vacant.

With --wait it looks again and again until the cluster is whole. If data is lost, it
ends at once, since no wait brings that back. Copies are built by processes that have
the database open; txnode cluster heal is one that does nothing else.

Several addresses with commas between them are tried one after the other; a catalog in
an etcd is at etcd://HOST:PORT,HOST:PORT/PREFIX, members of one etcd.`,
		Example: "  txnode cluster status unix:/tmp/catalog\n  txnode cluster status unix:/tmp/catalog --wait " +
			"--timeout 10m",
		Args: exactly(1, "name the address of a catalog"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Timeout < 0 || o.Timeout > 0 && !o.Wait {
				return usagef("--timeout is %v; it is how long --wait waits at most", o.Timeout)
			}
			co, err := o.access.options()
			if err != nil {
				return err
			}
			st, err := askStatus(cmd.Context(), w, args[0], o, co)
			if err != nil {
				return err
			}
			return printStatus(w, st, o.output == "json")
		},
	}
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "wait until the cluster is whole")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "how long --wait waits at most; 0, the default: for ever")
	o.output.addFlag(cmd)
	o.access.addFlags(cmd)
	return cmd
}

// statusEvery is how often --wait looks.
const statusEvery = 500 * time.Millisecond

// askStatus asks once, or until the cluster is whole, it has lost data, or the time is over: then
// it returns what was seen last.
func askStatus(ctx context.Context, w *World, address string, o *clusterStatusOptions,
	co cluster.Options) (*cluster.Status, error) {
	limit := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	var last *cluster.Status
	said, warned := waitLine{w: w}, false
	for {
		st, err := cluster.AskLeases(ctx, address, co) // which takes its time, so that there is something to tell
		switch {
		case err == nil:
			last = st
			if troubles := st.Troubles(); !o.Wait || len(troubles) == 0 || troubles[0].Kind <= cluster.TroubleLost {
				return st, nil
			}
			if len(st.Processes) == 0 && !warned {
				warned = true
				_, _ = fmt.Fprintf(w.Stderr,
					"no process has the database open, and it takes one to mend it: txnode cluster heal %s\n",
					shown(address))
			}
			said.say(waitingFor(st))
		case ctx.Err() != nil:
			return nil, errInterrupted
		case !o.Wait || !errors.Is(err, memory.ErrAway):
			return nil, clusterFailed(err)
		default:
			said.say(oneLine(err))
		}
		pause := time.NewTimer(statusEvery)
		select {
		case <-pause.C:
		case <-limit.Done():
		}
		pause.Stop()
		switch {
		case ctx.Err() != nil:
			return nil, errInterrupted
		case limit.Err() != nil && last != nil:
			return last, nil
		case limit.Err() != nil:
			return nil, failf("after %v: %s", o.Timeout, said.last)
		}
	}
}

// waitLine tells on a terminal what is waited for, whenever that changes.
type waitLine struct {
	w    *World
	last string
}

func (l *waitLine) say(text string) {
	if text != l.last && l.w.StderrTerminal {
		_, _ = fmt.Fprintln(l.w.Stderr, text)
	}
	l.last = text
}

// waitingFor is what is wrong, in a line.
func waitingFor(st *cluster.Status) string {
	troubles := st.Troubles()
	text := troubleText(&troubles[0])
	if n := len(troubles) - 1; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	if b := buildOf(st.Copies.Build); b != nil {
		text += "; copied: " + b.String()
	}
	return text
}

// troubleText is what is wrong, in a line for a terminal.
func troubleText(x *cluster.Trouble) string {
	if x.Err != nil {
		return oneLine(fmt.Errorf("a server is of no use: %w", explainTLS(x.Err)))
	}
	return oneLine(errors.New(x.Text))
}

// clusterLine is a status as it is printed for programs.
type clusterLine struct {
	Catalog  string        `json:"catalog"`
	Whole    bool          `json:"whole"`
	Wrong    []string      `json:"wrong"` // what is wrong, the worst first
	Servers  []serverLine  `json:"servers"`
	Joined   []joinedLine  `json:"joined"` // servers that have announced themselves
	Members  []memberLine  `json:"members"`
	Witness  *witnessLine  `json:"witness"`  // null: there is none
	Database *databaseLine `json:"database"` // null: there is none yet
}

type serverLine struct {
	Address string      `json:"address"`
	Answers bool        `json:"answers"`
	Vacant  bool        `json:"vacant,omitempty"` // there is no server: its place can be taken
	Error   string      `json:"error,omitempty"`
	Domain  string      `json:"domain,omitempty"`
	Full    []string    `json:"full,omitempty"` // disks of the server that are full
	Blades  []bladeLine `json:"blades"`
}

// joinedLine is a server that has announced itself. It has no blades of the cluster if it waits for
// a place, or was drained.
type joinedLine struct {
	Address string `json:"address"`
	Lease   string `json:"lease"` // alive, late, expired; or unknown to an earlier release
	TermNs  int64  `json:"term_ns"`
	Domain  string `json:"domain,omitempty"`
	Release string `json:"release,omitempty"`
	Blades  []int  `json:"blades"` // of the cluster
	Drained bool   `json:"drained,omitempty"`
}

type bladeLine struct {
	ID     int    `json:"id"`
	Bytes  uint64 `json:"bytes"`
	Free   uint64 `json:"free_bytes"` // in places for segments
	State  string `json:"state"`
	Copies int    `json:"copies"` // that it has
	Error  string `json:"error,omitempty"`
	// Left is Copies of a blade that leaves.
	Left int `json:"left,omitempty"`
}

// memberLine is a process that has the database open, or is registered still.
type memberLine struct {
	Process    uint32 `json:"process"`
	Registered bool   `json:"registered"`
	TermNs     int64  `json:"term_ns"` // of its registration; 0: it does not end
	Reports    bool   `json:"reports"` // it tells a daemon of itself; the rest is what it says
	AgeNs      int64  `json:"age_ns"`
	Epoch      uint32 `json:"epoch"`
	Host       string `json:"host"`
	PID        int    `json:"pid"`
	Program    string `json:"program"`
	CutOff     []int  `json:"cut_off"` // blades that it does not reach, and others do
}

type witnessLine struct {
	CutOff []int `json:"cut_off"`
}

type databaseLine struct {
	Epoch       uint32 `json:"epoch"`
	Processes   int    `json:"processes"`
	Workers     int    `json:"workers"`
	Tables      int    `json:"tables"`
	Segments    int    `json:"segments"`
	Lost        int    `json:"segments_lost"`
	Unavailable int    `json:"segments_unavailable"`
	Missing     int    `json:"copies_missing"`
	Building    int    `json:"copies_building"`
	Moving      int    `json:"copies_moving"`
	Down        int    `json:"blades_down"`
	Undecided   int    `json:"workers_undecided"` // all transactions wait for these
	Unswept     bool   `json:"unswept"`           // what dead workers have left is to be swept, before copies are built
	// Build is how far the process is that builds copies; null: none does, or it reports nothing.
	Build *buildLine `json:"build"`
}

// buildLine is how far copies are.
type buildLine struct {
	Done   uint64 `json:"done_bytes"`
	Total  uint64 `json:"total_bytes"`
	Rate   uint64 `json:"bytes_per_second"`
	LeftNs int64  `json:"left_ns"` // 0: not known
}

func buildOf(m txn.CopyMetrics) *buildLine {
	if m.Total == 0 {
		return nil
	}
	return &buildLine{m.Done, m.Total, m.Rate, int64(m.Left)}
}

// String is for people.
func (b *buildLine) String() string {
	text := fmt.Sprintf("%s of %s", bytesText(b.Done), bytesText(b.Total))
	if b.Rate > 0 {
		left := "less than 1s"
		if d := time.Duration(b.LeftNs).Round(time.Second); d > 0 {
			left = d.String()
		}
		text += fmt.Sprintf(", %s/s, %s left", bytesText(b.Rate), left)
	}
	return text
}

// statusLine is what is printed of a status.
func statusLine(st *cluster.Status) clusterLine {
	l := clusterLine{Catalog: st.Catalog, Wrong: []string{}, Members: []memberLine{}, Joined: []joinedLine{}}
	for _, x := range st.Troubles() {
		l.Wrong = append(l.Wrong, troubleText(&x))
	}
	l.Whole = len(l.Wrong) == 0
	id := 0
	for _, s := range st.Servers {
		sl := serverLine{
			Address: string(s.Address), Answers: s.Err == nil && !s.Vacant(), Vacant: s.Vacant(),
			Domain: s.Domain, Full: s.Full,
		}
		if s.Err != nil {
			sl.Error = oneLine(explainTLS(s.Err))
		}
		for range s.Blades {
			x := &st.Blades[id]
			b := bladeLine{ID: id, Bytes: x.Size, Free: x.Free, State: string(x.State), Copies: x.Copies}
			if x.State == cluster.BladeLeaving {
				b.Left = x.Copies
			}
			switch {
			case x.State == cluster.BladeSilent:
				b.Error = sl.Error
			case x.Why != "":
				b.Error = oneLine(errors.New(x.Why))
			}
			sl.Blades = append(sl.Blades, b)
			id++
		}
		l.Servers = append(l.Servers, sl)
	}
	for i := range st.Joined {
		x := &st.Joined[i]
		j := joinedLine{
			Address: string(x.Address), Lease: x.Lease.String(), TermNs: int64(x.Term), Domain: x.Domain,
			Release: x.Release, Blades: []int{}, Drained: x.Left,
		}
		for b := range st.Blades {
			if st.Blades[b].Server == x.Address {
				j.Blades = append(j.Blades, b)
			}
		}
		l.Joined = append(l.Joined, j)
	}
	for i := range st.Processes {
		p := &st.Processes[i]
		m := memberLine{Process: p.ID, Registered: p.Registered, TermNs: p.Term, CutOff: p.CutOff}
		if r := p.Report; r != nil {
			m.Reports, m.AgeNs, m.Epoch, m.Host, m.PID, m.Program = true, int64(r.Age), r.Epoch,
				r.Host, r.PID, r.Program
		}
		l.Members = append(l.Members, m)
	}
	if st.Witnessed {
		l.Witness = &witnessLine{st.Deaf}
	}
	if db := st.Layout; db != nil {
		c := &st.Copies
		l.Database = &databaseLine{
			Epoch: uint32(db.Epoch), Workers: len(db.Coordinators), Tables: len(liveTables(db)), Segments: c.Segments,
			Lost: c.Lost, Unavailable: c.Unavailable,
			Missing: c.Missing, Building: c.Building, Moving: c.Moving, Down: len(c.Down), Undecided: c.Undecided,
			Unswept: c.Unswept, Build: buildOf(c.Build),
		}
		for i := range st.Processes {
			if st.Processes[i].Registered {
				l.Database.Processes++
			}
		}
	}
	return l
}

func printStatus(w *World, st *cluster.Status, asJSON bool) error {
	l := statusLine(st)
	var err error
	if asJSON {
		err = line(w.Stdout, l)
	} else {
		err = printStatusText(w, &l)
	}
	if err == nil && !l.Whole {
		return failf("the cluster is not whole: %s", waitingFor(st))
	}
	return err
}

func printStatusText(w *World, l *clusterLine) error {
	t := tabwriter.NewWriter(w.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "blade\tsize\tfree\tserver\tstate") // Flush says what has failed
	for _, s := range l.Servers {
		for _, b := range s.Blades {
			size, room, address, state := byteSize(b.Bytes), bytesText(b.Free), shown(s.Address), b.State
			if b.Free == 0 {
				room = "-"
			}
			if s.Vacant {
				_, _ = fmt.Fprintf(t, "%d\t-\t-\t-\t%s\n", b.ID, state)
				continue
			}
			if b.State == string(cluster.BladeLeaving) {
				state += fmt.Sprintf(": %d copies are left", b.Left)
			}
			_, _ = fmt.Fprintf(t, "%d\t%v\t%s\t%s\t%s\n", b.ID, &size, room, address, state)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printJoined(w, l); err != nil {
		return err
	}
	if err := printMembers(w, l); err != nil {
		return err
	}
	d := l.Database
	if d == nil {
		_, err := fmt.Fprintf(w.Stdout, "catalog %s: no database yet\n", shown(l.Catalog))
		return err
	}
	if _, err := fmt.Fprintf(w.Stdout, "catalog %s: epoch %d, processes %d, workers %d, tables %d\n",
		shown(l.Catalog), d.Epoch, d.Processes, d.Workers, d.Tables); err != nil {
		return err
	}
	copies := fmt.Sprintf("copies of %s: ", count(d.Segments, "segment"))
	if d.Missing+d.Unavailable+d.Lost+d.Building+d.Moving == 0 {
		copies += "all"
	} else {
		copies += fmt.Sprintf("missing %d, being built %d, to be moved %d; segments unavailable %d, lost %d",
			d.Missing, d.Building, d.Moving, d.Unavailable, d.Lost)
	}
	if d.Unswept {
		copies += "; what dead workers have left is to be swept"
	}
	if d.Build != nil {
		copies += "; copied: " + d.Build.String()
	}
	if _, err := fmt.Fprintln(w.Stdout, copies); err != nil {
		return err
	}
	for _, x := range l.Wrong {
		if _, err := fmt.Fprintln(w.Stdout, "wrong: "+x); err != nil {
			return err
		}
	}
	return nil
}

// printJoined prints servers that have announced themselves. Without them nothing is printed.
func printJoined(w *World, l *clusterLine) error {
	if len(l.Joined) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nserver\tlease\tdomain\trelease\tblades")
	for i := range l.Joined {
		j := &l.Joined[i]
		domain, blades := j.Domain, strings.Trim(fmt.Sprint(j.Blades), "[]")
		if domain == "" {
			domain = "its own"
		}
		switch {
		case blades != "":
		case j.Drained:
			blades = "none: it was drained"
		default:
			blades = "none yet"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", shown(j.Address), j.Lease, shown(domain),
			shown(j.Release), blades)
	}
	return t.Flush()
}

// printMembers prints who takes part. Without members nothing is printed.
func printMembers(w *World, l *clusterLine) error {
	if len(l.Members) == 0 && l.Witness == nil {
		return nil
	}
	t := tabwriter.NewWriter(w.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nmember\tregistered\tepoch\tprogram")
	cutOff := func(blades []int) string {
		if len(blades) == 0 {
			return ""
		}
		return "; it does not reach blades that others reach: " + strings.Trim(fmt.Sprint(blades), "[]")
	}
	for i := range l.Members {
		m := &l.Members[i]
		term, epoch, program := "no", "-", "it tells nothing of itself"
		if m.Registered {
			term = "for ever"
			if m.TermNs > 0 {
				term = "for " + time.Duration(m.TermNs).Round(100*time.Millisecond).String()
			}
		}
		if m.Epoch > 0 {
			epoch = fmt.Sprint(m.Epoch)
		}
		if m.Reports {
			program = shown(fmt.Sprintf("%s, process %d of %s", m.Program, m.PID, m.Host)) + fmt.Sprintf(", %v ago",
				time.Duration(m.AgeNs).Round(100*time.Millisecond))
		}
		_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", m.Process, term, epoch, program+cutOff(m.CutOff))
	}
	if l.Witness != nil {
		_, _ = fmt.Fprintf(t, "witness\t-\t-\tthe daemon of the catalog%s\n", cutOff(l.Witness.CutOff))
	}
	_, _ = fmt.Fprintln(t)
	return t.Flush()
}
