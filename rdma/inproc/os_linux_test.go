package inproc_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"txnode/rdma"
	"txnode/rdma/inproc"
)

// TestReserveErrors: a full disk is ErrNoMemory, in words that name the file.
func TestReserveErrors(t *testing.T) {
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		if err := inproc.ReserveError("/some/blade", full); !errors.Is(err, rdma.ErrNoMemory) || !errors.Is(err, full) || !strings.Contains(err.Error(), "/some/blade") {
			t.Errorf("%v: %v", full, err)
		}
	}
	for _, fine := range []error{nil, unix.EOPNOTSUPP} {
		if err := inproc.ReserveError("", fine); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	if err := inproc.ReserveError("/some/blade", unix.EIO); errors.Is(err, rdma.ErrNoMemory) || !errors.Is(err, unix.EIO) {
		t.Errorf("EIO: %v", err)
	}
}
