package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/simbench"
	"txnode/rdma"
	"txnode/rdma/sim"
)

func newSim(w *World) *cobra.Command {
	var subcommands []*cobra.Command
	for i := range simbench.Workloads {
		subcommands = append(subcommands, newSimWorkload(w, simbench.Workloads[i]))
	}
	subcommands = append(subcommands, newSimVerbs(w), newSimHash(w), newSimLOCO(w), newSimCalibrate(w), newSimSeeds(w))
	return choose("sim", "Run the engine on the simulated RNIC: predictions, and schedules from seeds",
		`Runs the engine, unchanged, on a simulated RNIC in virtual time: how it would do on
the hardware of the published measurements, with up to 96 threads, and whether it is
right under schedules and memory orders that hardware rarely shows. Everything is
repeatable: one seed, one run. docs/simulator.md explains the model.`, subcommands...)
}

// machineFlag registers --machine; the default is the first profile, or the one given.
func machineFlag(cmd *cobra.Command, name *string, byDefault ...sim.Profile) {
	var names []string
	for _, p := range sim.Profiles() {
		names = append(names, p.Name)
	}
	first := names[0]
	for _, p := range byDefault {
		first = p.Name
	}
	cmd.Flags().StringVar(name, "machine", first, machineUsage(names))
	completeWith(cmd, "machine", names...)
}

func machineUsage(names []string) string {
	return "`profile` of the machine that is simulated:\n" + strings.Join(names, ", ") +
		";\nconstants of it can be changed, as in connectx-6,AtomicAddrNs=111"
}

// machinesFlag registers a --machine that can be given several times.
func machinesFlag(cmd *cobra.Command, list *[]string) {
	var names []string
	for _, p := range sim.Profiles() {
		names = append(names, p.Name)
	}
	cmd.Flags().StringArrayVar(list, "machine", names[:1],
		machineUsage(names)+";\ngiven several times, all curves are measured on each")
	completeWith(cmd, "machine", names...)
}

// throttling is a way to find the limit of outstanding requests, or none: a value of --tuner.
type throttling struct {
	name  string // empty: that of the program that is followed
	tuner rdma.TunerPolicy
	off   bool
}

// apply sets what a configuration has of it. Without a name, SMART's program, if that is followed,
// has its tuner, and anything else the engine's.
func (t *throttling) apply(on *rdma.Techniques, tuner *rdma.TunerPolicy, smart bool) {
	*tuner = t.tuner
	if t.name == "" && smart {
		*tuner = rdma.TunerSMART
	}
	on.Throttle = on.Throttle && !t.off
}

// noThrottle is the value of --tuner that leaves the throttle out.
const noThrottle = "none"

// throttlings are those that there are.
func throttlings() []throttling {
	var out []throttling
	for _, t := range rdma.TunerPolicies {
		out = append(out, throttling{name: t.String(), tuner: t})
	}
	return append(out, throttling{name: noThrottle, off: true})
}

// tunerList is the value of --tuner, by commas.
type tunerList []throttling

// all are those that were given, or the one without a name.
func (l tunerList) all() []throttling {
	if len(l) == 0 {
		return []throttling{{}}
	}
	return l
}

// String implements pflag.Value.
func (l *tunerList) String() string {
	var names []string
	for _, t := range *l {
		names = append(names, t.name)
	}
	return strings.Join(names, ",")
}

// Type implements pflag.Value.
func (*tunerList) Type() string { return "policy" }

// Set implements pflag.Value.
func (l *tunerList) Set(s string) error {
	known := throttlings()
	var out tunerList
	for name := range strings.SplitSeq(s, ",") {
		i := slices.IndexFunc(known, func(t throttling) bool { return t.name == name })
		if i < 0 || slices.Contains(out, known[i]) {
			return errors.New("it must be smart, thread or none, or some of them by commas")
		}
		out = append(out, known[i])
	}
	*l = out
	return nil
}

// tunerFlag registers --tuner.
func tunerFlag(cmd *cobra.Command, l *tunerList) {
	cmd.Flags().Var(l, "tuner",
		"how the limit of outstanding requests is found: smart, for all threads together, as SMART's\n"+
			"program does; thread, by each alone; or none, without a throttle. Several by commas, a curve\n"+
			"each; by default that of the program that is followed")
	completeWith(cmd, "tuner", "smart", "thread", noThrottle)
}

// threadCounts is the value of --threads where it can be a range or a list.
type threadCounts struct {
	least, most int   // least 0: no range
	list        []int // increasing; empty: no list
}

