package layout

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"txnode/memory/internal/mum"
	"txnode/rdma"
)

// Every value in the catalog has the form
//
//	0  kind 8 | version 8 | 0 16 | length of the payload in bytes 32
//	8  payload, little-endian, padded with zeroes to 8
//	   checksum of all of it, seeded by the entry's key
//
// so that damage, and a value under the wrong key, are noticed. Segments, tables
// and coordinators are counted in the state entry: a lost one is noticed too.
const (
	entryVersion  = 7
	entryOverhead = 16
)

type entryKind uint8

const (
	entryGeometry entryKind = 1 + iota
	entryState
	entryBlade
	entrySegment
	entryTable
	entryCoordinator
	entryVerdict
	entrySweep
	entryCheckpoint
	entryLeaked
	entryProcess
	entryRight
	entryReserved
	entrySight
)

// Keys. Numbers are fixed-width hexadecimal, so that the order of keys is theirs.
const (
	keyGeometry = "geometry"
	keyState    = "state"
	KeySweep    = "sweep"
	KeyLeaked   = "loose"

	prefixBlade       = "blade/"
	prefixSegment     = "segment/"
	prefixTable       = "table/"
	PrefixCoordinator = "coordinator/"
	PrefixRight       = "mend/"
	prefixProcess     = "process/"
	prefixReserved    = "reserved/"
	prefixVerdict     = "verdict/"
)

// PrefixCluster begins the keys of package cluster, which say where blades are. They are
// no part of a layout.
const PrefixCluster = "cluster/"

// PrefixServer begins the keys of servers of blades that have registered, with numbers from
// FirstServer on, which no process has.
const (
	PrefixServer = PrefixCluster + "server/"
	FirstServer  = MaxCoordinators
)

// OwnEntries returns the entries that are of this package.
func OwnEntries(entries []Entry) []Entry {
	i := slices.IndexFunc(entries, func(e Entry) bool { return strings.HasPrefix(e.Key, PrefixCluster) })
	if i < 0 {
		return entries
	}
	out := slices.Clone(entries[:i])
	for _, e := range entries[i:] {
		if !strings.HasPrefix(e.Key, PrefixCluster) {
			out = append(out, e)
		}
	}
	return out
}

// KeyOf is the key of the entry with a number, of those with a prefix.
func KeyOf(prefix string, n uint32) string { return fmt.Sprintf("%s%08x", prefix, n) }

// entrySeed is the seed of the checksum of a key's value.
func entrySeed(key string) uint64 {
	h := uint64(len(key))
	for i := range len(key) {
		h = mum.Mix(h^uint64(key[i]), 0xe7037ed1a0b428db)
	}
	return h
}

// seal wraps a payload.
func seal(key string, kind entryKind, payload []byte) Entry {
	return sealAs(entryVersion, key, kind, payload)
}

func sealAs(version uint8, key string, kind entryKind, payload []byte) Entry {
	v := make([]byte, 8, len(payload)+entryOverhead+8)
	v[0], v[1] = byte(kind), version
	binary.LittleEndian.PutUint32(v[4:], uint32(len(payload)))
	v = append(v, payload...)
	for len(v)%8 != 0 {
		v = append(v, 0)
	}
	v = binary.LittleEndian.AppendUint64(v, mum.Sum(entrySeed(key), v))
	return Entry{key, v}
}

// unseal verifies a value and returns its payload.
func unseal(e Entry, kind entryKind) ([]byte, error) {
	v := e.Value
	if len(v) < entryOverhead || len(v)%8 != 0 {
		return nil, fmt.Errorf("%w: entry %q has %d bytes", ErrDamaged, e.Key, len(v))
	}
	body, sum := v[:len(v)-8], binary.LittleEndian.Uint64(v[len(v)-8:])
	if mum.Sum(entrySeed(e.Key), body) != sum {
		return nil, fmt.Errorf("%w: entry %q does not match its checksum", ErrDamaged, e.Key)
	}
	n := binary.LittleEndian.Uint32(v[4:])
	if v[0] != byte(kind) || uint64(n) > uint64(len(body)-8) || len(body)-8-int(n) > 7 {
		return nil, fmt.Errorf("%w: entry %q is of kind %d with %d of %d bytes",
			ErrDamaged, e.Key, v[0], n, len(body)-8)
	}
	p, ok := body[8:8+n], true
	if v[1] != entryVersion {
		p, ok = complete(kind, v[1], p)
	}
	if !ok {
		return nil, fmt.Errorf("%w: entry %q has format %d, and this program knows %d: open the database with the "+
			"release that wrote it, "+
			"back it up, and restore the backup with this one", ErrFormat, e.Key, v[1], entryVersion)
	}
	return p, nil
}

