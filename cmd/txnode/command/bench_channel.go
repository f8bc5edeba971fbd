package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/benchmarks/channelbench"
)

// channelOptions are the flags of txnode bench channel.
type channelOptions struct {
	config channelbench.ObjectsConfig
	output outputFormat
}

// AddFlags registers the flags.
func (o *channelOptions) AddFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &o.config
	fs.StringSliceVar(&c.Operations, "operation", nil, "what to measure, by commas:\n"+lines(channelbench.Operations(),
		7)+";\nby default all")
	fs.IntVar(&c.Threads, "threads", 1, "number of threads, each a member; the default is 1")
	fs.DurationVar(&c.Duration, "duration", 300*time.Millisecond,
		"`time` to measure an operation, after a quarter of that to warm up")
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of everything that is drawn")
	o.output.addFlag(cmd)
	completeWith(cmd, "operation", channelbench.Operations()...)
}

// lines lists words, so many on a line.
func lines(words []string, each int) string {
	var all []string
	for some := range slices.Chunk(words, each) {
		all = append(all, strings.Join(some, ", "))
	}
	return strings.Join(all, ",\n")
}

// run measures and prints.
func (o *channelOptions) run(cmd *cobra.Command, w *World) error {
	if err := positive(cmd, "threads", "duration"); err != nil {
		return err
	}
	if err := o.config.Validate(); err != nil {
		return &usageError{cause: err}
	}
	all := 0
	r, err := channelbench.RunObjects(cmd.Context(), o.config, func(p *channelbench.Point, done, total int) {
		all = total
		w.note("%d of %d operations: %s: %.0f k op/s", done, total, p.Variant, p.Kops)
	})
	w.note("")
	stopped := interruptedOr(cmd.Context(), err)
	if stopped != nil {
		if r == nil || len(r.Points) == 0 || !errors.Is(stopped, errInterrupted) {
			return stopped
		}
		stopped = fmt.Errorf("%w: %d of %d operations were measured", stopped, len(r.Points), all)
	}
	write := r.WriteTable
	switch o.output {
	case outputJSON:
		write = r.WriteJSON
	case outputCSV:
		write = r.WriteCSV
	}
	if err := write(w.Stdout); err != nil {
		return err
	}
	return stopped
}

func newBenchChannel(w *World) *cobra.Command {
	o := &channelOptions{}
	cmd := &cobra.Command{
		Use:   "channel",
		Short: "Channel objects, operation by operation: rate, latency, verbs, round trips",
		Long: `Measures the operations of package channel on blades in the memory of this process, in real
time, and checks what they do. Members share an object, but for Owned, SST and Ring. What
they would do on RNICs is for txnode sim loco to say.`,
		Example: `  txnode bench channel
  txnode bench channel --threads 2 --operation mutex,ticket-lock,kv-put -o json`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd, w) },
	}
	o.AddFlags(cmd)
	return cmd
}
