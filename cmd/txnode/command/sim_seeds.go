package command

import "github.com/spf13/cobra"

func newSimSeeds(w *World) *cobra.Command { return &cobra.Command{Use: "seeds", Short: "x"} }
