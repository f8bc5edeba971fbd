package txn_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"txnode/txn"
)

// TestMain also is the program that the tests start to have a second process; and
// it makes sure that nothing is left running.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TXN_TEST_OPEN"); dir != "" {
		_, err := txn.Open(context.Background(), txn.Options{Dir: dir, ReadOnly: os.Getenv("TXN_TEST_READONLY") != ""})
		fmt.Print(err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
