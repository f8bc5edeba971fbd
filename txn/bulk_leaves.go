package txn

import (
	"fmt"
	"slices"

	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
)

// nodesAtOnce is how many nodes of an index a transaction of bulk writes at most.
const nodesAtOnce = 128

// leaves is index of a table of hashes whose index is of nodes.
func (l *bulk) leaves(t *occ.Table) (root layout.Addr, err error) {
	list, err := l.latest(t, l.hashes[t.ID])
	delete(l.hashes, t.ID)
	if err == nil {
		root, err = l.build(t, tree.LeafClass, list)
	}
	if err != nil {
		return 0, fmt.Errorf("the index of table %q: %w", t.Name, err)
	}
	return root, l.free(t)
}

// build makes the nodes of an index of hashes, of a list that is in order. After an error they are
// strays.
func (l *bulk) build(t *occ.Table, leaf layout.Class, list []tree.Hashed) (root layout.Addr, err error) {
	nodes, g := []occ.Remnant(nil), tree.HashesOf(leaf, l.w.db.treeOptions())
	root, err = tree.Build(g, list, func(class layout.Class, n int,
		image func(dst []byte, i int, at []layout.Addr) []byte) ([]layout.Addr, error) {
		at := make([]layout.Addr, n)
		for to := n; to > 0; {
			from := max(to-nodesAtOnce, 0)
			if err := l.write(t, class, from, to, at, image, &nodes); err != nil {
				return nil, err
			}
			to = from
		}
		return at, nil
	})
	if err != nil {
		l.strays[t.ID] = append(l.strays[t.ID], nodes...)
	}
	return root, err
}

// write writes the nodes from, ..., to-1, by several transactions if the arena has no room for
// them, and notes where they are.
func (l *bulk) write(t *occ.Table, class layout.Class, from, to int, at []layout.Addr,
	image func(dst []byte, i int, at []layout.Addr) []byte, nodes *[]occ.Remnant) error {
	list := make([]occ.BulkRecord, to-from)
	for i := range list { // the last ones first
		list[i] = occ.BulkRecord{Table: t, Class: class}
	}
	next := to
	return inHalves(list, func(list []occ.BulkRecord) error {
		err := l.w.Update(l.ctx, func(tx *Tx) error {
			if err := l.w.db.space.Alone(); err != nil {
				return err
			}
			for i := range list { // of an attempt before
				l.stray(list[i])
				list[i] = occ.BulkRecord{Table: t, Class: class}
			}
			return tx.note(tx.o.WriteNodes(list, func(i int) []byte {
				if i == 0 {
					for k := range list {
						at[next-1-k] = list[k].Addr
					}
				}
				return image(nil, next-1-i, at)
			}))
		})
		if err != nil {
			for i := range list {
				l.stray(list[i])
				list[i].Addr = 0
			}
			return err
		}
		next -= len(list)
		for _, x := range list {
			*nodes = append(*nodes, occ.Remnant{Addr: x.Addr, Class: x.Class, Version: x.Version})
		}
		return nil
	}, ErrTooLarge)
}

// latest brings a list in order, and leaves out all but the last record of each key. The blocks of
// the others become strays.
func (l *bulk) latest(t *occ.Table, list []tree.Hashed) ([]tree.Hashed, error) {
	slices.SortFunc(list, tree.Hashed.Compare)
	db := l.w.db
	kept := list[:0]
	for i := 0; i < len(list); {
		n := i + 1
		for n < len(list) && list[n].Hash() == list[i].Hash() {
			n++
		}
		first := len(kept)
		kept = append(kept, list[i])
		for _, x := range list[i+1 : n] {
			if l.ctx.Err() != nil {
				return nil, canceled(l.ctx)
			}
			twice := false
			for k := first; k < len(kept) && !twice; k++ {
				var out occ.Remnant
				db.ctlMu.Lock()
				err := db.withBlades(func(c *rdma.Coro) (err error) {
					out, err = earlier(c, db.space, kept[k].Addr(), x.Addr())
					return err
				})
				db.ctlMu.Unlock()
				if err != nil {
					return nil, err
				}
				if twice = out.Addr != 0; !twice {
					continue
				}
				l.strays[t.ID] = append(l.strays[t.ID], out)
				if out.Addr == kept[k].Addr() {
					kept[k] = x
				}
			}
			if !twice {
				kept = append(kept, x)
			}
		}
		slices.SortFunc(kept[first:], tree.Hashed.Compare)
		i = n
	}
	return kept, nil
}
