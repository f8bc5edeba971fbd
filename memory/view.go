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
	segs  []segment
	keys  []rdma.Key
	size  uint32 // of a segment, in bytes
}

// segment is a Placement as the data path wants it: with the access keys, in one
// cache line.
type segment struct {
	copies [MaxReplicas]rdma.RemoteAddr // of the first byte
	n      uint32
	_      [12]byte // to 64 bytes
}

// NewView makes a view. segs is indexed by SegmentID and keys by BladeID; the
// view keeps the latter. Its segments are of the largest size.
func NewView(e Epoch, segs []Placement, keys []rdma.Key) *View {
	v := &View{Epoch: e, segs: make([]segment, len(segs)), keys: keys, size: MaxSegmentSize}
	for i := range segs {
		p, s := &segs[i], &v.segs[i]
		s.n = uint32(p.N)
		for k, r := range p.Replicas[:p.N] {
			s.copies[k] = rdma.RemoteAddr{Blade: r.Blade, Off: r.Base}
			if int(r.Blade) < len(keys) {
				s.copies[k].Key = keys[r.Blade]
			}
		}
	}
	return v
}

// Valid reports whether the address lies in a segment that exists. Addresses
// read from remote memory must be checked with it before At.
func (v *View) Valid(a Addr) bool {
	s := a >> OffsetBits // more than a segment number if bits above AddrBits are set
	return s < Addr(len(v.segs)) && v.segs[s].n > 0 && a.Offset() < v.size
}

// Contains reports whether [a, a+n) lies in one segment that exists: a READ of n
// bytes at a is then within the blade's region.
func (v *View) Contains(a Addr, n uint32) bool {
	return v.Valid(a) && n <= v.size-a.Offset()
}

// Copies is the number of replicas of the address's segment, 0 if there is none.
func (v *View) Copies(a Addr) int {
	if s := a.Segment(); int(s) < len(v.segs) {
		return int(v.segs[s].n)
	}
	return 0
}

// At returns where copy i of the address is; 0 is the primary. The address must
// be valid and i less than Copies.
func (v *View) At(a Addr, i int) rdma.RemoteAddr {
	r := v.segs[a>>OffsetBits].copies[i]
	r.Off += uint64(a.Offset())
	return r
}

// Placement returns where the copies of a segment are.
func (v *View) Placement(s SegmentID) Placement {
	if int(s) >= len(v.segs) {
		return Placement{}
	}
	x := &v.segs[s]
	p := Placement{N: uint8(x.n)}
	for k, a := range x.copies[:x.n] {
		p.Replicas[k] = Replica{Blade: a.Blade, Base: a.Off}
	}
	return p
}

// Segments is one more than the largest segment number in use.
func (v *View) Segments() int { return len(v.segs) }

// Key returns the access key of a blade's region in this epoch.
func (v *View) Key(b rdma.BladeID) rdma.Key { return v.keys[b] }

// Blades is the number of blades.
func (v *View) Blades() int { return len(v.keys) }
