package remote_test

import (
	"context"
	"testing"
	"time"

	"txnode/memory/catalog"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// slowCatalog is a catalog that is long about loading what it has.
type slowCatalog struct {
	layout.Catalog
	asked, answer chan struct{}
}

func (c *slowCatalog) Load() ([]layout.Entry, layout.Revision, error) {
	c.asked <- struct{}{}
	<-c.answer
	return c.Catalog.Load()
}

// TestAliveMeanwhile: a process says that it is alive while another call of its own is not
// answered.
func TestAliveMeanwhile(t *testing.T) {
	slow := &slowCatalog{Catalog: &catalog.Mem{}, asked: make(chan struct{}), answer: make(chan struct{})}
	member := layout.EntryOfProcess(layout.ProcessEntry{ID: 7, Until: 1 << 40, Term: 1 << 30})
	if _, err := slow.Apply(0, []layout.Entry{member}); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, func() layout.Catalog { return slow })
	c, err := remote.Dial(context.Background(), d.address(), tcp.Options{Control: 4 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error)
	go func() {
		_, _, err := c.Load()
		loaded <- err
	}()
	<-slow.asked
	for count := uint64(1); count <= 2; count++ {
		all, err := c.KeepAlive(layout.Beat{Member: 7})
		if err != nil || len(all) != 1 || all[0].Count != count {
			t.Errorf("sign of life %d: %v, %v", count, all, err)
		}
	}
	close(slow.answer)
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