// payload is a cursor over a value's payload. Reading past the end, or not up to
// it, is remembered and reported by err.
type payload struct {
	key  string
	p    []byte
	fail bool
}

func (d *payload) take(n int) []byte {
	if d.fail || n > len(d.p) {
		d.fail = true
		return make([]byte, min(n, 16))
	}
	v := d.p[:n]
	d.p = d.p[n:]
	return v
}

func (d *payload) u8() uint8   { return d.take(1)[0] }
func (d *payload) u16() uint16 { return binary.LittleEndian.Uint16(d.take(2)) }
func (d *payload) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *payload) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

// flags is a byte of which the bits of mask have a meaning.
func (d *payload) flags(mask uint8) uint8 {
	f := d.u8()
	d.fail = d.fail || f&^mask != 0
	return f
}

// bit is 1 << n, or 0.
func bit(set bool, n int) uint8 {
	if set {
		return 1 << n
	}
	return 0
}

func (d *payload) err() error {
	if d.fail || len(d.p) != 0 {
		return fmt.Errorf("%w: entry %q has a payload of the wrong length", ErrDamaged, d.key)
	}
	return nil
}

func (l *Layout) geometryEntry() Entry {
	p := append([]byte(nil), l.UUID[:]...)
	p = append(p, byte(l.Backups))
	p = binary.LittleEndian.AppendUint32(p, l.SegmentSize)
	p = binary.LittleEndian.AppendUint32(p, l.LogArea)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(l.Blades)))
	p = append(p, bit(l.Shared, 0))
	return seal(keyGeometry, entryGeometry, p)
}

func (l *Layout) decodeGeometry(d *payload) {
	copy(l.UUID[:], d.take(len(l.UUID)))
	l.Backups = int(d.u8())
	l.SegmentSize = d.u32()
	l.LogArea = d.u32()
	l.Blades = make([]Blade, min(d.u16(), MaxBlades))
	l.Shared = d.flags(1) == 1
}

// EntryOfState is of the layout, with so many segments, tables and coordinators.
func (l *Layout) EntryOfState(segments, tables, coordinators int) Entry {
	p := []byte{bit(l.Formatted, 0)}
	p = binary.LittleEndian.AppendUint32(p, uint32(l.Epoch))
	p = binary.LittleEndian.AppendUint32(p, l.NextCoordinator)
	p = binary.LittleEndian.AppendUint32(p, uint32(segments))
	p = binary.LittleEndian.AppendUint32(p, uint32(tables))
	p = binary.LittleEndian.AppendUint32(p, uint32(coordinators))
	p = binary.LittleEndian.AppendUint32(p, uint32(l.Opened))
	return seal(keyState, entryState, p)
}

type counts struct{ segments, tables, coordinators int }

func (l *Layout) decodeState(d *payload) counts {
	l.Formatted = d.flags(1) == 1
	l.Epoch = Epoch(d.u32())
	l.NextCoordinator = d.u32()
	n := counts{int(d.u32()), int(d.u32()), int(d.u32())}
	l.Opened = Epoch(d.u32())
	return n
}

// EntryOfBlade is the entry of a blade.
func EntryOfBlade(id rdma.BladeID, b Blade) Entry {
	p := binary.LittleEndian.AppendUint64(nil, b.Size)
	p = binary.LittleEndian.AppendUint32(p, b.Used)
	p = append(p, byte(b.State))
	p = binary.LittleEndian.AppendUint32(p, uint32(b.Key))
	p = binary.LittleEndian.AppendUint64(p, b.Incarnation)
	p = binary.LittleEndian.AppendUint64(p, uint64(b.Told))
	p = append(p, bit(b.Leaving, 0))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(b.Clean)))
	p = append(p, b.Clean...)
	p = append(append(p, byte(len(b.Domain))), b.Domain...)
	return seal(KeyOf(prefixBlade, uint32(id)), entryBlade, p)
}

func decodeBlade(d *payload) Blade {
	b := Blade{Size: d.u64(), Used: d.u32(), State: BladeState(d.u8())}
	b.Key, b.Incarnation, b.Told = rdma.Key(d.u32()), d.u64(), Revision(d.u64())
	b.Leaving = d.flags(1) == 1
	b.Clean = Places(d.take(int(d.u32())))
	b.Domain = string(d.take(int(d.u8())))
	n := len(b.Clean)
	d.fail = d.fail || n > 0 && b.Clean[n-1] == 0
	return b
}

