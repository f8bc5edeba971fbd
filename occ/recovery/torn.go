package recovery

import (
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A process that is killed in the middle of a WRITE leaves the first words of a line. If
// that was the placeholder of an insert, nothing leads to the block, no lock says whose
// it is, and no log tells of it: its guard, the last word of the line, is still that of
// the image before, which was free. Where nobody is at work a guard that is free always
// carries the version of its image, so this one shows.

// torn reports whether the first line of a block's primary may be such a half of a
// placeholder.
func torn(line record.Image) bool { return !line.Guard().Held() && !line.Stable() }

// clearTorn makes those of the blocks free that are halves of placeholders: the header
// that arrived says that the block is free, or all backups do. Any other is damage, and
// not touched. The caller is the only user of the database.
func (s *Sweeper) clearTorn(c *rdma.Coro, blocks []layout.Addr, class layout.Class) error {
	t := c.Thread()
	const size = layout.MaxReplicas * record.LineSize
	buf, err := t.Alloc(size)
	if err != nil {
		return fmt.Errorf("recovery: sweeping: %w", err)
	}
	defer t.Free(buf, size)
	v := s.o.Space.ViewOn(c.Thread())
	var b rdma.Batch
	for _, a := range blocks {
		copies := v.Copies(a)
		b.Reset()
		for k := range copies {
			b.Read(v.At(a, k), buf+uint32(k)*record.LineSize, record.LineSize)
		}
		if err := c.Do(&b); err != nil {
			return fmt.Errorf("recovery: sweeping: %w", err)
		}
		line := record.Image(t.Bytes(buf, record.LineSize))
		free := line.Meta().State() == record.Free || copies > 1
		for k := 1; k < copies; k++ {
			backup := record.Image(t.Bytes(buf+uint32(k)*record.LineSize, record.LineSize))
			free = free && backup.Meta().State() == record.Free && backup.Stable()
		}
		id := line.Version()
		if !free || id.Coordinator() == 0 || s.o.Space.Registered(id.Coordinator()) ||
			id.Coordinator() >= s.o.Space.Layout().NextCoordinator {
			continue
		}
		line.PutFree(a, id, 0, class, s.o.Space.CountFree(a))
		b.Reset()
		for k := range v.Written(a) {
			b.Write(v.At(a, k), buf, record.LineSize)
		}
		if err := c.Do(&b); err != nil {
			return fmt.Errorf("recovery: sweeping: %w", err)
		}
		s.Report.Freed++
	}
	b.Reset()
	if err := c.Fence(rdma.FenceThread, 0, &b); err != nil {
		return fmt.Errorf("recovery: sweeping: %w", err)
	}
	return nil
}
