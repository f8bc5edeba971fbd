package exhaustive

import (
	"fmt"

	"txnode/history"
	"txnode/log"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
)

// evidence looks, after a stop and before recovery, for what recovery may happen to make
// good, but could not if a blade had been lost as well:
//
//   - what a client was told to be committed and has not released what it has written has
//     its log on f+1 blades (what it has only locked, no log tells of);
//   - policy default: a new image on a backup is explained by a log on that blade, or on f+1;
//   - policy ford, of tables without order: an image that is not released yet can be
//     undone from f+1 blades.
func (s *stops) evidence() error {
	logs, err := s.logs(s.victim.session.Coordinator())
	if err != nil {
		return err
	}
	type written struct {
		by  record.TxID
		key history.Key
	}
	told := map[written]bool{}
	for _, t := range s.rec.Txns() {
		for _, o := range t.Ops {
			if o.Kind == history.Write || o.Kind == history.Delete {
				told[written{record.TxID(t.ID), o.Key}] = true
			}
		}
	}
	enough := s.space.Backups() + 1
	return s.blocks(func(a layout.Addr, copies []record.Image) error {
		owner := copies[0].Lock()
		m := copies[0].Meta()
		if record.KeyAt(m.KeyLen())+m.KeyLen() > len(copies[0]) {
			return fmt.Errorf("%v: a key of %d bytes in %d", a, m.KeyLen(), len(copies[0]))
		}
		key := history.Key(record.Hash(m.Table(), copies[0].Key()))
		if told[written{owner, key}] && len(logs[owner]) < enough {
			return fmt.Errorf("%v was acknowledged, has not released %v, and its log is on %d blades: %v",
				owner, a, len(logs[owner]), logs[owner])
		}
		for k, img := range copies {
			t := img.Version()
			if t.Coordinator() != s.victim.session.Coordinator() || owner == 0 || t != owner {
				continue
			}
			if _, err := img.Check(a); err != nil || img.Meta().State() == record.Free {
				continue
			}
			blade := s.space.View().At(a, k).Blade
			switch {
			case (s.conf.policy == occ.PolicyDefault || s.conf.entries > 0) && k > 0 && !logs[t][blade] &&
				len(logs[t]) < enough:
				return fmt.Errorf("copy %d of %v has the image of %v, and blade %d no log of it", k, a, t, blade)
			case s.conf.policy == occ.PolicyFORD && s.conf.entries == 0 && len(logs[t]) < enough:
				return fmt.Errorf("copy %d of %v has the image of %v, whose undo log is on %d blades",
					k, a, t, len(logs[t]))
			}
		}
		return nil
	})
}

// logs tells on which blades a coordinator's transactions have intact log records.
func (w *world) logs(coordinator uint32) (map[record.TxID]map[rdma.BladeID]bool, error) {
	all, err := w.space.Coordinators()
	if err != nil {
		return nil, err
	}
	out := map[record.TxID]map[rdma.BladeID]bool{}
	for _, c := range all {
		if c.ID != coordinator {
			continue
		}
		for b, area := range c.Logs {
			p := w.f.Memory(rdma.BladeID(b))[area.Addr.Off:][:area.Size]
			for at := 0; at < len(p); at += record.LineSize {
				if !w.f.Changed(rdma.BladeID(b), area.Addr.Off+uint64(at)) {
					continue
				}
				r, err := log.Decode(p[at:])
				if err != nil {
					continue
				}
				if out[r.Tx] == nil {
					out[r.Tx] = map[rdma.BladeID]bool{}
				}
				out[r.Tx][rdma.BladeID(b)] = true
			}
		}
	}
	return out, nil
}

// blocks calls fn for every block whose memory has changed in this run.
func (w *world) blocks(fn func(a layout.Addr, copies []record.Image) error) error {
	v := w.space.View()
	return w.everyBlock(func(a layout.Addr, size uint32) error {
		changed := false
		for k := range v.Copies(a) {
			at := v.At(a, k)
			changed = changed || w.f.Changed(at.Blade, at.Off)
		}
		if !changed {
			return nil
		}
		var copies []record.Image
		for k := range v.Copies(a) {
			copies = append(copies, w.image(v.At(a, k), size))
		}
		return fn(a, copies)
	})
}

// everyBlock calls fn for every block that has a copy.
func (w *world) everyBlock(fn func(a layout.Addr, size uint32) error) error {
	l := w.space.Layout()
	for id := range l.Segments {
		g := &l.Segments[id]
		if g.Kind != layout.KindBlocks || g.Placement.N == 0 {
			continue
		}
		size := g.Class.Size()
		for off := uint32(0); off+size <= l.SegmentSize; off += size {
			if err := fn(layout.MakeAddr(layout.SegmentID(id), off), size); err != nil {
				return err
			}
		}
	}
	return nil
}

// image is the first n bytes of a copy.
func (w *world) image(at rdma.RemoteAddr, n uint32) record.Image {
	return record.Image(w.f.Memory(at.Blade)[at.Off:][:n])
}
