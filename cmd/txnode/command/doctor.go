package command

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"txnode/cluster"
)

func newDoctor(w *World) *cobra.Command {
	var o textOrJSON
	var access accessOptions
	cmd := &cobra.Command{
		Use:   "doctor [address]",
		Short: "Examine this host, and each process of a cluster, and say how to mend what is wrong",
		Long: `Examines, for the cluster whose catalog is at an address: the limits and pages of this
host, the TLS files, the catalog, and each server of blades: whether it answers, its
release, its certificate, its clock and those of processes beside this host's; each
blade: whether it is the one that the catalog says, and how long a READ, a WRITE and a
compare-and-swap (CAS) take; and what txnode cluster status says: whether data is lost or
unavailable, copies are missing, and members reach the blades.

Without an address this host alone is examined, and no server is asked: limits, pages,
the clock, room in /dev/shm for blades of shared memory, and TLS files if they are given.

Each check is a line: ok, warn or fail. Below one that is not ok stands what mends it.
Exit code 1 if a check fails. Verbs are tested in a page of each blade that holds no
data, so the command can be run at any time.`,
		Example: "  txnode doctor\n  txnode doctor unix:/tmp/catalog\n  txnode doctor tcp:cat:7000 --tls-cert c.crt " +
			"--tls-key c.key --tls-ca ca.crt -o json",
		Args: atMostAddress, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if faults := access.TLS.faults(); faults != nil {
				return usagef("%s", strings.Join(faults, "; "))
			}
			e := &exam{w: w, access: &access}
			if len(args) > 0 {
				e.address = args[0]
			}
			if err := e.run(cmd.Context()); err != nil {
				return err
			}
			return e.print(o == "json")
		},
	}
	o.addFlag(cmd)
	access.addFlags(cmd)
	return cmd
}

func atMostAddress(_ *cobra.Command, args []string) error {
	if len(args) > 1 || len(args) == 1 && args[0] == "" {
		return errors.New("name the address of one catalog, or none to examine this host alone")
	}
	return nil
}

// health is how a check has ended.
type health string

// Ends of a check.
const (
	healthOK   health = "ok"
	healthWarn health = "warn" // it works, and may not for long, or not as fast as it could
	healthFail health = "fail"
)

// finding is a check.
type finding struct {
	State   health `json:"state"`
	Check   string `json:"check"`
	Subject string `json:"subject,omitempty"` // an address, or a blade
	Text    string `json:"text"`
	Advice  string `json:"mend,omitempty"` // a command, or what to do
	// Of verbs: the median and the longest of verbRounds, in nanoseconds.
	MedianNs int64 `json:"median_ns,omitempty"`
	MaxNs    int64 `json:"max_ns,omitempty"`
}

// exam is an examination of a cluster.
type exam struct {
	w       *World
	access  *accessOptions
	address string // of the catalog; "": this host alone is examined
	found   []finding
	options cluster.Options
	told    map[uint64]bool // processes of which a daemon was told, by their lives
}

func (e *exam) ok(check, subject, format string, args ...any) {
	e.found = append(e.found, finding{
		State: healthOK, Check: check, Subject: subject, Text: fmt.Sprintf(format, args...),
	})
}

func (e *exam) bad(s health, advice, check, subject, format string, args ...any) {
	e.found = append(e.found, finding{
		State: s, Check: check, Subject: subject, Text: fmt.Sprintf(format, args...), Advice: advice,
	})
}

// failed adds an error of a connection to an address.
func (e *exam) failed(check, address string, err error) {
	e.bad(healthFail, remedyOf(err, address), check, address, "%s", oneLine(err))
}

// run makes all checks. An error is of wrong usage, or of an interrupt.
func (e *exam) run(ctx context.Context) (err error) {
	host := readHost()
	e.checkLimits(&host)
	e.checkPages(&host)
	if e.address == "" {
		e.checkFilesLimit(&host, &examined{blades: usualBlades})
		e.checkClockKept(&host)
		if runtime.GOOS == "linux" { // there are no blades of shared memory elsewhere
			e.checkDirectory(&host, "/dev/shm")
		}
	}
	if e.address == "" && e.access.RDMA != "" {
		e.checkDevice(nil)
	}
	if !e.checkFiles() {
		return nil
	}
	if e.address == "" {
		e.ok("servers", "", "none was asked: name the address of a catalog to have them examined")
		return nil
	}
	if e.options, err = e.access.options(); err != nil { // the files are good, but for the secret
		e.bad(healthFail, "name the file that the servers have in --secret-file", "secret", "", "%s", oneLine(err))
		return nil
	}
	c, err := e.checkCatalog(ctx)
	if err != nil || c == nil {
		return err
	}
	e.checkFilesLimit(&host, c)
	if dir := c.sharedDir(); dir != "" {
		e.checkDirectory(&host, dir)
	}
	if c.devices() {
		e.checkDevice(c.servers)
	}
	for i := range c.servers {
		e.checkServer(ctx, c, i)
	}
	if c.layout != nil {
		e.checkWhole(ctx)
	}
	return ctx.Err()
}

func (e *exam) print(asJSON bool) error {
	n := map[health]int{}
	for i := range e.found {
		n[e.found[i].State]++
	}
	var err error
	if asJSON {
		err = line(e.w.Stdout, struct {
			Catalog string    `json:"catalog"`
			OK      int       `json:"ok"`
			Warn    int       `json:"warn"`
			Fail    int       `json:"fail"`
			Checks  []finding `json:"checks"`
		}{e.address, n[healthOK], n[healthWarn], n[healthFail], e.found})
	} else {
		err = e.printText()
	}
	if err == nil && n[healthFail] > 0 {
		return failf("%d of %d checks fail", n[healthFail], len(e.found))
	}
	return err
}

func (e *exam) printText() error {
	t := tabwriter.NewWriter(e.w.Stdout, 0, 0, 2, ' ', 0)
	for i := range e.found {
		f := &e.found[i]
		what := f.Check
		if f.Subject != "" {
			what += " " + shown(f.Subject)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", f.State, what, f.Text) // Flush says what has failed
		if f.Advice != "" {
			_, _ = fmt.Fprintf(t, "\t\tto mend it: %s\n", f.Advice)
		}
	}
	return t.Flush()
}
