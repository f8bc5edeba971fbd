//go:build !linux

package region

// barrier without membarrier(2): lanes fence themselves.
type barrier struct{ asymmetric bool }

func (b *barrier) init() {}
func (b *barrier) all()  {}