// EntryOfSegment is the entry of a segment.
func EntryOfSegment(id SegmentID, s Segment) Entry {
	p := []byte{byte(s.Kind), byte(s.Class)}
	p = binary.LittleEndian.AppendUint32(p, s.Row)
	n := s.Placement.Written() + int(s.Placement.Lost)
	p = append(p, s.Placement.N|s.Placement.Building<<copiesBits|s.Placement.Lost<<(2*copiesBits))
	for _, r := range s.Placement.Replicas[:n] {
		p = binary.LittleEndian.AppendUint16(p, uint16(r.Blade))
		p = binary.LittleEndian.AppendUint64(p, r.Base)
	}
	p = binary.LittleEndian.AppendUint32(p, s.Backed)
	p = binary.LittleEndian.AppendUint32(p, s.Owner)
	if p = append(p, bit(s.Vacant, 0)|bit(s.Leaving, 1)|bit(s.Freed != 0, 2)); s.Freed != 0 {
		p = binary.LittleEndian.AppendUint64(p, s.Freed)
	}
	return seal(KeyOf(prefixSegment, uint32(id)), entrySegment, p)
}

// The byte that tells how many copies a segment has: full ones, those being built,
// lost ones.
const (
	copiesBits = 2
	copiesMask = 1<<copiesBits - 1
)

func decodeSegment(d *payload) Segment {
	s := Segment{Kind: SegmentKind(d.u8()), Class: Class(d.u8()), Row: d.u32()}
	n := d.u8()
	s.Placement.N, s.Placement.Building, s.Placement.Lost = n&copiesMask, n>>copiesBits&copiesMask,
		n>>(2*copiesBits)&copiesMask
	if total := s.Placement.Written() + int(s.Placement.Lost); total > MaxReplicas || n>>(3*copiesBits) != 0 {
		d.fail = true
		s.Placement = Placement{}
	}
	for i := range s.Placement.Written() + int(s.Placement.Lost) {
		s.Placement.Replicas[i] = Replica{Blade: rdma.BladeID(d.u16()), Base: d.u64()}
	}
	s.Backed, s.Owner = d.u32(), d.u32()
	f := d.flags(7)
	if s.Vacant, s.Leaving = f&1 != 0, f&2 != 0; f&4 != 0 {
		s.Freed = d.u64()
		d.fail = d.fail || s.Freed == 0
	}
	return s
}

// EntryOfTable is the entry of a table.
func EntryOfTable(t Table) Entry {
	p := binary.LittleEndian.AppendUint64(nil, uint64(t.Root))
	p = binary.LittleEndian.AppendUint16(p, uint16(len(t.Name)))
	p = append(p, t.Name...)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(t.Options)))
	p = append(p, t.Options...)
	p = append(p, byte(t.State), byte(t.Nodes))
	return seal(KeyOf(prefixTable, uint32(t.ID)), entryTable, binary.LittleEndian.AppendUint16(p, t.MaxKey))
}

func decodeTable(d *payload) Table {
	t := Table{Root: Addr(d.u64())}
	t.Name = string(d.take(int(d.u16())))
	t.Options = slices.Clone(d.take(int(d.u32())))
	t.State, t.Nodes, t.MaxKey = TableState(d.u8()), Class(d.u8()), d.u16()
	d.fail = d.fail || t.State > TableDropped
	return t
}

// EntryOfCoordinator is the entry of a coordinator.
func EntryOfCoordinator(c CoordinatorEntry) Entry {
	p := binary.LittleEndian.AppendUint32(nil, c.Slot)
	p = binary.LittleEndian.AppendUint64(p, uint64(c.Until))
	p = append(p, bit(c.Recovering && !c.Promoted, 0)|bit(c.Promoted, 1)|bit(c.Closing, 2)|bit(c.FewLogs, 3))
	p = binary.LittleEndian.AppendUint32(p, c.By)
	p = binary.LittleEndian.AppendUint32(p, c.LogUsed)
	p = binary.LittleEndian.AppendUint32(p, c.Claim)
	p = binary.LittleEndian.AppendUint64(p, uint64(c.Term))
	p = binary.LittleEndian.AppendUint32(p, c.Process)
	return seal(KeyOf(PrefixCoordinator, c.ID), entryCoordinator, p)
}

func decodeCoordinator(d *payload) CoordinatorEntry {
	c := CoordinatorEntry{Slot: d.u32(), Until: int64(d.u64())}
	state := d.flags(15)
	c.Recovering, c.Promoted, c.Closing, c.FewLogs = state&3 > 0, state&2 > 0, state&4 > 0, state&8 > 0
	c.By, c.LogUsed, c.Claim, c.Term, c.Process = d.u32(), d.u32(), d.u32(), int64(d.u64()), d.u32()
	d.fail = d.fail || state&3 == 3 || c.Until < 0 || c.Term < 0 ||
		c.LogUsed != 0 && (c.LogUsed < LogStep || bits.OnesCount32(c.LogUsed) != 1)
	return c
}

