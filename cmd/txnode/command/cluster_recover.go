package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"txnode/cluster"
)

// clusterRecoverOptions are the flags of txnode cluster recover.
type clusterRecoverOptions struct {
	Trust  []int
	Yes    bool
	access accessOptions
}

func newClusterRecover(w *World) *cobra.Command {
	o := &clusterRecoverOptions{}
	cmd := &cobra.Command{
		Use: "recover address", Short: "Give up data that has no other copy, so that a database opens again",
		Long: `For a database that does not open, since the last copies of some segments are on blades
that do not answer, or came back blank or with an old copy of their files. As long as the
newest files may come back, start their servers with them instead: then nothing is lost.

The command names what is given up: blades, segments, bytes and tables. Then it asks, and
does it if the answer on standard input is yes; --yes does not ask. The blades count as
lost, and are taken in again, blank, when their servers answer.

With --trust a blade, by its number, that came with an old copy of its files is taken for
the newest: what was committed since the copy was made is given up, as far as it has no
other copy. Records may be those of before, or missing, so look at them afterwards, and
run txnode check. Of what several such blades have the newest copy stays.

No program may have the database open. If the database opens without, nothing is given up.`,
		Example: "  txnode cluster recover unix:/tmp/catalog\n  txnode cluster recover unix:/tmp/catalog " +
			"--trust 1 --yes",
		Args: exactly(1, "name the address of a catalog"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runClusterRecover(cmd.Context(), w, args[0], o)
		},
	}
	cmd.Flags().IntSliceVar(&o.Trust, "trust", nil,
		"`blade`, by its number, whose old files are taken for the newest; several times (default: none)")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	o.access.addFlags(cmd)
	return cmd
}

func runClusterRecover(ctx context.Context, w *World, address string, o *clusterRecoverOptions) error {
	co, err := o.access.options()
	if err != nil {
		return err
	}
	told := ""
	err = cluster.Recover(ctx, address, o.Trust, func(x *cluster.GivenUp) error {
		told = givenUp(x)
		if _, err := fmt.Fprint(w.Stderr, told); err != nil || o.Yes {
			return err
		}
		return confirmed(ctx, w, "give that up for good?", "nothing was given up")
	}, co)
	switch {
	case errors.Is(err, cluster.ErrNotNeeded):
		_, err = fmt.Fprintln(w.Stdout, "the database opens, and nothing was given up")
		return err
	case err != nil:
		return interruptedOr(ctx, clusterFailed(err))
	}
	_, err = fmt.Fprintf(w.Stdout, "the database opens again; build what is missing: txnode cluster heal %s\n",
		shown(address))
	return err
}

// givenUp says what is given up, in lines.
func givenUp(x *cluster.GivenUp) string {
	var b strings.Builder
	for i := range x.Blades {
		t := &x.Blades[i]
		fmt.Fprintf(&b, "blade %d (%s) counts as lost: it is %s\n", t.ID, shown(string(t.Server)), t.State)
	}
	for i := range x.Trusted {
		t := &x.Trusted[i]
		fmt.Fprintf(&b, "blade %d (%s) is taken as it is: %s\n", t.ID, shown(string(t.Server)), shown(t.Why))
	}
	what := "they are lost"
	if len(x.Trusted) > 0 {
		what = "they are as they were when the copy was made that stays, or lost"
	}
	size := byteSize(x.Bytes) // less than blades have
	fmt.Fprintf(&b, "segments without another copy: %d of %d, with at most %v: %s\n", x.Segments, x.Of, &size, what)
	if len(x.Tables) > 0 {
		fmt.Fprintf(&b, "tables that may have records there: %s\n", shown(strings.Join(x.Tables, ", ")))
	}
	if len(x.Indexes) > 0 {
		fmt.Fprintf(&b, "tables whose index is there: %s\n", shown(strings.Join(x.Indexes, ", ")))
	}
	return b.String()
}
