package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/txn"
)

// moveEvery is how often a command that moves copies says how far it is.
const moveEvery = time.Second

// moveProgress tells how far a move is.
func moveProgress(w *World) func(txn.Moving) {
	next := time.Now().Add(moveEvery)
	return func(m txn.Moving) {
		if now := time.Now(); now.After(next) && m.Copies > 0 {
			next = now.Add(moveEvery)
			_, _ = fmt.Fprintf(w.Stderr, "copies still to be moved: %d\n", m.Copies)
		}
	}
}

func newClusterAddBlade(w *World) *cobra.Command {
	var access accessOptions
	cmd := &cobra.Command{
		Use: "add-blade address blade", Short: "Add a server of blades to a cluster, while programs use it",
		Long: `Writes the address of a server of blades into a place of the cluster that is vacant, and
waits until its blades take part. Programs that have the database open connect to it by
themselves. How many places there are, txnode cluster init has said (--places); a blade
that was drained leaves one. The server must have as many blades as the place, which is one, if
txnode cluster init has made it. Nothing moves to the new blade by that: see txnode cluster
rebalance. A server that was drained takes the place that it had, also if its address is in
the catalog still. A server that is there by another name, or that has the memory of another
place, is refused, and the catalog stays as it is. After an interruption, call it again.`,
		Example:           "  txnode cluster add-blade unix:/tmp/catalog unix:/tmp/blade2",
		Args:              exactly(2, "name the address of a catalog, and that of a server of blades"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			co, err := access.options()
			if err != nil {
				return err
			}
			ids, err := cluster.AddBlade(cmd.Context(), args[0], cluster.BladeAddress(args[1]), co)
			if err != nil {
				return clusterFailed(err)
			}
			var names []string
			for _, b := range ids {
				names = append(names, strconv.Itoa(b))
			}
			_, err = fmt.Fprintf(w.Stdout, "blades of %s that take part: %s\n", args[1], strings.Join(names, ", "))
			return err
		},
	}
	access.addFlags(cmd)
	return cmd
}

func newClusterDrainBlade(w *World) *cobra.Command {
	var access accessOptions
	cmd := &cobra.Command{
		Use: "drain-blade address blade", Short: "Move everything from a blade to others, while programs use it",
		Long: `Marks a blade, by its number, as leaving: nothing more is placed on it. What it has moves to
other blades. When it is empty, it takes part no more, and its server can be stopped, if all
of its blades are drained. Its place is vacant: txnode cluster add-blade. As many blades must
stay as a record has copies, with room for what moves. No copy is missing meanwhile, unless
records have two backups: then they have one as long as they move. Each program that has the
database open goes on with the work, so after an interruption call this again to wait for the
end. txnode cluster add-blade, with the server's address, takes it back.
A server of shared memory must not be stopped after that: its place stays its own.`,
		Example:           "  txnode cluster drain-blade unix:/tmp/catalog 0",
		Args:              exactly(2, "name the address of a catalog, and the number of a blade"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			blade, err := strconv.Atoi(args[1])
			if err != nil || blade < 0 || blade >= layout.MaxBlades {
				return usagef("the blade is %q; it must be a number: txnode cluster status %s lists them",
					args[1], args[0])
			}
			co, err := access.options()
			if err != nil {
				return err
			}
			if err := cluster.DrainBlade(cmd.Context(), args[0], blade, moveProgress(w), co); err != nil {
				return clusterFailed(err)
			}
			_, err = fmt.Fprintf(w.Stdout, "blade %d is empty, and takes part no more\n", blade)
			return err
		},
	}
	access.addFlags(cmd)
	return cmd
}

func newClusterRebalance(w *World) *cobra.Command {
	var access accessOptions
	cmd := &cobra.Command{
		Use: "rebalance address", Short: "Spread records over all blades evenly, while programs use them",
		Long: `Moves copies of segments from blades of which a larger part is taken to others, until all are
about as full, and waits for that. If records have two backups, primaries stay where they are.
After an interruption, call it again.`,
		Example: "  txnode cluster rebalance unix:/tmp/catalog",
		Args:    exactly(1, "name the address of a catalog"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			co, err := access.options()
			if err != nil {
				return err
			}
			n, err := cluster.Rebalance(cmd.Context(), args[0], moveProgress(w), co)
			if err != nil {
				return clusterFailed(err)
			}
			_, err = fmt.Fprintf(w.Stdout, "copies that have moved: %d\n", n)
			return err
		},
	}
	access.addFlags(cmd)
	return cmd
}
