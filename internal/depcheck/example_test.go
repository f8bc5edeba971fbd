package depcheck_test

import (
	"fmt"
	"testing/fstest"

	"txnode/internal/depcheck"
)

// A log package that asks for the time and reaches up to the transactions.
func Example() {
	packages, err := depcheck.Load(fstest.MapFS{
		"log/doc.go": {Data: []byte("// Package log keeps what a transaction may have to undo.\npackage log\n")},
		"log/ring.go": {Data: []byte(`package log

import (
	"time"

	"txnode/txn"
)

var opened = time.Now()

type Owner = txn.DB
`)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, finding := range depcheck.Check("txnode", packages) {
		fmt.Println(finding)
	}
	// Output:
	// log/ring.go:6: layering: log imports txn: imports go downwards only, and layer "transactions" is above layer "log"; let the upper layer pass in what is needed
	// log/ring.go:9: determinism: time.Now: the data path takes time and waiting from rdma.Thread
}
