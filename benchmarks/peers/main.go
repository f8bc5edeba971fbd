package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"

	"txnode/cmd/txnode/command"
)

// Exit codes: 0 done, 1 a store failed or its books do not balance, 2 wrong
// flags.
func main() {
	if len(os.Args) > 1 && os.Args[1] == asTxnode {
		os.Exit(command.Main(context.Background(), command.System(), os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], contenders, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// asTxnode is a first argument that makes the program txnode, for the blades of a store.
const asTxnode = "as-txnode"

// run is main with everything given, and returns the exit code.
func run(ctx context.Context, args []string, all []contender, stdout, stderr io.Writer) int {
	o, err := parse(args, all, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "peers:", err)
		return 2
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var results []row
	for _, name := range o.workloads {
		c := contestOf(name)
		entrants, err := compete(ctx, o, c, stderr)
		if err != nil {
			fmt.Fprintf(stderr, "peers: %s: %v\n", name, err)
			return 1
		}
		results = append(results, rowsOf(o, c, entrants)...)
	}
	if err := write(stdout, o, results); err != nil {
		fmt.Fprintln(stderr, "peers:", err)
		return 1
	}
	return 0
}
