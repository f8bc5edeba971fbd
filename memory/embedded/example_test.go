package embedded_test

import (
	"fmt"
	"log"
	"os"

	"txnode/memory/embedded"
)

// A database in a directory has its tables again when it is reopened; its
// geometry need not be repeated.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := embedded.Open(embedded.Options{Dir: dir, BladeSize: 256 << 20})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Space().CreateTable("accounts", nil); err != nil {
		log.Fatal(err)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
	if db, err = embedded.Open(embedded.Options{Dir: dir}); err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	tables, err := db.Space().Tables()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tables[0].ID, tables[0].Name, db.Fabric().Blades()[0].Size>>20, "MiB")
	// Output:
	// 1 accounts 256 MiB
}
