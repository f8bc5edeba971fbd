package catalog_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
)

// Changes are atomic, and made to the revision that they were meant for.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c, err := catalog.OpenBolt(filepath.Join(dir, "catalog.db"), false)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, rev, err := c.Load()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Apply(rev, []layout.Entry{
		{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2")},
	}); err != nil {
		log.Fatal(err)
	}
	_, err = c.Apply(rev, []layout.Entry{{Key: "a"}})
	fmt.Println("too late:", errors.Is(err, memory.ErrRevision))
	entries, _, err := c.Load()
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Printf("%s=%s\n", e.Key, e.Value)
	}
	// Output:
	// too late: true
	// a=1
	// b=2
}
