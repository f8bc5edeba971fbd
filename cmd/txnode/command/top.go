package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/rdma"
	"txnode/txn"
)

// topOptions are the flags of txnode top.
type topOptions struct {
	Interval time.Duration
	Once     bool
	output   textOrJSON
	access   accessOptions
}

func newTop(w *World) *cobra.Command {
	o := &topOptions{}
	cmd := &cobra.Command{
		Use: "top address", Short: "Show what a cluster does: its blades, processes and tables, each second",
		Long: `Shows what happens in the cluster whose catalog is at an address, anew each --interval:
of each blade its verbs and bytes a second, connections and memory; of each process that
has the database open its lease, commits and failed attempts a second, latencies, and
verbs and round trips for a transaction; of each table the records a second that were
read and changed; the epoch, and copies that are missing or being built.

Blades and processes tell totals, which two looks make rates of. Programs that open the
cluster with cluster.Open tell a daemon of the cluster each second. Verbs on blades
of shared memory are executed by clients, and are not counted by blade. Latencies are
between powers of two, of the transactions that are timed.

On a terminal the view is drawn over itself, until Ctrl-C; otherwise there is one behind
the other, with -o json a line each.`,
		Example: "  txnode top unix:/tmp/catalog\n  txnode top unix:/tmp/catalog --once -o json",
		Args:    exactly(1, "name the address of a catalog"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Interval < 100*time.Millisecond || o.Interval > time.Hour {
				return usagef("--interval is %v; from 100ms to 1h is possible", o.Interval)
			}
			return runTop(cmd.Context(), w, args[0], o)
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&o.Interval, "interval", time.Second, "time from a view to the next one, which rates are over")
	fs.BoolVar(&o.Once, "once", false, "print one view, after one interval or at most three, and end")
	o.output.addFlag(cmd)
	o.access.addFlags(cmd)
	return cmd
}

// onceLooks bounds how many intervals --once waits for processes to tell their totals twice.
const onceLooks = 3

func runTop(ctx context.Context, w *World, address string, o *topOptions) (err error) {
	co, err := o.access.options()
	if err != nil {
		return err
	}
	m, err := cluster.NewMonitor(ctx, address, co)
	if err != nil {
		return clusterFailed(err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var t top
	t.take(m.Look(ctx))
	ticks := time.NewTicker(o.Interval)
	defer ticks.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done(): // which is how it is ended
			return nil
		case <-ticks.C:
		}
		s := m.Look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		v := t.take(s)
		if o.Once && n < onceLooks && !t.complete() {
			continue
		}
		if err := w.show(v, o); err != nil || o.Once {
			return err
		}
	}
}

// show prints a view.
func (w *World) show(v *topView, o *topOptions) error {
	if o.output == "json" {
		return line(w.Stdout, v)
	}
	var b bytes.Buffer
	if err := v.print(&b); err != nil {
		return err
	}
	if !w.StdoutTerminal || w.Getenv("TERM") == "dumb" || o.Once {
		b.WriteByte('\n')
		_, err := w.Stdout.Write(b.Bytes())
		return err
	}
	var out strings.Builder
	out.WriteString("\x1b[H") // to the first column of the first line
	for l := range strings.Lines(string(plain(b.Bytes()))) {
		l = strings.TrimSuffix(l, "\n")
		if r := []rune(l); w.StdoutWidth > 0 && len(r) > w.StdoutWidth {
			l = string(r[:w.StdoutWidth])
		}
		out.WriteString(l + "\x1b[K\n") // and the rest of the line is cleared
	}
	out.WriteString("\x1b[J") // and the rest of the screen
	_, err := io.WriteString(w.screen, out.String())
	return err
}

// topView is what is shown. Rates are a second; they are null where there is only one look yet.
type topView struct {
	Catalog   string       `json:"catalog"`
	Time      time.Time    `json:"time"`
	Error     string       `json:"error,omitempty"` // of the catalog
	Database  *topDatabase `json:"database"`        // null: there is none yet
	Blades    []topBlade   `json:"blades"`
	Processes []topProcess `json:"processes"`
	Tables    []topTable   `json:"tables"`
}

type topDatabase struct {
	Epoch    uint32 `json:"epoch"`
	Workers  int    `json:"workers"`
	Tables   int    `json:"tables"`
	Segments int    `json:"segments"`
	Lost     int    `json:"segments_lost"`
	Missing  int    `json:"copies_missing"`
	Building int    `json:"copies_building"`
	// Unavailable are segments of whose blades no member hears anything.
	Unavailable int        `json:"segments_unavailable"`
	Build       *buildLine `json:"build"` // null: no process builds copies, or it reports nothing
	Down        int        `json:"blades_down"`
	Reporting   int        `json:"processes_reporting"`
}

type topBlade struct {
	Blade  int    `json:"blade"`
	Server string `json:"server"`
	// as cluster.BladeState has it, but for what a look without connections to blades cannot tell
	State       string    `json:"state"`
	Error       string    `json:"error,omitempty"`
	Size        uint64    `json:"bytes"`
	Provisioned uint64    `json:"provisioned_bytes"`
	Connections int       `json:"connections"`
	Rates       *topRates `json:"rates"` // null also if verbs are not counted
	verbs       [rdma.NumOps]float64
	away        bool
}

type topRates struct {
	Verbs   map[string]float64 `json:"verbs"`
	Failed  float64            `json:"failed"`
	Read    float64            `json:"read_bytes"`
	Written float64            `json:"written_bytes"`
}

type topProcess struct {
	Process uint32   `json:"process"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	Program string   `json:"program"`
	Lease   topLease `json:"lease"`
	Workers int      `json:"workers"` // that it has
	Reports bool     `json:"reports"` // it tells a daemon of itself
	Work    *topWork `json:"rates"`
}

type topLease struct {
	State  string `json:"state"`    // live, expired, closed, or none: it is not in the catalog
	TermNs int64  `json:"term_ns"`  // how long it is good for
	AgeNs  int64  `json:"since_ns"` // since it was seen to change
}

type topWork struct {
	Committed  float64            `json:"committed"`
	RolledBack float64            `json:"rolled_back"`
	Failed     float64            `json:"failed"`
	Aborts     map[string]float64 `json:"aborts"`
	Verbs      float64            `json:"verbs_per_txn"`
	Trips      float64            `json:"round_trips_per_txn"`
	Latency    map[string]topSpan `json:"latency"`
}

type topSpan struct {
	P50Ns int64 `json:"p50_ns"`
	P99Ns int64 `json:"p99_ns"`
}

type topTable struct {
	Table     string  `json:"table"`
	Reads     float64 `json:"reads"`
	Updates   float64 `json:"updates"`
	Inserts   float64 `json:"inserts"`
	Deletes   float64 `json:"deletes"`
	Conflicts float64 `json:"conflicts"`
}

// print writes the view as tables.
func (v *topView) print(w io.Writer) error {
	head := v.Time.Format("15:04:05") + "  catalog " + shown(v.Catalog)
	switch d := v.Database; {
	case v.Error != "":
		head += ": " + v.Error
	case d == nil:
		head += ": no database yet"
	default:
		head += fmt.Sprintf("  epoch %d, workers %d, tables %d, segments %d", d.Epoch, d.Workers, d.Tables, d.Segments)
		for _, x := range []struct {
			n    int
			what string
		}{
			{d.Missing, "copies missing"}, {d.Building, "being built"}, {d.Unavailable, "segments unavailable"},
			{d.Lost, "segments lost"}, {d.Down, "blades down"},
		} {
			if x.n > 0 {
				head += fmt.Sprintf(", %s %d", x.what, x.n)
			}
		}
		if d.Build != nil {
			head += ", copied " + d.Build.String()
		}
	}
	if _, err := fmt.Fprintln(w, head+"\n"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { _, _ = fmt.Fprintln(t, strings.Join(cells, "\t")) } // Flush says what has failed
	end := func() error {
		if err := t.Flush(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w)
		return err
	}
	ops := v.ops()
	heads := []string{"blade", "state", "size", "asked", "conns", "read/s", "written/s"}
	for _, op := range ops {
		heads = append(heads, op.String()+"/s")
	}
	row(append(heads, "failed/s", " server")...)
	for i := range v.Blades {
		row(v.Blades[i].cells(ops)...)
	}
	if err := end(); err != nil {
		return err
	}
	heads = []string{
		"process", "lease", "workers", "commits/s", "failed/s", "p50", "p99", "view p50", "p99",
		"verbs/txn", "trips/txn",
	}
	for r := range txn.NumAbortReasons {
		heads = append(heads, r.String()+"/s")
	}
	row(append(heads, " program")...)
	for i := range v.Processes {
		row(v.Processes[i].cells()...)
	}
	if err := end(); err != nil {
		return err
	}
	// an empty cell behind has the last column aligned
	row("table", "reads/s", "updates/s", "inserts/s", "deletes/s", "conflicts/s", "")
	for _, x := range v.Tables {
		row(shown(x.Table), rateText(x.Reads), rateText(x.Updates), rateText(x.Inserts), rateText(x.Deletes),
			rateText(x.Conflicts), "")
	}
	return t.Flush()
}

// ops are the verbs to show: those that all fabrics have, and others that are used.
func (v *topView) ops() (ops []rdma.Op) {
	for op := range rdma.NumOps {
		used := op == rdma.OpRead || op == rdma.OpWrite || op == rdma.OpCAS
		for i := range v.Blades {
			used = used || v.Blades[i].verbs[op] > 0
		}
		if used {
			ops = append(ops, op)
		}
	}
	return ops
}

func (b *topBlade) cells(ops []rdma.Op) []string {
	cells := []string{fmt.Sprint(b.Blade), b.State, bytesText(b.Size)}
	if b.away {
		cells = append(cells, dashes(2)...)
	} else {
		cells = append(cells, bytesText(b.Provisioned), fmt.Sprint(b.Connections))
	}
	if r := b.Rates; r != nil {
		cells = append(cells, bytesText(uint64(r.Read)), bytesText(uint64(r.Written)))
		for _, op := range ops {
			cells = append(cells, rateText(b.verbs[op]))
		}
		cells = append(cells, rateText(r.Failed))
	} else {
		cells = append(cells, dashes(len(ops)+3)...)
	}
	server := " " + shown(b.Server)
	if b.Error != "" {
		server += ": " + b.Error
	}
	return append(cells, server)
}

// dashes are cells of what is not known.
func dashes(n int) []string { return slices.Repeat([]string{"-"}, n) }

func (p *topProcess) cells() []string {
	lease := p.Lease.State
	if lease == "live" && p.Lease.TermNs > 0 {
		age, term := time.Duration(p.Lease.AgeNs), time.Duration(p.Lease.TermNs)
		lease = fmt.Sprintf("%v of %v", age.Round(100*time.Millisecond), term.Round(100*time.Millisecond))
	}
	cells := []string{fmt.Sprint(p.Process), lease, fmt.Sprint(p.Workers)}
	if k := p.Work; k != nil {
		cells = append(cells, rateText(k.Committed), rateText(k.Failed))
		for kind := range txn.NumKinds {
			if l, ok := k.Latency[kind.String()]; ok {
				cells = append(cells, spanText(l.P50Ns), spanText(l.P99Ns))
			} else {
				cells = append(cells, dashes(2)...)
			}
		}
		if k.Committed > 0 {
			cells = append(cells, fmt.Sprintf("%.1f", k.Verbs), fmt.Sprintf("%.1f", k.Trips))
		} else {
			cells = append(cells, dashes(2)...)
		}
		for r := range txn.NumAbortReasons {
			cells = append(cells, rateText(k.Aborts[r.String()]))
		}
	} else {
		cells = append(cells, dashes(8+int(txn.NumAbortReasons))...)
	}
	program := " it tells nothing of itself"
	if p.Reports {
		program = " " + shown(fmt.Sprintf("%s, process %d of %s", p.Program, p.PID, p.Host))
	}
	return append(cells, program)
}

// spanText is a duration with two or three digits.
func spanText(ns int64) string {
	d, unit := time.Duration(ns), time.Nanosecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