// one says that it is a single number.
func (c *threadCounts) one() bool { return c.least == 0 && c.list == nil }

// among are those of the counts that are meant: in a range with its ends, in a list alone, or up to
// the single number, with it.
func (c *threadCounts) among(counts []int) []int {
	if c.list != nil {
		return c.list
	}
	out := slices.DeleteFunc(slices.Clone(counts), func(n int) bool { return n < c.least || n > c.most })
	if c.least > 0 {
		out = append(out, c.least)
	}
	out = append(out, c.most)
	slices.Sort(out)
	return slices.Compact(out)
}

// has says that a count of a figure is one of those that are meant.
func (c *threadCounts) has(n int) bool {
	if c.list != nil {
		return slices.Contains(c.list, n)
	}
	return n >= c.least && n <= c.most
}

// String implements pflag.Value.
func (c *threadCounts) String() string {
	switch {
	case c.list != nil:
		var all []string
		for _, n := range c.list {
			all = append(all, strconv.Itoa(n))
		}
		return strings.Join(all, ",")
	case c.least == 0:
		return strconv.Itoa(c.most)
	}
	return fmt.Sprintf("%d..%d", c.least, c.most)
}

// Type implements pflag.Value.
func (*threadCounts) Type() string { return "int" }

// Set implements pflag.Value.
func (c *threadCounts) Set(s string) error {
	var out threadCounts
	var err error
	least, most, isRange := strings.Cut(s, "..")
	switch {
	case isRange:
		if out.least, err = strconv.Atoi(least); err == nil {
			out.most, err = strconv.Atoi(most)
		}
		if out.least < 1 || out.least > out.most {
			err = strconv.ErrRange
		}
	case strings.Contains(s, ","):
		for one := range strings.SplitSeq(s, ",") {
			n, e := strconv.Atoi(one)
			if n < 1 {
				e = strconv.ErrRange
			}
			err = errors.Join(err, e)
			out.list = append(out.list, n)
		}
		slices.Sort(out.list)
		out.list = slices.Compact(out.list)
		out.most = out.list[len(out.list)-1]
	default:
		out.most, err = strconv.Atoi(s)
	}
	if err != nil {
		return errors.New("it must be a number, a range such as 1..96, or a list such as 24,48,96")
	}
	*c = out
	return nil
}

// idleTimes is the value of --idle where it can be a list, by commas; nil: none is given.
type idleTimes []time.Duration

// String implements pflag.Value.
func (l *idleTimes) String() string {
	var all []string
	for _, d := range *l {
		all = append(all, d.String())
	}
	return strings.Join(all, ",")
}

// Type implements pflag.Value.
func (*idleTimes) Type() string { return "time" }

// Set implements pflag.Value.
func (l *idleTimes) Set(s string) error {
	var out idleTimes
	for one := range strings.SplitSeq(s, ",") {
		d, err := time.ParseDuration(one)
		if err != nil || slices.Contains(out, d) {
			return errors.New("it must be a time such as 32us, or some of them by commas")
		}
		out = append(out, d)
	}
	*l = out
	return nil
}

// markdownFlag registers --markdown.
func markdownFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "markdown", false, "print the tables of docs/ in Markdown, instead of --output")
}

// notMarkdown fails if --markdown was given with --output.
func notMarkdown(cmd *cobra.Command, on bool) error {
	if !on {
		return nil
	}
	return fixedBy(cmd, "markdown", "output")
}

// reportFlag registers --report.
func reportFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "report", "",
		"`file` to write a page with plots to (HTML, self-contained); by default none")
	completeFiles(cmd, "report", false)
}

// machine looks a profile up.
func machine(name string) (sim.Profile, error) {
	name, changes, _ := strings.Cut(name, ",")
	p, err := sim.ProfileByName(name)
	for one := range strings.SplitSeq(changes, ",") {
		if one == "" || err != nil {
			break
		}
		constant, value, _ := strings.Cut(one, "=")
		v, e := strconv.ParseFloat(value, 64)
		if e != nil {
			return p, usagef("--machine: %q is not a constant and its value, such as AtomicAddrNs=111", one)
		}
		err = p.Set(constant, v)
	}
	if err != nil {
		return p, usagef("--machine: %v", err)
	}
	return p, nil
}

// note prints how far a simulation is, on a terminal.
func (w *World) note(format string, args ...any) {
	if w.StderrTerminal {
		_, _ = fmt.Fprintf(w.errScreen, "\r\x1b[K%s", plain(fmt.Appendf(nil, format, args...)))
	}
}
