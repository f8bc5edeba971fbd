package recovery

import (
	"fmt"
	"math"

	"txnode/index"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// half is a block that is nobody's and free on the primary, but not on another copy: who
// was freeing it has died, or had its lock on the blade of the primary, and the blade
// was lost.
type half struct {
	addr layout.Addr
	copy int
}

// freeHalves makes such blocks free on all copies, and gives them to the pool, unless the
// sweep is alone.
func (s *Sweeper) freeHalves(c *rdma.Coro, v *layout.View, halves []half) error {
	if len(halves) == 0 {
		return nil
	}
	u, err := newUnlocker(c, &s.o, func(table uint16) (index.Finder, error) { return s.open(c, table) })
	if err != nil {
		return err
	}
	defer u.close()
	for _, h := range halves {
		mine, err := s.freeHalf(u, v, h)
		if err := s.spare(u.table, err); err != nil {
			return err
		}
		s.left = s.left || !mine // who is at it need not free it
	}
	return nil
}

// freeHalf is freeHalves of one. mine: nobody else is at it. However it ends, also by a
// panic, the right to resolve the block ends with it: else no sweep would ever have it.
func (s *Sweeper) freeHalf(u *unlocker, v *layout.View, h half) (mine bool, err error) {
	var r *memory.Resolution
	if s.o.Alone {
		r = s.o.Space.BeginResolve(h.addr, s.o.By)
	} else {
		r = s.strays.Resolve(h.addr, s.o.By)
	}
	if r == nil {
		return false, nil
	}
	freed := false
	defer func() { r.End(freed && !s.o.Alone, math.MaxUint32) }()
	img, err := u.readCopy(v, h.addr, h.copy)
	if err != nil {
		return true, err
	}
	owner := img.Version()
	if owner == 0 { // it was never used, and who was about to has come to the guard alone
		owner = img.Guard().Owner()
	}
	if isFree(img) || !s.known(owner.Coordinator()) {
		return true, nil
	}
	if s.o.Alone || img.Meta().State().Valued() {
		if ok, err := u.unlinked(v, h.addr, img); !ok || err != nil {
			return true, err
		}
	}
	img.SetGuard(record.HeldBy(owner))
	if _, err := u.reclaim(v, h.addr, img); err != nil {
		return true, err
	}
	if freed = true; s.o.Alone { // who wants a block finds it by its header
		s.Report.Freed++
	} else {
		s.Report.Strays++
	}
	return true, nil
}

// freeCopies makes those of the blocks that were looked at free on all copies which are free
// on the primary: who was freeing one may have had its lock on a blade that was lost, and
// have died with his process. The caller is the only user of the database; beside others,
// readAgain does it. With one backup it cannot be: what is promoted is alone.
func (s *Sweeper) freeCopies(c *rdma.Coro, size, stride uint32, x seen) error {
	v := s.o.Space.ViewOn(c.Thread())
	first := layout.MakeAddr(s.seg, s.block*size)
	if s.o.Space.Backups() < 2 || len(x.free) == 0 || v.Copies(first) < 2 {
		return nil
	}
	t := c.Thread()
	buf, err := t.Alloc(int(x.n * stride))
	if err != nil {
		return fmt.Errorf("recovery: sweeping: %w", err)
	}
	var halves []half
	for k := 1; k < v.Copies(first) && err == nil; k++ {
		err = readHeads(c, v, buf, first, k, size, stride, x.n)
		for _, f := range x.free {
			i := (f.Addr.Offset()/size - s.block) * stride
			if err == nil && !isFree(record.Image(t.Bytes(buf+i, record.LineSize))) {
				halves = append(halves, half{f.Addr, k})
			}
		}
	}
	t.Free(buf, int(x.n*stride))
	if err != nil {
		return err
	}
	return s.freeHalves(c, v, halves)
}
