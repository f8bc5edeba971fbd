package catalog

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"

	"txnode/memory"
	"txnode/memory/layout"
)

// Mem is a catalog in memory. It outlives Close, so that what was attached to it
// can be attached again. The zero Mem is empty and ready for use.
type Mem struct {
	mu      sync.Mutex
	id      layout.Identity // drawn when it is asked for
	rev     layout.Revision
	moved   broadcast
	beats   beats
	entries map[string][]byte
}

var _ layout.Catalog = (*Mem)(nil)

// Name returns "in memory".
func (m *Mem) Name() string { return "in memory" }

// Identity returns a number that this Mem alone has.
func (m *Mem) Identity() (layout.Identity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == (layout.Identity{}) {
		_, _ = rand.Read(m.id[:]) // never fails
	}
	return m.id, nil
}

// Clone returns a catalog with the same entries, at the same revision.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &Mem{id: m.id, rev: m.rev, entries: make(map[string][]byte, len(m.entries))}
	for k, v := range m.entries {
		n.entries[k] = slices.Clone(v)
		n.beats.changed([]layout.Entry{{Key: k, Value: v}})
	}
	return n
}

// Load returns a copy of the entries.
func (m *Mem) Load() ([]layout.Entry, layout.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]string, 0, len(m.entries))
	for k := range m.entries {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := make([]layout.Entry, len(keys))
	for i, k := range keys {
		out[i] = layout.Entry{Key: k, Value: slices.Clone(m.entries[k])}
	}
	return out, m.rev, nil
}

// Apply makes the changes.
func (m *Mem) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rev != m.rev {
		return 0, fmt.Errorf("%w: at revision %d, not %d", memory.ErrRevision, m.rev, rev)
	}
	if m.entries == nil {
		m.entries = map[string][]byte{}
	}
	for _, e := range changes {
		if e.Value == nil {
			delete(m.entries, e.Key)
		} else {
			m.entries[e.Key] = append([]byte{}, e.Value...)
		}
	}
	m.rev++
	m.beats.changed(changes)
	m.moved.tell()
	return m.rev, nil
}

// Revision returns the revision.
func (m *Mem) Revision() (layout.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rev, nil
}

// Await waits for a change.
func (m *Mem) Await(ctx context.Context, after layout.Revision) (layout.Revision, error) {
	return await(ctx, &m.mu, &m.moved, after, func() (layout.Revision, error) { return m.rev, nil })
}

// KeepAlive notes a sign of life.
func (m *Mem) KeepAlive(b layout.Beat) ([]layout.Beat, error) { return m.beats.keepAlive(b) }

// Close does nothing.
func (m *Mem) Close() error { return nil }
