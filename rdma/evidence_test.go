package rdma_test

import (
	"errors"
	"fmt"
	"testing"

	"txnode/rdma"
)

type witness struct{ e rdma.Evidence }

func (w *witness) Error() string           { return "witness" }
func (w *witness) Evidence() rdma.Evidence { return w.e }

// TestEvidenceOf: the class is found wherever the error is in a tree, and an error of
// something else has none.
func TestEvidenceOf(t *testing.T) {
	w := &witness{rdma.Alive}
	for _, x := range []struct {
		err  error
		want rdma.Evidence
		name string
	}{
		{nil, rdma.NoEvidence, "no evidence"},
		{rdma.ErrBladeDown, rdma.NoEvidence, "no evidence"},
		{w, rdma.Alive, "alive"},
		{fmt.Errorf("blade 0: %w", errors.Join(rdma.ErrBladeDown, w)), rdma.Alive, "alive"},
	} {
		if got := rdma.EvidenceOf(x.err); got != x.want || got.String() != x.name {
			t.Errorf("%v: %v; want %v", x.err, got, x.want)
		}
	}
	if s := rdma.Evidence(9).String(); s != "evidence 9" {
		t.Errorf("%s", s)
	}
}
