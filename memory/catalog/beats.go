package catalog

import (
	"fmt"
	"slices"
	"sync"

	"txnode/memory"
	"txnode/memory/layout"
)

// beats are the signs of life of members. They are kept in memory, and have a lock of their own: a
// member that is alive says so while a change waits for a disk. The zero beats is ready for use.
type beats struct {
	mu sync.Mutex
	of map[uint32]layout.Beat // of those that are registered
}

// changed takes note of which members changes register, and of which no more.
func (b *beats) changed(changes []layout.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range changes {
		id, ok := layout.MemberOf(e.Key)
		switch {
		case !ok:
		case e.Value == nil:
			delete(b.of, id)
		default:
			if b.of == nil {
				b.of = map[uint32]layout.Beat{}
			}
			if _, ok := b.of[id]; !ok {
				b.of[id] = layout.Beat{Member: id}
			}
		}
	}
}

// keepAlive is layout.Catalog.KeepAlive.
func (b *beats) keepAlive(x layout.Beat) ([]layout.Beat, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.Member != 0 {
		was, ok := b.of[x.Member]
		if !ok {
			return nil, fmt.Errorf("%w: process %d is registered no more", memory.ErrEnded, x.Member)
		}
		x.Count, x.Knows, x.Rested = was.Count+1, max(x.Knows, was.Knows), max(x.Rested, was.Rested)
		b.of[x.Member] = x
	}
	all := make([]layout.Beat, 0, len(b.of))
	for _, x := range b.of {
		all = append(all, x)
	}
	slices.SortFunc(all, func(x, y layout.Beat) int { return int(x.Member) - int(y.Member) })
	return all, nil
}
