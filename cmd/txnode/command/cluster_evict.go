package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/memory/layout"
)

func newClusterEvict(w *World) *cobra.Command {
	var access accessOptions
	var yes bool
	cmd := &cobra.Command{
		Use: "evict address blade|process=number", Short: "Declare a blade dead, or end the registration of a process",
		Long: `A blade, by its number, is declared dead, whether it answers or not: its backups take over
at once, and its copies are built anew on others. It is refused if the last copy of a
segment is there: txnode cluster drain-blade moves everything away before. A blade whose
server answers is taken in again, blank; stop the server before, or see txnode cluster
forget.

A process, by its number behind process=, is taken for dead: what it had begun has no
effect, and others decide its transactions. A process that lives begins anew under another number.
txnode cluster status lists both. The command asks; --yes does not.`,
		Example: "  txnode cluster evict unix:/tmp/catalog 1\n  txnode cluster evict unix:/tmp/catalog " +
			"process=17 --yes",
		Args:              exactly(2, "name the address of a catalog, and the number of a blade, or process=NUMBER"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			number, isProcess := strings.CutPrefix(args[1], "process=")
			bits := 32
			if !isProcess {
				bits = 16
			}
			n, err := strconv.ParseUint(number, 10, bits)
			if err != nil || !isProcess && n >= layout.MaxBlades {
				return usagef("%q is neither the number of a blade nor process=NUMBER: txnode cluster status "+
					"%s lists them", args[1], args[0])
			}
			co, err := access.options()
			if err != nil {
				return err
			}
			what, done := fmt.Sprintf("blade %d", n), "is declared dead"
			if isProcess {
				what, done = fmt.Sprintf("process %d", n), "is registered no more"
			}
			if !yes {
				if err := confirmed(ctx, w, fmt.Sprintf("take %s for dead?", what), "nothing was changed"); err != nil {
					return err
				}
			}
			if isProcess {
				err = cluster.EvictProcess(ctx, args[0], uint32(n), co)
			} else {
				err = cluster.EvictBlade(ctx, args[0], int(n), co)
			}
			// it was declared dead before, perhaps by the opening for this
			if err != nil && !errors.Is(err, layout.ErrDown) {
				return interruptedOr(ctx, clusterFailed(err))
			}
			_, err = fmt.Fprintf(w.Stdout, "%s %s\n", what, done)
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	access.addFlags(cmd)
	return cmd
}
