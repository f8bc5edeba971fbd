package index

import (
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Space is what a lookup needs of memory.Space.
type Space interface {
	ViewOn(t *rdma.Thread) *layout.View
}

const (
	// maxLooks bounds how many blocks a lookup reads that do not lead further.
	maxLooks = 64
	// maxHops is how many blocks it follows at most.
	maxHops = 1024
)

// Lookup reads the node of a table's index that is responsible for a place, outside of
// transactions. One that is locked serves as well: what it links was committed. The node lies in
// q's buffer, of the size of ix.NodeClass; q's view is replaced by a newer one if need be. If the
// index does not have the level, n is the root's block.
func Lookup(c *rdma.Coro, s Space, ix Index, table uint16, q *Query, p Place) (n Node, err error) {
	th := c.Thread()
	size := ix.NodeClass().Size()
	var b rdma.Batch
	n.Addr = ix.Find(p).Addr
	for looks, hops := 0, 0; looks < maxLooks && hops < maxHops; hops++ {
		n.Body = nil
		if !q.View.Valid(n.Addr) {
			if v := s.ViewOn(th); v.Valid(n.Addr) {
				q.View = v
			} else if !v.Gone(n.Addr) {
				if x, ok := s.(interface {
					Missing(v *layout.View, a layout.Addr) error
				}); ok { // another process may have added the segment
					if err := x.Missing(v, n.Addr); err != nil {
						return n, fmt.Errorf("index: table %d: node %v: %w", table, n.Addr, err)
					}
				}
				if q.View = s.ViewOn(th); !q.View.Valid(n.Addr) && !q.View.Gone(n.Addr) {
					return n, fmt.Errorf("%w: table %d: node %v is in no segment", ErrCorrupt, table, n.Addr)
				}
			}
		}
		if q.View.Valid(n.Addr) { // else a cached node led to one that was freed
			b.Reset()
			if n.Addr == ix.Root() {
				b.Read(q.View.At(n.Addr, 0), q.Local, record.LineSize)
			} else {
				b.Read(q.View.At(n.Addr, 0), q.Local, min(size, q.View.Class(n.Addr).Size()))
			}
			if err := c.Do(&b); err != nil {
				return n, err
			}
			n.Body = NodeIn(th.Bytes(q.Local, size), n.Addr, table)
		}
		if n.Body == nil { // it may be being written
			if looks++; looks > 2 {
				c.Yield()
			}
			if looks%8 != 0 && q.View.Valid(n.Addr) {
				continue
			}
		}
		hop, step, err := ix.Follow(p, n, hops)
		if err != nil || step == Here {
			return n, err
		}
		n.Addr = hop.Addr
	}
	return n, fmt.Errorf("%w: table %d: no node is responsible for the keys from %.64x on; the last block was %v",
		ErrBusy, table, p.Key, n.Addr)
}

// NodeIn returns the value of a block that was read, if that is a node of a table's index, or nil:
// it is something else, or being written.
func NodeIn(img record.Image, a layout.Addr, table uint16) []byte {
	if _, err := img.Check(a); err != nil || img.Meta().State() != record.Node || img.Meta().Table() != table {
		return nil
	}
	return img.Value()
}
