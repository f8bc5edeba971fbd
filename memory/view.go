package memory

import "txnode/rdma"

// MaxReplicas is the largest number of copies of a segment: f = 2 backups.
const MaxReplicas = 3

// Replica is where one copy of a segment is.
type Replica struct {
	Blade rdma.BladeID
	Base  uint64 // offset in the blade's region of the segment's first byte
}

// Placement is where the copies of a segment are; the primary comes first.
type Placement struct {
	N        uint8 // number of copies, 0: the segment does not exist
	Replicas [MaxReplicas]Replica
}

// View is the segment map of one epoch. It is immutable: a transaction takes one
// view and uses it from begin to end.
type View struct {
	Epoch Epoch
	segs  []Placement
	keys  []rdma.Key
	size  uint32 // of a segment, in bytes
}

// NewView makes a view. segs is indexed by SegmentID and keys by BladeID; the
// view keeps both. Its segments are of the largest size.
func NewView(e Epoch, segs []Placement, keys []rdma.Key) *View {
	return &View{Epoch: e, segs: segs, keys: keys, size: MaxSegmentSize}
}

// Valid reports whether the address lies in a segment that exists. Addresses
// read from remote memory must be checked with it before At.
func (v *View) Valid(a Addr) bool {
	s := a >> OffsetBits // more than a segment number if bits above AddrBits are set
	return s < Addr(len(v.segs)) && v.segs[s].N > 0 && a.Offset() < v.size
}

// Contains reports whether [a, a+n) lies in one segment that exists: a READ of n
// bytes at a is then within the blade's region.
func (v *View) Contains(a Addr, n uint32) bool {
	return v.Valid(a) && n <= v.size-a.Offset()
}

// Copies is the number of replicas of the address's segment, 0 if there is none.
func (v *View) Copies(a Addr) int {
	if s := a.Segment(); int(s) < len(v.segs) {
		return int(v.segs[s].N)
	}
	return 0
}

// At returns where copy i of the address is; 0 is the primary. The address must
// be valid and i less than Copies.
func (v *View) At(a Addr, i int) rdma.RemoteAddr {
	r := &v.segs[a.Segment()].Replicas[i]
	return rdma.RemoteAddr{Blade: r.Blade, Key: v.keys[r.Blade], Off: r.Base + uint64(a.Offset())}
}

// Where returns the placement of a valid address's segment, for On. It is the
// view's own.
func (v *View) Where(a Addr) *Placement { return &v.segs[a.Segment()] }

// On is At for a placement that Where returned.
func (v *View) On(p *Placement, a Addr, i int) rdma.RemoteAddr {
	r := &p.Replicas[i]
	return rdma.RemoteAddr{Blade: r.Blade, Key: v.keys[r.Blade], Off: r.Base + uint64(a.Offset())}
}

// Placement returns where the copies of a segment are.
func (v *View) Placement(s SegmentID) Placement {
	if int(s) < len(v.segs) {
		return v.segs[s]
	}
	return Placement{}
}

// Segments is one more than the largest segment number in use.
func (v *View) Segments() int { return len(v.segs) }

// Key returns the access key of a blade's region in this epoch.
func (v *View) Key(b rdma.BladeID) rdma.Key { return v.keys[b] }

// Blades is the number of blades.
func (v *View) Blades() int { return len(v.keys) }
