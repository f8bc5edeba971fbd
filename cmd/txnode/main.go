package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"txnode/cmd/txnode/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends things in good order; a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(command.Main(ctx, command.System(), os.Args[1:]))
}
