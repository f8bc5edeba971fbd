package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/memory"
)

// restartCheckOptions are the flags of txnode cluster restart-check.
type restartCheckOptions struct {
	Wait    bool
	Timeout time.Duration
	access  accessOptions
}

func newClusterRestartCheck(w *World) *cobra.Command {
	o := &restartCheckOptions{}
	cmd := &cobra.Command{
		Use:   "restart-check address blade",
		Short: "Say whether the server of a blade may be stopped, or restarted, now",
		Long: `Asks the catalog at an address, and all servers, whether every segment of the database has a
whole copy on other blades than those of one server, which is named by the number of a blade
or by its address. The exit code is 0 if it may be stopped now, and 1 if not: then it says why.

A server without --dir begins anew with nothing, and also one with --dir counts as lost for the
programs that have the database open. So restart one server after the other, and before each of
them have what is missing built: programs that have the database open do it, and txnode cluster
heal does where there are none. With --wait the command waits until the server may be stopped.`,
		Example: "  txnode cluster restart-check unix:/tmp/catalog 0\n  txnode cluster restart-check " +
			"unix:/tmp/catalog unix:/tmp/blade0 --wait --timeout 10m",
		Args: exactly(2,
			"name the address of a catalog, and the number of a blade or the address of its server"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Timeout < 0 || o.Timeout > 0 && !o.Wait {
				return usagef("--timeout is %v; it is how long --wait waits at most", o.Timeout)
			}
			co, err := o.access.options()
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), w, args[0], args[1], co)
		},
	}
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "wait until the server may be stopped")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "how long --wait waits at most; 0, the default: for ever")
	o.access.addFlags(cmd)
	return cmd
}

func (o *restartCheckOptions) run(ctx context.Context, w *World, address, name string, co cluster.Options) error {
	limit := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	said := waitLine{w: w}
	for {
		var no error
		switch st, err := cluster.Ask(ctx, address, co); {
		case ctx.Err() != nil:
			return errInterrupted
		case err == nil:
			blade, err := bladeNamed(st, address, name)
			if err != nil {
				return err
			}
			s := st.Stop(blade)
			if len(s.Why) == 0 {
				return mayStop(w, st, address, s.Blades)
			}
			no = failf("%s must not be stopped now: %s: wait (--wait), or have copies built by txnode cluster "+
				"heal %s --wait", namesOf(s.Blades), strings.Join(s.Why, "; "), address)
		case !o.Wait || !errors.Is(err, memory.ErrAway):
			return clusterFailed(err)
		default:
			no = clusterFailed(err)
		}
		if !o.Wait {
			return no
		}
		said.say(oneLine(no))
		pause := time.NewTimer(statusEvery)
		select {
		case <-pause.C:
		case <-limit.Done():
		}
		pause.Stop()
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case limit.Err() != nil:
			return fmt.Errorf("after %v: %w", o.Timeout, no)
		}
	}
}

// mayStop says that a server may be stopped, and what is to be done afterwards.
func mayStop(w *World, st *cluster.Status, address string, blades []int) error {
	then := ""
	if len(st.Processes) == 0 && st.Layout != nil {
		then = fmt.Sprintf("; no process has the database open: when it is back, txnode cluster heal %s --wait "+
			"builds its copies, before another one is stopped", shown(address))
	}
	_, err := fmt.Fprintf(w.Stdout, "%s may be stopped now%s\n", namesOf(blades), then)
	return err
}

// namesOf is the server of blades in words.
func namesOf(blades []int) string {
	if len(blades) == 1 {
		return fmt.Sprintf("the server of blade %d", blades[0])
	}
	return "the server of blades " + strings.Trim(strings.ReplaceAll(fmt.Sprint(blades), " ", ", "), "[]")
}

// bladeNamed is the blade of a number, or the first one of the server at an address.
func bladeNamed(st *cluster.Status, address, name string) (int, error) {
	n, err := strconv.Atoi(name)
	if err == nil && n >= 0 && n < len(st.Blades) {
		return n, nil
	}
	for i := range st.Blades {
		if st.Blades[i].Server == cluster.BladeAddress(name) && name != "" {
			return i, nil
		}
	}
	return 0, usagef("the blade is %q; it must be a number below %d, or the address of a server: txnode cluster "+
		"status %s lists them", name, len(st.Blades), address)
}
