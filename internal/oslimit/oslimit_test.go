package oslimit_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/internal/oslimit"
)

// An error of a limit keeps what it is and says what to raise, once; other errors stay as they are.
func TestExplain(t *testing.T) {
	err := oslimit.Explain(&os.PathError{Op: "truncate", Path: "f", Err: unix.EFBIG})
	again := oslimit.Explain(fmt.Errorf("blade 0: %w", err))
	if !errors.Is(again, unix.EFBIG) || strings.Count(again.Error(), "ulimit -f") != 1 ||
		!strings.HasPrefix(again.Error(), "blade 0: truncate f: file too large") {
		t.Error(again)
	}
	if err := oslimit.Explain(unix.EIO); !errors.Is(err, unix.EIO) || err.Error() != unix.EIO.Error() {
		t.Error(err)
	}
	if oslimit.Explain(nil) != nil {
		t.Error("an error of none")
	}
}
