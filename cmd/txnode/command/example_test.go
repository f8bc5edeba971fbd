package command_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"txnode/cmd/txnode/command"
)

// A command line in this process.
func ExampleMain() {
	var stderr bytes.Buffer
	w := command.System()
	w.Stderr = &stderr
	code := command.Main(context.Background(), w, strings.Fields("bench smallbank --replicas 3"))
	fmt.Printf("exit code %d\n%s", code, stderr.String())
	// Output:
	// exit code 2
	// txnode: --replicas is 3; it must be 0, 1 or 2
}
