package command

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/memory/layout"
)

func newClusterForget(w *World) *cobra.Command {
	var access accessOptions
	cmd := &cobra.Command{
		Use: "forget address blade", Short: "Make the place of a blade vacant that is down and will not come back",
		Long: `The place of a blade, by its number, that was declared dead becomes vacant: another server
can take it (txnode cluster add-blade), and the one before is not waited for any more. Its
address goes out of the catalog, if all of its blades are vacant. A blade that is up is
refused: txnode cluster drain-blade moves away what it has, and txnode cluster evict
declares it dead.`,
		Example:           "  txnode cluster forget unix:/tmp/catalog 1",
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
			if err := cluster.ForgetBlade(cmd.Context(), args[0], blade, co); err != nil {
				return interruptedOr(cmd.Context(), clusterFailed(err))
			}
			_, err = fmt.Fprintf(w.Stdout, "the place of blade %d is vacant\n", blade)
			return err
		},
	}
	access.addFlags(cmd)
	return cmd
}
