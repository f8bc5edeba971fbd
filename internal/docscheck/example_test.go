package docscheck_test

import (
	"fmt"
	"testing/fstest"

	"txnode/internal/docscheck"
)

// A page with a link that leads nowhere, and a target that the Makefile does not have.
func Example() {
	findings, err := docscheck.Check(fstest.MapFS{
		"Makefile":  {Data: []byte("test:\n\tgo test ./...\n")},
		"README.md": {Data: []byte("# Tool\n\nSee [the guide](docs/guide.md).\n\n    make tests\n")},
	}, docscheck.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	// Output:
	// README.md:3: the link leads to docs/guide.md, which is not there
	// README.md:5: make tests: the Makefile has no tests
}
