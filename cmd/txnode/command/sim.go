package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	cmd.Flags().StringVar(file, "report", "", "`file` to write a page with the curves to (HTML, self-contained); by default none")
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

// writeFile writes a file by a function. An error spoils the file, which stays.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := write(f); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// keeping writes until that fails, and keeps the error: who writes goes on, and what it has
// found is not lost with the file.
type keeping struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (k *keeping) Write(p []byte) (int, error) {
	if k.err == nil {
		_, k.err = k.to.Write(p)
	}
	return len(p), nil
}

// writable fails if one of the files cannot be written, before a long run whose results
// go there, or is to be written twice; "" is none. It creates those that there are not, and
// done removes them again if nothing has been written.
func writable(paths ...string) (done func(), err error) {
	var made []string
	done = func() {
		for _, path := range made {
			if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == 0 {
				_ = os.Remove(path) // who fails says why, and of no file of no use
			}
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	if err := distinct(paths...); err != nil {
		return done, err
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		_, missing := os.Lstat(path)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return done, err
		}
		if missing != nil {
			made = append(made, path)
		}
		if err := f.Close(); err != nil {
			return done, err
		}
	}
	return done, distinct(paths...) // links to what was not there
}

// distinct fails if two of the names are of one file; "" is none, and a device may be written twice.
func distinct(paths ...string) error {
	for i, a := range paths {
		x, missing := os.Stat(a)
		if a == "" || missing == nil && !x.Mode().IsRegular() {
			continue
		}
		for _, b := range paths[:i] {
			one := false
			if y, err := os.Stat(b); err == nil && missing == nil {
				one = os.SameFile(x, y)
			} else if b != "" {
				p, e1 := filepath.Abs(a)
				q, e2 := filepath.Abs(b)
				one = p == q && e1 == nil && e2 == nil
			}
			if one {
				return usagef("%s and %s are one file: name two", b, a)
			}
		}
	}
	return nil
}

// note prints how far a simulation is, on a terminal.
func (w *World) note(format string, args ...any) {
	if w.StderrTerminal {
		fmt.Fprintf(w.Stderr, "\r\x1b[K"+format, args...)
	}
}
