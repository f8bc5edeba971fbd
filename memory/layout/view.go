package layout

import "txnode/rdma"

// MaxReplicas is the largest number of copies of a segment: f = 2 backups.
const MaxReplicas = 3

// Replica is where one copy of a segment is.
type Replica struct {
	Blade rdma.BladeID
	Base  uint64 // offset in the blade's region of the segment's first byte
}

// Placement is where the copies of a segment are. In Replicas the full copies
// come first, the primary as the first of them; then the copies that are being
// built; then places of copies that died with their blades, the last to die first.
type Placement struct {
	N        uint8 // full copies; 0: the segment does not exist, or is lost
	Building uint8 // copies that are written like backups, and not complete yet
	Lost     uint8 // copies that died and were not replaced: for error messages
	Replicas [MaxReplicas]Replica
}

// Written is how many copies are written.
func (p *Placement) Written() int { return int(p.N + p.Building) }

// dropped makes a copy that is written a lost one.
func (p *Placement) dropped(i int) {
	r := p.Replicas[i]
	w := p.Written()
	copy(p.Replicas[i:w-1], p.Replicas[i+1:w])
	p.Replicas[w-1] = r
	if i < int(p.N) {
		p.N--
		p.Lost++
		return
	}
	p.Building-- // it never was a copy
	copy(p.Replicas[w-1:], p.Replicas[w:])
	p.Replicas[MaxReplicas-1] = Replica{}
}

// Remove takes a copy that is written out of the list: it is not needed any more.
func (p *Placement) Remove(i int) {
	if i < int(p.N) {
		p.N--
	} else {
		p.Building--
	}
	copy(p.Replicas[i:], p.Replicas[i+1:])
	p.Replicas[MaxReplicas-1] = Replica{}
}

// View is the segment map of one epoch. It is immutable: a transaction takes one
// view and uses it from begin to end.
type View struct {
	Epoch Epoch
	segs  []segment
	Keys  []rdma.Key
	Size  uint32 // of a segment, in bytes
	down  []bool // by blade; nil: all are up
	ups   int
	freed []uint64 // by segment; nil: of none. See Freed
	// leaving is by blade; nil: none is. staying is how many blades are up and do not leave.
	leaving []bool
	staying int
}

// segment is a Placement as the data path wants it: with the access keys, in one
// cache line.
type segment struct {
	copies    [MaxReplicas]rdma.RemoteAddr // of the first byte
	n         uint32                       // full ones
	w         uint32                       // those that are written
	exists    bool                         // it has a copy, and is not leaving
	locksLost bool                         // see LocksLost
	mine      bool                         // this process hands out what is free in it
	gone      bool                         // see Gone
	class     Class                        // of its blocks
	_         [3]byte                      // to 64 bytes
}

// NewView makes a view. segs is indexed by SegmentID and keys by BladeID; the
// view keeps the latter. Its segments are of the largest size, and their blocks may be of any class.
func NewView(e Epoch, segs []Placement, keys []rdma.Key) *View {
	v := &View{
		Epoch: e, segs: make([]segment, len(segs)), Keys: keys, Size: MaxSegmentSize,
		ups: len(keys), staying: len(keys),
	}
	for i := range segs {
		p, s := &segs[i], &v.segs[i]
		s.n, s.w, s.exists, s.class = uint32(p.N), uint32(p.Written()), p.N > 0, NumClasses-1
		for k, r := range p.Replicas[:p.Written()] {
			s.copies[k] = rdma.RemoteAddr{Blade: r.Blade, Off: r.Base}
			if int(r.Blade) < len(keys) {
				s.copies[k].Key = keys[r.Blade]
			}
		}
	}
	return v
}

// View is the view of a layout's epoch, for the process that hands out what is free in those
// segments for which mine is true.
func (l *Layout) View(mine func(SegmentID) bool) *View {
	segs := make([]Placement, len(l.Segments))
	for i := range l.Segments {
		segs[i] = l.Segments[i].Placement
	}
	keys := make([]rdma.Key, len(l.Blades))
	for b := range l.Blades {
		keys[b] = l.Blades[b].Key
	}
	v := NewView(l.Epoch, segs, keys)
	v.Size = l.SegmentSize
	for i := range v.segs {
		s, g := &v.segs[i], &l.Segments[i]
		s.mine, s.gone, s.exists, s.class = mine(SegmentID(i)), g.Gone(), s.exists && !g.Leaving, g.Class
		if g.Freed > 0 {
			if v.freed == nil {
				v.freed = make([]uint64, len(v.segs))
			}
			v.freed[i] = g.Freed
		}
	}
	v.down, v.leaving, v.staying = make([]bool, len(l.Blades)), make([]bool, len(l.Blades)), l.StayingBlades()
	for b := range l.Blades {
		v.leaving[b] = l.Blades[b].Leaving
		if l.Blades[b].State == BladeDown {
			v.down[b] = true
			v.ups--
		}
	}
	return v
}

// Valid reports whether the address lies in a segment that exists, and is not leaving. Addresses
// read from remote memory must be checked with it before At.
func (v *View) Valid(a Addr) bool {
	s := a >> OffsetBits // more than a segment number if bits above AddrBits are set
	return s < Addr(len(v.segs)) && v.segs[s].exists && a.Offset() < v.Size
}

// Contains reports whether [a, a+n) lies in one segment that exists: a READ of n
// bytes at a is then within the blade's region.
func (v *View) Contains(a Addr, n uint32) bool {
	return v.Valid(a) && n <= v.Size-a.Offset()
}