// Entries is the whole layout, in the order of keys.
func (l *Layout) Entries() []Entry {
	var out []Entry
	for i, b := range l.Blades {
		out = append(out, EntryOfBlade(rdma.BladeID(i), b))
	}
	if l.Checkpoint != 0 {
		out = append(out, EntryOfCheckpoint(l.Checkpoint))
	}
	for _, c := range l.Coordinators {
		out = append(out, EntryOfCoordinator(c))
	}
	out = append(out, l.geometryEntry())
	if l.Leaked {
		out = append(out, EntryOfLeaked())
	}
	for _, m := range l.Rights {
		out = append(out, EntryOfRight(m))
	}
	for _, p := range l.Processes {
		out = append(out, EntryOfProcess(p))
	}
	out = append(out, EntriesOfReserved(l.Reserved)...)
	for i, s := range l.Segments[1:] {
		out = append(out, EntryOfSegment(SegmentID(i+1), s))
	}
	out = append(out, l.SightEntries()...)
	out = append(out, l.EntryOfState(len(l.Segments)-1, len(l.Tables), len(l.Coordinators)))
	if l.Unswept {
		out = append(out, EntryOfSweep(l.Dangling, l.OnlyDamage))
	}
	for _, t := range l.Tables {
		out = append(out, EntryOfTable(t))
	}
	for i := range l.Verdicts {
		out = append(out, EntryOfVerdict(&l.Verdicts[i]))
	}
	return out
}

// decodeLayout rebuilds the layout from the entries of a catalog: nil if there
// are none. It accepts any bytes: what is not a sound layout is an error,
// ErrDamaged or ErrFormat.
func decodeLayout(entries []Entry) (*Layout, error) {
	entries = OwnEntries(entries)
	if len(entries) == 0 {
		return nil, nil
	}
	l := &Layout{Segments: make([]Segment, 1)}
	var n counts
	blades := 0
	for _, key := range []string{keyGeometry, keyState} {
		if !slices.ContainsFunc(entries, func(e Entry) bool { return e.Key == key }) {
			return nil, fmt.Errorf("%w: entry %q is missing", ErrDamaged, key)
		}
	}
	one := func(e Entry, kind entryKind, decode func(*payload)) error {
		p, err := unseal(e, kind)
		if err != nil {
			return err
		}
		d := &payload{key: e.Key, p: p}
		decode(d)
		return d.err()
	}
	// Geometry first: it says how many blades there are.
	for _, e := range entries {
		if e.Key == keyGeometry {
			if err := one(e, entryGeometry, l.decodeGeometry); err != nil {
				return nil, err
			}
		}
	}
	for i, e := range entries {
		if i > 0 && e.Key <= entries[i-1].Key {
			return nil, fmt.Errorf("%w: entry %q follows %q", ErrDamaged, e.Key, entries[i-1].Key)
		}
		var err error
		prefix, id, numbered := splitKey(e.Key)
		switch {
		case e.Key == keyGeometry:
		case e.Key == keyCheckpoint:
			err = one(e, entryCheckpoint, func(d *payload) { l.Checkpoint = d.u32() })
		case e.Key == keyState:
			err = one(e, entryState, func(d *payload) { n = l.decodeState(d) })
		case numbered && prefix == prefixBlade && int(id) < len(l.Blades):
			blades++
			err = one(e, entryBlade, func(d *payload) { l.Blades[id] = decodeBlade(d) })
		case numbered && prefix == prefixSegment && int(id) == len(l.Segments):
			err = one(e, entrySegment, func(d *payload) { l.Segments = append(l.Segments, decodeSegment(d)) })
		case numbered && prefix == prefixTable && int(id) == len(l.Tables)+1 && id <= MaxTables:
			err = one(e, entryTable, func(d *payload) {
				t := decodeTable(d)
				t.ID = uint16(id)
				l.Tables = append(l.Tables, t)
			})
		case e.Key == KeyLeaked:
			err = one(e, entryLeaked, func(*payload) { l.Leaked = true })
		case e.Key == KeySweep:
			err = one(e, entrySweep, func(d *payload) {
				l.Unswept = true
				l.Dangling, l.OnlyDamage = decodeSweep(d)
			})
		case strings.HasPrefix(e.Key, prefixReserved):
			err = one(e, entryReserved, func(d *payload) { l.Reserved = append(l.Reserved, decodeReserved(d)) })
		case numbered && prefix == prefixSight && id < MaxCoordinators:
			l.Witnessed = l.Witnessed || id == Witness
			err = one(e, entrySight, func(d *payload) { l.Sights = append(l.Sights, decodeSights(d, id)...) })
		case numbered && prefix == prefixVerdict && id < MaxCoordinators:
			err = one(e, entryVerdict, func(d *payload) { l.Verdicts = append(l.Verdicts, decodeVerdict(d, id)) })
		case numbered && prefix == PrefixRight && id <= lastRight:
			err = one(e, entryRight, func(d *payload) { l.Rights = append(l.Rights, decodeRight(d, id)) })
		case numbered && prefix == prefixProcess && id < MaxCoordinators:
			err = one(e, entryProcess, func(d *payload) {
				p := decodeProcess(d)
				p.ID = id
				l.Processes = append(l.Processes, p)
			})
		case numbered && prefix == PrefixCoordinator && id < MaxCoordinators:
			err = one(e, entryCoordinator, func(d *payload) {
				c := decodeCoordinator(d)
				c.ID = id
				l.Coordinators = append(l.Coordinators, c)
			})
		default:
			err = fmt.Errorf("%w: entry %q does not belong here, or the one before it is missing", ErrDamaged, e.Key)
		}
		if err != nil {
			return nil, err
		}
	}
	if have := (counts{len(l.Segments) - 1, len(l.Tables), len(l.Coordinators)}); blades != len(l.Blades) || have != n {
		return nil, fmt.Errorf("%w: entries are missing: %d of %d blades, %d of %d segments, %d of %d tables, %d of "+
			"%d coordinators", ErrDamaged,
			blades, len(l.Blades), have.segments, n.segments, have.tables, n.tables, have.coordinators, n.coordinators)
	}
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return l, nil
}

