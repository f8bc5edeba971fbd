package catalogtest

import (
	"context"
	"sync/atomic"

	"txnode/memory"
	"txnode/memory/layout"
)

// Unheard is a catalog of which a process hears nothing while Away is set: what it asks for fails
// with memory.ErrAway, and changes nothing. Safe for concurrent use.
type Unheard struct {
	layout.Catalog
	Away atomic.Bool
}

// Load is that of the catalog.
func (c *Unheard) Load() ([]layout.Entry, layout.Revision, error) {
	if c.Away.Load() {
		return nil, 0, memory.ErrAway
	}
	return c.Catalog.Load()
}

// Apply is that of the catalog.
func (c *Unheard) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if c.Away.Load() {
		return 0, memory.ErrAway
	}
	return c.Catalog.Apply(rev, changes)
}

// Revision is that of the catalog.
func (c *Unheard) Revision() (layout.Revision, error) {
	if c.Away.Load() {
		return 0, memory.ErrAway
	}
	return c.Catalog.Revision()
}

// KeepAlive is that of the catalog.
func (c *Unheard) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	if c.Away.Load() {
		return nil, memory.ErrAway
	}
	return c.Catalog.KeepAlive(b)
}

// Await is that of the catalog. What it has heard of does not arrive if nothing is heard of it by
// then.
func (c *Unheard) Await(ctx context.Context, rev layout.Revision) (layout.Revision, error) {
	if c.Away.Load() {
		return 0, memory.ErrAway
	}
	now, err := c.Catalog.Await(ctx, rev)
	if c.Away.Load() {
		return 0, memory.ErrAway
	}
	return now, err
}
