package catalog

import (
	"context"
	"sync"

	"txnode/memory/layout"
)

// broadcast wakes all that wait for a change. The zero broadcast is ready for use; the lock of the
// catalog guards it.
type broadcast struct{ next chan struct{} }

// wait returns a channel that the next change closes.
func (b *broadcast) wait() <-chan struct{} {
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// tell says that there was a change.
func (b *broadcast) tell() {
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// await is layout.Catalog.Await: now is the revision, or why there is none, and is
// called under the lock.
func await(ctx context.Context, mu *sync.Mutex, moved *broadcast, after layout.Revision,
	now func() (layout.Revision, error)) (layout.Revision, error) {
	for {
		mu.Lock()
		rev, err := now()
		next := moved.wait()
		mu.Unlock()
		if err != nil || rev > after {
			return rev, err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
