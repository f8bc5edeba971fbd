package layout

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Reservation is a name in the catalog, a text of its user, and perhaps an extent, which belongs to
// no index. Of the extent the primary counts alone: no other copy is written, so it is lost when
// its segment has another primary (Lost). The next process that opens the database as the only one
// ends all reservations with an extent: what must survive belongs into tables.
//
//	Space.ChangeReserved                     changes them in one step of the catalog
//	Space.AdvanceEpoch                       the same, and moves the epoch in that step
//	NewExtent, then Space.ReserveExtent      a crash in between leaves an extent that nothing
//	                                         leads to
//	Layout.Discard                           the owner of the segment gives the extent back when
//	                                         it wants room, or in SettleExtents
type Reservation struct {
	Name string
	Addr Addr   // of the extent
	Size uint32 // in bytes, as NewExtent was asked; 0: there is no extent
	Text []byte
	// Lost: the segment has had another primary since the reservation was made. It stays lost if
	// the primary comes back.
	Lost bool
	// Passing: it has no extent, and ends all the same when no process has the database open.
	Passing bool
}

// Reservation.Lost and Reservation.Passing, in the word of the address.
const (
	reservedLost    = 1 << 63
	reservedPassing = 1 << 62
)

// Limits of reservations.
const (
	MaxReservationName = 263     // a name of 255 bytes, and what tells names of one user from those of another
	MaxReservationText = 1 << 16 // bytes
)

func reservedEntry(r Reservation) Entry {
	addr := uint64(r.Addr)
	if r.Lost {
		addr |= reservedLost
	}
	if r.Passing {
		addr |= reservedPassing
	}
	p := binary.LittleEndian.AppendUint64(nil, addr)
	p = binary.LittleEndian.AppendUint32(p, r.Size)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(r.Text)))
	return seal(prefixReserved+r.Name, entryReserved, append(p, r.Text...))
}

func decodeReserved(d *payload) Reservation {
	addr := d.u64()
	r := Reservation{
		Name: strings.TrimPrefix(d.key, prefixReserved),
		Addr: Addr(addr &^ (reservedLost | reservedPassing)), Size: d.u32(),
	}
	r.Lost, r.Passing = addr&reservedLost != 0, addr&reservedPassing != 0
	r.Text = slices.Clone(d.take(int(d.u32())))
	return r
}

// Reservation returns what is reserved under a name, or nil.
func (l *Layout) Reservation(name string) *Reservation {
	i, ok := l.FindReserved(name)
	if !ok {
		return nil
	}
	return &l.Reserved[i]
}

// FindReserved is where a reservation is, or would be.
func (l *Layout) FindReserved(name string) (int, bool) {
	return slices.BinarySearchFunc(l.Reserved, name, func(r Reservation, name string) int {
		return strings.Compare(r.Name, name)
	})
}

// Reserve notes a reservation, in place of the one of that name. It is a change for
// [Space.ChangeReserved], and for [Space.AdvanceEpoch].
func (l *Layout) Reserve(r Reservation) {
	if i, ok := l.FindReserved(r.Name); ok {
		l.Reserved[i] = r
	} else {
		l.Reserved = slices.Insert(l.Reserved, i, r)
	}
}

// Release ends the reservation of a name. It is a change as Reserve is.
func (l *Layout) Release(name string) {
	if i, ok := l.FindReserved(name); ok {
		l.Reserved = slices.Delete(l.Reserved, i, i+1)
	}
}

// Discard ends the reservation of a name, and has the extent given back: by the process that owns
// its segment, this one or another one, once no verb with a key of an earlier epoch takes effect.
// Then no view may lead to it. It is a change as Reserve is.
func (l *Layout) Discard(name string) {
	i, ok := l.FindReserved(name)
	if !ok {
		return
	}
	r := l.Reserved[i]
	if l.Release(name); r.Size > 0 {
		r.Name, r.Text = fmt.Sprintf("%s%012x", PrefixDiscarded, uint64(r.Addr)), nil
		l.Reserve(r)
	}
}

// PrefixDiscarded begins the names of reservations that were discarded.
const PrefixDiscarded = ".discarded/"

// LoseReserved marks the reservations whose segments have another primary than in an earlier
// layout.
func (l *Layout) LoseReserved(old *Layout) {
	for i := range l.Reserved {
		r := &l.Reserved[i]
		if id := int(r.Addr.Segment()); r.Size > 0 && id < len(old.Segments) && primaryOf(old, id) != primaryOf(l, id) {
			r.Lost = true
		}
	}
}

// primaryOf is where the primary copy of a segment lies; zero: it is lost.
func primaryOf(l *Layout, id int) (r Replica) {
	if p := &l.Segments[id].Placement; p.N > 0 {
		r = p.Replicas[0]
	}
	return r
}

// EndReserved ends all reservations with an extent, and those that pass: this process is the only
// one.
func (l *Layout) EndReserved() {
	l.Reserved = slices.DeleteFunc(l.Reserved, func(r Reservation) bool { return r.Size > 0 || r.Passing })
}

// Registered reports whether a process has joined, and has not closed the database. A database that
// is not shared has process 0.
func (l *Layout) Registered(process uint32) bool {
	if !l.Shared {
		return process == 0
	}
	p := l.Process(process)
	return p != nil && !p.Resigned()
}

// ValidateReserved checks the reservations.
func (l *Layout) ValidateReserved() error {
	for i, r := range l.Reserved {
		switch {
		case r.Name == "" || len(r.Name) > MaxReservationName || len(r.Text) > MaxReservationText || i > 0 &&
			r.Name <= l.Reserved[i-1].Name:
			return unsound("reservation %q, with a text of %d bytes", r.Name, len(r.Text))
		case r.Size == 0 && r.Addr == 0 && !r.Lost:
		case r.Size == 0 || r.Passing || r.Addr>>AddrBits != 0 || int(r.Addr.Segment()) >= len(l.Segments) ||
			l.Segments[r.Addr.Segment()].Kind != KindIndex ||
			r.Addr.Offset() < TableGranules(l.SegmentSize)*Granule(l.SegmentSize) ||
			r.Addr.Offset()%Granule(l.SegmentSize) != 0 ||
			uint64(r.Addr.Offset())+uint64(r.Size) > uint64(l.SegmentSize):
			return unsound("reservation %q: %d bytes at %v are in no segment of indexes", r.Name, r.Size, r.Addr)
		}
	}
	return nil
}

// EntriesOfReserved are the entries of reservations.
func EntriesOfReserved(all []Reservation) []Entry {
	out := make([]Entry, len(all))
	for i, r := range all {
		out[i] = reservedEntry(r)
	}
	return out
}