// Class is the class of the blocks of the address's segment, 0 if there is none.
func (v *View) Class(a Addr) Class {
	if s := a.Segment(); int(s) < len(v.segs) {
		return v.segs[s].class
	}
	return 0
}

// LocksLost reports whether another copy of the address's segment was its primary when the database
// was opened, or the segment was added. Locks were lost with that copy. So a block that seems to
// have no owner may be in the middle of a change, and it need not be where it was found once.
func (v *View) LocksLost(a Addr) bool {
	s := a.Segment()
	return int(s) < len(v.segs) && v.segs[s].locksLost
}

// Lost reports whether an address lies in a segment of which no copy is left.
func (v *View) Lost(a Addr) bool {
	s := a >> OffsetBits
	return s > 0 && s < Addr(len(v.segs)) && v.segs[s].n == 0 && !v.segs[s].gone
}

// Gone reports whether the segment of an address is leaving, or has gone back: a block that is
// there, as a cache says, was freed since.
func (v *View) Gone(a Addr) bool {
	s := a >> OffsetBits
	return s < Addr(len(v.segs)) && v.segs[s].gone
}

// Leaves reports whether the segment of an address is leaving. A transaction that has begun before
// may have read the address then: At leads to the block still.
func (v *View) Leaves(a Addr) bool { return v.Gone(a) && v.segs[a>>OffsetBits].n > 0 }

// Freed is Segment.Freed of the segment of an address.
func (v *View) Freed(a Addr) uint64 {
	if s := a.Segment(); int(s) < len(v.freed) {
		return v.freed[s]
	}
	return 0
}

// Mine reports whether this process hands out what is free in the segment of an address.
func (v *View) Mine(a Addr) bool {
	s := a.Segment()
	return int(s) < len(v.segs) && v.segs[s].mine
}

// Follow notes which segments have another primary than in the view before, or had. skipped: there
// were views in between, in which any of them may have had another one.
func (v *View) Follow(old *View, skipped bool) {
	for i := range v.segs[:min(len(v.segs), len(old.segs))] {
		s, was := &v.segs[i], &old.segs[i]
		a, b := s.copies[0], was.copies[0]
		s.locksLost = was.locksLost || skipped || s.n > 0 && was.n > 0 && (a.Blade != b.Blade || a.Off != b.Off)
	}
}

// Copies is the number of full replicas of the address's segment, 0 if there is
// none: those that may be read, compared and counted on.
func (v *View) Copies(a Addr) int {
	if s := a.Segment(); int(s) < len(v.segs) {
		return int(v.segs[s].n)
	}
	return 0
}

// Written is the number of replicas of the address's segment that are written: the
// full ones, and behind them those that are being built. Record images go to all of
// them; the words of an index reach those that are being built by [SyncWords] alone.
func (v *View) Written(a Addr) int {
	if s := a.Segment(); int(s) < len(v.segs) {
		return int(v.segs[s].w)
	}
	return 0
}

// At returns where copy i of the address is; 0 is the primary. The address must
// be valid and i less than Written.
func (v *View) At(a Addr, i int) rdma.RemoteAddr {
	r := v.segs[a>>OffsetBits].copies[i]
	r.Off += uint64(a.Offset())
	return r
}

// Primary returns where the primary copy of the address is; ok is false if the address
// lies in no segment that exists.
func (v *View) Primary(a Addr) (r rdma.RemoteAddr, ok bool) {
	if s := a >> OffsetBits; s < Addr(len(v.segs)) && v.segs[s].exists && a.Offset() < v.Size {
		r = v.segs[s].copies[0]
		r.Off += uint64(a.Offset())
		return r, true
	}
	return r, false
}

// Replicas returns where the copies of the first byte of an address's segment are, the
// primary first: those that are written. The address must be valid.
func (v *View) Replicas(a Addr) []rdma.RemoteAddr {
	s := &v.segs[a>>OffsetBits]
	return s.copies[:s.w&3]
}

// Placement returns where the copies of a segment are.
func (v *View) Placement(s SegmentID) Placement {
	if int(s) >= len(v.segs) {
		return Placement{}
	}
	x := &v.segs[s]
	p := Placement{N: uint8(x.n), Building: uint8(x.w - x.n)}
	for k, a := range x.copies[:x.w] {
		p.Replicas[k] = Replica{Blade: a.Blade, Base: a.Off}
	}
	return p
}

// Segments is one more than the largest segment number in use.
func (v *View) Segments() int { return len(v.segs) }

// Key returns the access key of a blade's region in this epoch, 0 if there is none.
func (v *View) Key(b rdma.BladeID) rdma.Key { return v.Keys[b] }

// Blades is the number of blades.
func (v *View) Blades() int { return len(v.Keys) }

// Up reports whether a blade takes part.
func (v *View) Up(b rdma.BladeID) bool { return int(b) >= len(v.down) || !v.down[b] }

// UpBlades is how many blades take part.
func (v *View) UpBlades() int { return v.ups }

// Leaving reports whether a blade is leaving, or, if it is down, its place is vacant.
func (v *View) Leaving(b rdma.BladeID) bool { return int(b) < len(v.leaving) && v.leaving[b] }

// Stays reports whether a blade takes part, and is not leaving.
func (v *View) Stays(b rdma.BladeID) bool { return v.Up(b) && !v.Leaving(b) }

// StayingBlades is how many blades stay.
func (v *View) StayingBlades() int { return v.staying }

// Rekey tells a thread the keys of the view: see [rdma.Thread.Rekeyed].
func (v *View) Rekey(t *rdma.Thread) {
	for b := range v.Blades() {
		t.Rekeyed(rdma.BladeID(b), v.Key(rdma.BladeID(b)))
	}
}
