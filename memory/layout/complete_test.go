package layout

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"txnode/rdma"
)

// TestEarlierVersions: what earlier releases have written of all kinds of entries is read as
// what is written now.
func TestEarlierVersions(t *testing.T) {
	seen := map[form]bool{}
	compare := func(kind entryKind, earlier, now Entry, decode func(*payload) any) {
		t.Helper()
		var got [2]any
		for i, e := range []Entry{earlier, now} {
			p, err := unseal(e, kind)
			if err != nil {
				t.Fatalf("%x: %v", e.Value, err)
			}
			d := &payload{key: e.Key, p: p}
			if got[i] = decode(d); d.err() != nil {
				t.Fatalf("%x: %v", e.Value, d.err())
			}
		}
		if earlier.Key != now.Key || !reflect.DeepEqual(got[0], got[1]) {
			t.Errorf("%x is read as %+v, and %x as %+v", earlier.Value, got[0], now.Value, got[1])
		}
		seen[form{kind, earlier.Value[1]}] = true
	}
	for n := range 1 << 8 {
		pick := func(bit int) int { return n >> bit & 1 }
		l := &Layout{
			Geometry: Geometry{Backups: 2, SegmentSize: 1 << 20, Shared: pick(0) > 0}, Formatted: pick(1) > 0,
			Epoch: 4, Opened: Epoch(3 * pick(2)),
		}
		compare(entryGeometry, earlierGeometry(l), l.geometryEntry(), func(d *payload) any {
			var x Layout
			x.decodeGeometry(d)
			return x
		})
		compare(entryState, earlierState(l, 3, 2, 1), l.EntryOfState(3, 2, 1), func(d *payload) any {
			var x Layout
			c := x.decodeState(d)
			return fmt.Sprint(c, x)
		})

		b := Blade{
			Size: 1 << 20, Used: 3, State: BladeState(pick(0)), Key: 5, Incarnation: 7, Leaving: pick(1) > 0,
			Told: Revision(9 * pick(2)),
		}
		b.Clean, b.Domain = Places("\x05"[:pick(3)]), "rack"[:4*pick(4)]
		compare(entryBlade, earlierBlade(2, b), EntryOfBlade(2, b), func(d *payload) any { return decodeBlade(d) })

		s := Segment{Kind: KindBlocks, Class: 3, Row: 2, Backed: PartUnit * uint32(pick(0)), Vacant: pick(1) > 0}
		if !s.Vacant {
			s.Owner = 6 * uint32(pick(2))
			s.Placement = Placement{N: 1, Building: 1, Replicas: [MaxReplicas]Replica{{1, 2}, {3, 4}}}
		}
		compare(entrySegment, earlierSegment(4, s), EntryOfSegment(4, s), func(d *payload) any {
			return decodeSegment(d)
		})

		x := Table{
			ID: 3, Name: "t", Root: 640, Options: []byte("o"), State: TableState(n % 3),
			Nodes: Class(9 * pick(4)), MaxKey: uint16(20 * pick(4)),
		}
		compare(entryTable, earlierTable(x), EntryOfTable(x), func(d *payload) any { return decodeTable(d) })

		c := CoordinatorEntry{
			ID: 7, Slot: 3, Until: 8 * int64(pick(0)), By: 4 * uint32(pick(1)),
			Recovering: pick(1) > 0, Promoted: pick(1)*pick(2) > 0,
		}
		c.Closing, c.FewLogs, c.LogUsed = pick(2) > 0, pick(3) > 0, LogStep*uint32(pick(4))
		c.Claim, c.Term, c.Process = uint32(pick(5)), 6*int64(pick(6)), 7*uint32(pick(7))
		compare(entryCoordinator, earlierCoordinator(c), EntryOfCoordinator(c), func(d *payload) any {
			return decodeCoordinator(d)
		})

		p := ProcessEntry{ID: 9, Until: 2 * int64(pick(0)), Term: 3 * int64(pick(1)), Asks: 4 * uint64(pick(2))}
		compare(entryProcess, earlierProcess(p), EntryOfProcess(p), func(d *payload) any { return decodeProcess(d) })
	}
	for _, f := range slices.Concat(slices.Collect(maps.Keys(lacking)), []form{
		{entryGeometry, 1}, {entryState, 1}, {entryCoordinator, 1}, {entryBlade, 3}, {entryBlade, 4}, {entrySegment, 4},
	}) {
		if !seen[f] {
			t.Errorf("no entry of %+v was read", f)
		}
	}
}

// What follows are the encoders of earlier releases.

func earlierBlade(id rdma.BladeID, b Blade) Entry {
	p := binary.LittleEndian.AppendUint64(nil, b.Size)
	p = binary.LittleEndian.AppendUint32(p, b.Used)
	p = append(p, byte(b.State))
	p = binary.LittleEndian.AppendUint32(p, uint32(b.Key))
	p = binary.LittleEndian.AppendUint64(p, b.Incarnation)
	if b.Clean != "" || b.Told != 0 || b.Domain != "" {
		version := uint8(4)
		if b.Told != 0 || b.Domain != "" {
			version, p = 5, binary.LittleEndian.AppendUint64(p, uint64(b.Told))
		}
		p = append(p, 0)
		if b.Leaving {
			p[len(p)-1] = 1
		}
		p = binary.LittleEndian.AppendUint32(p, uint32(len(b.Clean)))
		p = append(p, b.Clean...)
		if b.Domain != "" {
			version, p = 6, append(append(p, byte(len(b.Domain))), b.Domain...)
		}
		return sealAs(version, KeyOf(prefixBlade, uint32(id)), entryBlade, p)
	}
	if b.Leaving {
		return sealAs(3, KeyOf(prefixBlade, uint32(id)), entryBlade, p)
	}
	return sealAs(2, KeyOf(prefixBlade, uint32(id)), entryBlade, p)
}

