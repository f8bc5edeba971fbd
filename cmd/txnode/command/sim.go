package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"txnode/benchmarks/simbench"
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
	cmd.Flags().StringVar(name, "machine", first, "`profile` of the machine that is simulated:\n"+strings.Join(names, ", "))
	completeWith(cmd, "machine", names...)
}

// reportFlag registers --report.
func reportFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "report", "", "`file` to write a page with plots to (HTML, self-contained); by default none")
	completeFiles(cmd, "report", false)
}

// machine looks a profile up.
func machine(name string) (sim.Profile, error) {
	p, err := sim.ProfileByName(name)
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
