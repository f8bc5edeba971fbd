package shm_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"txnode/rdma"
	"txnode/rdma/shm"
)

// TestAsk: a server tells what its program says, up to a length, beside clients that have mapped
// it.
func TestAsk(t *testing.T) {
	dir := directory(t)
	var says atomic.Value
	says.Store("")
	serve(t, dir, shm.ServerOptions{Blades: regions(1, 1<<20), Describe: func() []byte {
		return []byte(says.Load().(string))
	}})
	f := dial(t, dir, shm.Options{})
	for n, want := range map[int]int{0: 0, 481: 481, 60 << 10: 60 << 10, 60<<10 + 1: -1} {
		text := strings.Repeat("x", n)
		says.Store(text)
		p, err := shm.Ask(t.Context(), dir, "a", shm.Options{})
		if want >= 0 && (err != nil || string(p) != text) || want < 0 &&
			(err == nil || !strings.Contains(err.Error(), "more than 61440")) {
			t.Errorf("%d bytes: %d bytes, %v", n, len(p), err)
		}
	}
	if len(f.Blades()) != 1 {
		t.Errorf("%+v", f.Blades())
	}
	if _, err := shm.Ask(t.Context(), dir, "b", shm.Options{}); !errors.Is(err, rdma.ErrBladeDown) {
		t.Errorf("%v", err)
	}
	if _, err := shm.Ask(t.Context(), dir, "../b", shm.Options{}); !errors.Is(err, shm.ErrOptions) {
		t.Errorf("%v", err)
	}
}
