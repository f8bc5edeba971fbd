package channel

import "testing"

// TestPick: which of two slots a READ has found, and whether it is enough to know it.
func TestPick(t *testing.T) {
	g := images{0, 16}
	n := int(slotBytes(g.size))
	fill := func(v, w uint64) []byte {
		both := make([]byte, 2*n)
		for i, version := range []uint64{v, w} {
			if slot := both[i*n : (i+1)*n]; version > 0 {
				slot[16] = byte(version)
				g.put(slot, version, 7)
			}
		}
		return both
	}
	torn := func(both []byte, slot int) []byte {
		both[slot*n+17]++
		return both
	}
	for _, c := range []struct {
		name         string
		both, before []byte
		version      uint64
		ok, decided  bool
	}{
		{"never written", fill(0, 0), nil, 0, true, true},
		{"the first", fill(0, 1), nil, 1, true, true},
		{"both", fill(4, 3), nil, 4, true, true},
		{"the newer one is torn", torn(fill(4, 3), 0), nil, 3, true, false},
		{"and so it stays", torn(fill(4, 3), 0), torn(fill(4, 3), 0), 3, true, true},
		{"it is torn in another way", torn(fill(4, 3), 0), torn(torn(fill(4, 3), 0), 0), 3, true, false},
		{"it was whole before", torn(fill(4, 3), 0), fill(2, 3), 3, true, false},
		{"both are torn", torn(torn(fill(4, 3), 0), 1), nil, 0, false, false},
	} {
		m, ok, decided := g.pick(c.both, c.before)
		if ok != c.ok || decided != c.decided || ok && m.version != c.version {
			t.Errorf("%s: version %d, whole: %v, decided: %v", c.name, m.version, ok, decided)
		}
	}
}