func earlierSegment(id SegmentID, s Segment) Entry {
	p := []byte{byte(s.Kind), byte(s.Class)}
	p = binary.LittleEndian.AppendUint32(p, s.Row)
	n := s.Placement.Written() + int(s.Placement.Lost)
	p = append(p, s.Placement.N|s.Placement.Building<<copiesBits|s.Placement.Lost<<(2*copiesBits))
	for _, r := range s.Placement.Replicas[:n] {
		p = binary.LittleEndian.AppendUint16(p, uint16(r.Blade))
		p = binary.LittleEndian.AppendUint64(p, r.Base)
	}
	if s.Vacant {
		p = binary.LittleEndian.AppendUint32(p, s.Backed)
		return sealAs(4, KeyOf(prefixSegment, uint32(id)), entrySegment, p)
	}
	if s.Owner != 0 {
		p = binary.LittleEndian.AppendUint32(p, s.Backed)
		p = binary.LittleEndian.AppendUint32(p, s.Owner)
		return sealAs(3, KeyOf(prefixSegment, uint32(id)), entrySegment, p)
	}
	if s.Backed == 0 {
		return sealAs(1, KeyOf(prefixSegment, uint32(id)), entrySegment, p)
	}
	return sealAs(2, KeyOf(prefixSegment, uint32(id)), entrySegment, binary.LittleEndian.AppendUint32(p, s.Backed))
}

func earlierTable(t Table) Entry {
	p := binary.LittleEndian.AppendUint64(nil, uint64(t.Root))
	p = binary.LittleEndian.AppendUint16(p, uint16(len(t.Name)))
	p = append(p, t.Name...)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(t.Options)))
	p = append(p, t.Options...)
	if t.InBlocks() {
		p = append(p, byte(t.State), byte(t.Nodes))
		return sealAs(3, KeyOf(prefixTable, uint32(t.ID)), entryTable, binary.LittleEndian.AppendUint16(p, t.MaxKey))
	}
	if t.State == TableLive {
		return sealAs(1, KeyOf(prefixTable, uint32(t.ID)), entryTable, p)
	}
	return sealAs(2, KeyOf(prefixTable, uint32(t.ID)), entryTable, append(p, byte(t.State)))
}

func earlierCoordinator(c CoordinatorEntry) Entry {
	p := binary.LittleEndian.AppendUint32(nil, c.Slot)
	version := uint8(1)
	if c.Until != 0 || c.Recovering || c.Closing || c.FewLogs || c.LogUsed != 0 || c.Claim != 0 || c.Term != 0 ||
		c.Process != 0 {
		p = binary.LittleEndian.AppendUint64(p, uint64(c.Until))
		p = append(p, 0)
		if c.Recovering {
			p[len(p)-1] = 1
		}
		if c.Promoted {
			p[len(p)-1] = 2
		}
		if c.Closing {
			p[len(p)-1] |= 4
		}
		if c.FewLogs {
			p[len(p)-1] |= 8
		}
		p = binary.LittleEndian.AppendUint32(p, c.By)
		if c.LogUsed != 0 || c.Claim != 0 || c.Term != 0 || c.Process != 0 {
			p = binary.LittleEndian.AppendUint32(p, c.LogUsed)
		}
		if c.Claim != 0 || c.Term != 0 || c.Process != 0 {
			version, p = 2, binary.LittleEndian.AppendUint32(p, c.Claim)
		}
		if c.Term != 0 || c.Process != 0 {
			version, p = 3, binary.LittleEndian.AppendUint64(p, uint64(c.Term))
		}
		if c.Process != 0 {
			version, p = 4, binary.LittleEndian.AppendUint32(p, c.Process)
		}
	}
	return sealAs(version, KeyOf(PrefixCoordinator, c.ID), entryCoordinator, p)
}

func earlierProcess(p ProcessEntry) Entry {
	v := binary.LittleEndian.AppendUint64(nil, uint64(p.Until))
	if p.Term == 0 && p.Asks == 0 {
		return sealAs(1, KeyOf(prefixProcess, p.ID), entryProcess, v)
	}
	v = binary.LittleEndian.AppendUint64(v, uint64(p.Term))
	if p.Asks == 0 {
		return sealAs(2, KeyOf(prefixProcess, p.ID), entryProcess, v)
	}
	return sealAs(3, KeyOf(prefixProcess, p.ID), entryProcess, binary.LittleEndian.AppendUint64(v, p.Asks))
}

func earlierGeometry(l *Layout) Entry {
	p := append([]byte(nil), l.UUID[:]...)
	p = append(p, byte(l.Backups))
	p = binary.LittleEndian.AppendUint32(p, l.SegmentSize)
	p = binary.LittleEndian.AppendUint32(p, l.LogArea)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(l.Blades)))
	if l.Shared {
		p = append(p, 1)
	}
	return sealAs(1, keyGeometry, entryGeometry, p)
}

func earlierState(l *Layout, segments, tables, coordinators int) Entry {
	var p []byte
	if l.Formatted {
		p = append(p, 1)
	} else {
		p = append(p, 0)
	}
	p = binary.LittleEndian.AppendUint32(p, uint32(l.Epoch))
	p = binary.LittleEndian.AppendUint32(p, l.NextCoordinator)
	p = binary.LittleEndian.AppendUint32(p, uint32(segments))
	p = binary.LittleEndian.AppendUint32(p, uint32(tables))
	p = binary.LittleEndian.AppendUint32(p, uint32(coordinators))
	if l.Opened != 0 {
		p = binary.LittleEndian.AppendUint32(p, uint32(l.Opened))
	}
	return sealAs(1, keyState, entryState, p)
}
