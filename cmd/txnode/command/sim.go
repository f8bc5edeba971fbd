package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

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
	subcommands = append(subcommands, newSimVerbs(w), newSimHash(w), newSimCalibrate(w), newSimSeeds(w))
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
	cmd.Flags().StringVar(name, "machine", first, "`profile` of the machine that is simulated:\n"+strings.Join(names, ", ")+";\nconstants of it can be changed, as in connectx-6,AtomicAddrNs=111")
	completeWith(cmd, "machine", names...)
}

// tunerPolicy is the value of --tuner.
type tunerPolicy struct {
	given bool
	rdma.TunerPolicy
}

// String implements pflag.Value.
func (p *tunerPolicy) String() string {
	if !p.given {
		return ""
	}
	return p.TunerPolicy.String()
}

// of is the policy that was given, or that of the program that is followed: SMART's, or the
// engine's.
func (p *tunerPolicy) of(smart bool) rdma.TunerPolicy {
	if !p.given && smart {
		return rdma.TunerSMART
	}
	return p.TunerPolicy
}

// Type implements pflag.Value.
func (*tunerPolicy) Type() string { return "policy" }

// Set implements pflag.Value.
func (p *tunerPolicy) Set(s string) error {
	for _, t := range rdma.TunerPolicies {
		if t.String() == s {
			*p = tunerPolicy{true, t}
			return nil
		}
	}
	return errors.New("it must be smart or thread")
}

// tunerFlag registers --tuner.
func tunerFlag(cmd *cobra.Command, p *tunerPolicy) {
	cmd.Flags().Var(p, "tuner", "how the limit of outstanding requests is found: smart, for all threads together, as SMART's\nprogram does; or thread, by each alone; by default that of the program that is followed")
	completeWith(cmd, "tuner", "smart", "thread")
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
	cmd.Flags().StringVar(file, "report", "", "`file` to write a page with plots to (HTML, self-contained); by default none")
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
		fmt.Fprintf(w.Stderr, "\r\x1b[K"+format, args...)
	}
}
