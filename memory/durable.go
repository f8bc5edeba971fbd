package memory

import (
	"txnode/memory/layout"
	"txnode/rdma"
)

// A database whose commits survive the loss of power keeps a number in its catalog
// while it is open: the generation of the last checkpoint. What transactions wrote
// whose log records carry a lower generation is durable on every replica; what
// those of this generation and later wrote may be durable, lost or torn, line by
// line, and is in their log records. Zero: the database was closed, and all of it is
// durable, or nobody has promised anything.

// Checkpoint returns the generation of the last checkpoint, 0: none.
func (s *store) Checkpoint() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layout.Checkpoint
}

// durable reports whether what the control path writes to the blades has to survive a loss
// of power: also while who has opened the database promises nothing, but what an earlier
// one has promised is not fulfilled.
func (s *store) durable() bool {
	return s.opts.Durable || s.Checkpoint() != 0
}

// flushBuilding makes durable whatever has been placed in the copies of segments that are
// being built in a view.
func flushBuilding(c *rdma.Coro, v *layout.View, ids []layout.SegmentID) error {
	var b rdma.Batch
	for i, id := range ids {
		p := v.Placement(id)
		for _, r := range p.Replicas[p.N:p.Written()] {
			b.Flush(rdma.RemoteAddr{Blade: r.Blade, Key: v.Key(r.Blade), Off: r.Base}, v.Size)
		}
		if b.Len() >= flushSegments || i == len(ids)-1 && b.Len() > 0 {
			if err := c.Do(&b); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return nil
}

// SetCheckpoint records that everything that log records of generations below
// this one have installed is durable; 0: that everything is. The caller has
// flushed it: see FlushSegments.
func (s *store) SetCheckpoint(generation uint32) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.commit(layout.EntryOfCheckpoint(generation)); err != nil {
			return err
		}
		s.layout.Checkpoint = generation
		return nil
	})
}

// flushSegments is how many segments FlushSegments flushes in one round trip.
const flushSegments = 32

// FlushSegments makes durable whatever has been placed in the segments of the given
// kinds, on every replica, those that are being built included: they may be full ones
// when what they have is asked for.
func (s *store) FlushSegments(c *rdma.Coro, kinds ...layout.SegmentKind) error {
	l, v := s.Layout(), s.View()
	var b rdma.Batch
	for id := range l.Segments {
		wanted := false
		for _, k := range kinds {
			wanted = wanted || l.Segments[id].Kind == k
		}
		if p := v.Placement(layout.SegmentID(id)); wanted && id > 0 {
			for _, r := range p.Replicas[:p.Written()] {
				b.Flush(rdma.RemoteAddr{Blade: r.Blade, Key: v.Key(r.Blade), Off: r.Base}, l.SegmentSize)
			}
		}
		if b.Len() >= flushSegments || id == len(l.Segments)-1 && b.Len() > 0 {
			if err := c.Do(&b); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return nil
}
