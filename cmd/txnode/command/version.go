package command

import (
	"encoding/csv"
	"fmt"

	"github.com/spf13/cobra"

	"txnode/benchmarks/report"
)

func newVersion(w *World) *cobra.Command {
	var output outputFormat
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, the revision, and what this was built for",
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error { return runVersion(w, output) },
	}
	output.addFlag(cmd)
	return cmd
}

func runVersion(w *World, output outputFormat) error {
	e := report.FromEnvironment(w.Environment())
	switch output {
	case outputJSON:
		return report.WriteJSON(w.Stdout, map[string]string{
			"version": e.Version, "revision": e.Revision, "go": e.Go, "os": e.OS,
		})
	case outputCSV:
		return csv.NewWriter(w.Stdout).WriteAll([][]string{
			{"version", "revision", "go", "os"}, {e.Version, e.Revision, e.Go, e.OS},
		})
	}
	revision := e.Revision
	if revision == "" {
		revision = "unknown (go build -buildvcs=true records it, in a checkout of git; so does go run)"
	}
	_, err := fmt.Fprintf(w.Stdout, "txnode %s\nrevision %s\n%s %s\n", e.Version, revision, e.Go, e.OS)
	return err
}