// splitKey takes "segment/0000000a" apart.
func splitKey(key string) (prefix string, id uint32, ok bool) {
	i := strings.IndexByte(key, '/') + 1
	if len(key)-i != 8 {
		return "", 0, false
	}
	for _, c := range []byte(key[i:]) {
		switch {
		case c >= '0' && c <= '9':
			id = id<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			id = id<<4 | uint32(c-'a'+10)
		default:
			return "", 0, false
		}
	}
	return key[:i], id, true
}

// LoadLayout reads what a catalog says, without touching a blade: nil when it is
// empty. Errors name the catalog.
func LoadLayout(cat Catalog) (*Layout, error) {
	l, _, err := Load(cat)
	return l, err
}

// Load is LoadLayout, and tells the revision.
func Load(cat Catalog) (*Layout, Revision, error) {
	entries, rev, err := cat.Load()
	if err != nil {
		return nil, 0, fmt.Errorf("memory: catalog %s: %w", cat.Name(), err)
	}
	l, err := Decode(cat.Name(), entries)
	return l, rev, err
}

// Decode is the layout that entries of a catalog say, nil if there are none. Errors have the
// name of the catalog.
func Decode(name string, entries []Entry) (*Layout, error) {
	l, err := decodeLayout(entries)
	if err != nil {
		return nil, fmt.Errorf("memory: catalog %s: %w", name, err)
	}
	return l, nil
}

// EpochIn is the epoch that entries say, 0 if they say none.
func EpochIn(entries []Entry) Epoch {
	for _, e := range entries {
		if p, err := unseal(e, entryState); e.Key == keyState && err == nil {
			var l Layout
			l.decodeState(&payload{key: e.Key, p: p})
			return l.Epoch
		}
	}
	return 0
}

// Difference is what changes one layout's entries into another's; both are in the order of keys.
func Difference(from, to []Entry) []Entry {
	have := make(map[string]string, len(from))
	for _, e := range from {
		have[e.Key] = string(e.Value)
	}
	var out []Entry
	for _, e := range to {
		if v, ok := have[e.Key]; !ok || v != string(e.Value) {
			out = append(out, e)
		}
		delete(have, e.Key)
	}
	for _, e := range from {
		if _, gone := have[e.Key]; gone {
			out = append(out, Entry{Key: e.Key})
		}
	}
	return out
}

const keyCheckpoint = "checkpoint"

// EntryOfCheckpoint is the entry of a checkpoint; 0 deletes it.
func EntryOfCheckpoint(generation uint32) Entry {
	if generation == 0 {
		return Entry{Key: keyCheckpoint}
	}
	return seal(keyCheckpoint, entryCheckpoint, binary.LittleEndian.AppendUint32(nil, generation))
}
