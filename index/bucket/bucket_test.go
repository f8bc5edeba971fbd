package bucket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"txnode/memory/layout"
)

const room = 256

// model is an index of leaves, as a commit makes it: a map of blocks, and the directory of one
// process.
type model struct {
	t       testing.TB
	room    int
	builder Builder
	leaves  map[layout.Addr]stored
	free    []layout.Addr
	next    layout.Addr
	dir     *Directory
	hops    int // to the right, in lookups
}

type stored struct{ head, body []byte }

func (s stored) leaf(t testing.TB) Leaf {
	t.Helper()
	l, err := Decode(s.head, s.body)
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// first is the leaf of the lowest hash, for all time: a split leaves the left half where it is.
const first = layout.Addr(1 << layout.OffsetBits)

func newModel(t testing.TB, room int) *model {
	m := &model{t: t, room: room, leaves: map[layout.Addr]stored{}, next: first, dir: NewDirectory(1 << 20)}
	m.leaves[m.take()] = stored{head: AppendEmpty(nil)}
	return m
}

func (m *model) take() layout.Addr {
	if n := len(m.free); n > 0 {
		a := m.free[n-1]
		m.free = m.free[:n-1]
		return a
	}
	a := m.next
	m.next += 64
	return a
}

// find goes to the leaf of a hash, by the directory or from the first leaf on.
func (m *model) find(h Hash) (layout.Addr, Leaf) {
	a := m.dir.Find(h)
	begun := a
	for {
		s, ok := m.leaves[a]
		if a == 0 || !ok {
			m.dir.Forget(h, begun)
			a, begun = first, 0
			continue
		}
		l := s.leaf(m.t)
		switch l.Where(h) {
		case Here:
			m.dir.Learn(l.Low(), l.Depth(), a)
			return a, l
		case NotHere:
			m.dir.Forget(h, begun)
			a, begun = first, 0
		case GoRight:
			if begun != 0 {
				m.hops++
			}
			a = l.Right()
		}
	}
}

// commit puts the images of the builder where they belong.
func (m *model) commit(a layout.Addr) {
	at := []layout.Addr{a}
	for range m.builder.Images() - 1 {
		at = append(at, m.take())
	}
	at = append(at, 0)
	for i := range m.builder.Images() {
		s := stored{head: m.builder.AppendHead(nil, i, at[i+1]), body: m.builder.AppendBody(nil, i)}
		if len(s.body) != m.builder.Size(i) || len(s.body) > m.room || len(s.head) != HeadSize {
			m.t.Fatalf("image %d: a head of %d bytes, a body of %d, and the size is %d",
				i, len(s.head), len(s.body), m.builder.Size(i))
		}
		m.leaves[at[i]] = s
		m.dir.Learn(m.builder.Low(i), m.builder.Depth(i), at[i])
	}
}

func (m *model) change(changes ...Change) error {
	a, l := m.find(changes[0].Hash)
	if _, err := m.builder.Apply(m.room, l, changes); err != nil {
		return err
	}
	m.commit(a)
	return nil
}

// merge merges a leaf with its right neighbour, if they are halves of one and fit.
func (m *model) merge(h Hash) {
	a, l := m.find(h)
	r := l.Right()
	if r == 0 {
		return
	}
	fits, err := m.builder.Merge(m.room, l, m.leaves[r].leaf(m.t), r)
	if errors.Is(err, ErrBuddies) || err == nil && !fits {
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.commit(a)
	delete(m.leaves, r)
	m.free = append(m.free, r)
}

// walk checks that the leaves tile the hashes, and returns all blocks.
func (m *model) walk() (blocks []Block, leaves int) {
	want := Hash(0)
	for a := first; a != 0; leaves++ {
		l := m.leaves[a].leaf(m.t)
		if l.Low() != want {
			m.t.Fatalf("the leaf at %v begins at %010x, not at %010x", a, uint64(l.Low()), uint64(want))
		}
		for i := range l.Count() {
			blocks = append(blocks, l.Block(i))
		}
		want, _ = l.High()
		a = l.Right()
	}
	if want != 1<<MaxDepth {
		m.t.Fatalf("the last leaf ends at %010x", uint64(want))
	}
	if leaves != len(m.leaves) {
		m.t.Fatalf("%d leaves are linked, of %d", leaves, len(m.leaves))
	}
	return blocks, leaves
}

func blockOf(n uint64) layout.Addr { return layout.Addr(1<<40 + n*64) }

// TestModel makes random changes of leaves of all capacities, with hashes of few bits, so that many
// are equal, and of all bits; and compares what the leaves link with a list.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := newModel(t, []int{22, 33, 44, 64, 256, 4096}[r.IntN(6)])
		bits := []int{1, 3, 6, 12, 40}[r.IntN(5)]
		want := map[Block]bool{}
		var list []Block
		n := uint64(0)
		for range 300 {
			switch k := r.IntN(10); {
			case k < 6 || len(list) == 0:
				b := Block{
					Hash: Hash(r.Uint64N(1<<bits)) << (40 - bits), Addr: blockOf(n),
					Class: layout.Class(n % uint64(layout.NumClasses)),
				}
				n++
				err := m.change(Change{Op: Link, Hash: b.Hash, Addr: b.Addr, Class: b.Class})
				if errors.Is(err, ErrFull) {
					same := 0
					for _, x := range list {
						if x.Hash == b.Hash {
							same++
						}
					}
					if same < m.room/entrySize(MaxDepth) {
						t.Fatalf("seed %d: %v, with %d blocks of the hash", seed, err, same)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				want[b] = true
				list = append(list, b)
			default:
				i := r.IntN(len(list))
				old := list[i]
				delete(want, old)
				if k < 8 {
					list = slices.Delete(list, i, i+1)
					if err := m.change(Change{Op: Unlink, Hash: old.Hash, Old: old.Addr}); err != nil {
						t.Fatal(err)
					}
					m.merge(old.Hash)
					continue
				}
				b := Block{Hash: old.Hash, Addr: blockOf(n), Class: 3}
				n++
				list[i] = b
				want[b] = true
				if err := m.change(Change{
					Op: Relink, Hash: b.Hash, Old: old.Addr, Addr: b.Addr, Class: b.Class,
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		blocks, _ := m.walk()
		for i, b := range blocks {
			if !want[b] {
				t.Fatalf("seed %d: %v is linked, and should not be", seed, b)
			}
			if i > 0 && blocks[i-1].Hash > b.Hash {
				t.Fatalf("seed %d: %v is behind %v", seed, b, blocks[i-1])
			}
		}
		if len(blocks) != len(want) {
			t.Fatalf("seed %d: %d blocks are linked, of %d", seed, len(blocks), len(want))
		}
		for _, b := range list {
			_, l := m.find(b.Hash)
			found := false
			for i := l.Rank(b.Hash); i < l.Count() && l.Block(i).Hash == b.Hash; i++ {
				found = found || l.Block(i) == b
			}
			if !found {
				t.Fatalf("seed %d: %v is not found", seed, b)
			}
		}
	}
}

// TestRefuses: changes that a leaf cannot take leave no image.
func TestRefuses(t *testing.T) {
	m := newModel(t, room)
	for i := range uint64(60) {
		if err := m.change(Change{Op: Link, Hash: Hash(i << 34), Addr: blockOf(i)}); err != nil {
			t.Fatal(err)
		}
	}
	_, l := m.find(0)
	high, _ := l.High()
	for name, c := range map[string]struct {
		c    Change
		want error
	}{
		"linked already":      {Change{Op: Link, Hash: 1 << 34, Addr: blockOf(1), Class: 5}, ErrExists},
		"not linked":          {Change{Op: Unlink, Hash: 1 << 34, Old: blockOf(2)}, ErrMissing},
		"not linked, moved":   {Change{Op: Relink, Hash: 1 << 34, Old: blockOf(2), Addr: blockOf(99)}, ErrMissing},
		"behind the range":    {Change{Op: Link, Hash: high, Addr: blockOf(99)}, ErrNotHere},
		"no block":            {Change{Op: Link, Hash: 7, Addr: 32}, ErrChange},
		"no class":            {Change{Op: Link, Hash: 7, Addr: blockOf(99), Class: layout.NumClasses}, ErrChange},
		"no operation":        {Change{Op: Unlink + 1, Hash: 7, Addr: blockOf(99)}, ErrChange},
		"outside of segments": {Change{Op: Link, Hash: 7, Addr: 64}, ErrChange},
	} {
		if n, err := m.builder.Apply(room, l, []Change{c.c}); !errors.Is(err, c.want) || n != 0 ||
			m.builder.Images() != 0 {
			t.Errorf("%s: %d images, %v", name, n, err)
		}
	}
	_, r := m.find(high)
	if _, err := m.builder.Merge(room, r, l, l.Right()); !errors.Is(err, ErrBuddies) {
		t.Errorf("right with left: %v", err)
	}
}

// TestBytes pins the format.
func TestBytes(t *testing.T) {
	var b Builder
	l, err := Decode(AppendEmpty(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	changes := []Change{
		{Op: Link, Hash: 0xfedcba9876, Addr: 0x123456789040, Class: 5},
		{Op: Link, Hash: 0x0123456789, Addr: 0xabcdef012340, Class: 63 % layout.NumClasses},
	}
	if n, err := b.Apply(11, l, changes); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	got := [][]byte{
		b.AppendHead(nil, 0, 0x00040000beef40), b.AppendBody(nil, 0), b.AppendHead(nil, 1, 0), b.AppendBody(nil, 1),
	}
	class := func(c uint64) []byte {
		return binary.LittleEndian.AppendUint64(nil, uint64(0xabcdef012340)>>6|c<<42)[:6]
	}
	want := [][]byte{
		{0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0x40, 0xef, 0xbe, 0, 0, 4},
		append([]byte{0x01, 0x23, 0x45, 0x67, 0x89}, class(63%uint64(layout.NumClasses))...),
		{0, 1, 1, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		append([]byte{0xfe, 0xdc, 0xba, 0x98, 0x76},
			binary.LittleEndian.AppendUint64(nil, uint64(0x123456789040)>>6|5<<42)[:6]...),
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%d: % x, want % x", i, got[i], want[i])
		}
	}
}

func TestKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		depth := r.IntN(MaxDepth + 1)
		low := Hash(r.Uint64N(1<<MaxDepth)) >> (MaxDepth - depth) << (MaxDepth - depth)
		h := Hash(r.Uint64N(1 << MaxDepth))
		if r.IntN(3) == 0 {
			h = low + Hash(r.IntN(3)) - 1
			h &= 1<<MaxDepth - 1
		}
		key, separator := h.AppendKey(nil), low.AppendSeparator(nil)
		if (bytes.Compare(key, separator) >= 0) != (h >= low) || HashAt(key) != h || HashAt(separator) != low ||
			len(separator) > (depth+7)/8 {
			t.Fatalf("%010x has key % x; %010x of depth %d has separator % x",
				uint64(h), key, uint64(low), depth, separator)
		}
	}
	if HashOf(0xfedcba9876543210) != 0xfedcba9876 {
		t.Fatalf("%x", uint64(HashOf(0xfedcba9876543210)))
	}
}

// FuzzDecode: whatever Decode has accepted, no method panics; what Check has accepted can be
// changed, and is made anew byte by byte.
func FuzzDecode(f *testing.F) {
	m := newModel(f, room)
	for i := range uint64(300) {
		if err := m.change(Change{
			Op: Link, Hash: HashOf(i * 0x9e3779b97f4a7c15), Addr: blockOf(i), Class: 1,
		}); err != nil {
			f.Fatal(err)
		}
	}
	for _, s := range m.leaves {
		f.Add(s.head, s.body)
	}
	f.Fuzz(func(t *testing.T, head, body []byte) {
		l, err := Decode(head, body)
		if err != nil {
			return
		}
		for i := range l.Count() {
			l.Block(i)
		}
		l.Rank(1 << 39)
		l.High()
		l.Right()
		if l.Check() != nil {
			return
		}
		var b Builder
		n, err := b.Apply(max(len(body), 11), l, nil)
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if !bytes.Equal(b.AppendHead(nil, 0, 0), head) || !bytes.Equal(b.AppendBody(nil, 0), body) {
			t.Fatalf("% x\n% x became\n% x\n% x", head, body, b.AppendHead(nil, 0, 0), b.AppendBody(nil, 0))
		}
	})
}

// TestLoad: how full leaves are on average, at any number of keys: it does not swing with the
// number, because leaves split one by one.
func TestLoad(t *testing.T) {
	m := newModel(t, room)
	r := rand.New(rand.NewPCG(3, 4))
	keys, worst := 0, 1.0
	for _, most := range []int{3_000, 5_000, 8_000, 12_000, 20_000, 33_000, 50_000} {
		for ; keys < most; keys++ {
			if err := m.change(Change{
				Op: Link, Hash: HashOf(r.Uint64()), Addr: blockOf(uint64(keys)), Class: 1,
			}); err != nil {
				t.Fatal(err)
			}
		}
		blocks, leaves := m.walk()
		room := 0
		for a := first; a != 0; {
			l := m.leaves[a].leaf(t)
			room += Capacity(256, l.Depth())
			a = l.Right()
		}
		load := float64(len(blocks)) / float64(room)
		worst = min(worst, load)
		m.hops = 0
		for range 20_000 {
			m.find(HashOf(r.Uint64()))
		}
		t.Logf("%6d keys: %5d leaves of 320 bytes, load %.3f, %.1f bytes a key; %.2f %% of lookups go right; "+
			"directory %.2f bytes a key",
			len(blocks), leaves, load, float64(320*leaves)/float64(len(blocks)), float64(m.hops)/200,
			float64(m.dir.Bytes())/float64(len(blocks)))
	}
	if worst < .63 {
		t.Errorf("load %.3f", worst)
	}
}

func TestApplyAllocates(t *testing.T) {
	m := newModel(t, room)
	for i := range uint64(20) {
		if err := m.change(Change{Op: Link, Hash: HashOf(i * 0x9e3779b97f4a7c15), Addr: blockOf(i)}); err != nil {
			t.Fatal(err)
		}
	}
	_, l := m.find(5)
	changes := []Change{{Op: Link, Hash: 5, Addr: blockOf(77)}}
	dst := make([]byte, 0, 320)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := m.builder.Apply(room, l, changes); err != nil {
			t.Fatal(err)
		}
		m.builder.AppendBody(m.builder.AppendHead(dst, 0, 0), 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLink(b *testing.B) {
	m := newModel(b, room)
	for i := range uint64(100_000) {
		if err := m.change(Change{Op: Link, Hash: HashOf(i * 0x9e3779b97f4a7c15), Addr: blockOf(i)}); err != nil {
			b.Fatal(err)
		}
	}
	_, l := m.find(5)
	changes := []Change{{Op: Link, Hash: 5, Addr: blockOf(1 << 20)}}
	dst := make([]byte, 0, 640)
	b.ReportMetric(float64(l.Count()), "entries")
	for b.Loop() {
		l, err := Decode(l.head, l.body)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.builder.Apply(room, l, changes); err != nil {
			b.Fatal(err)
		}
		dst = m.builder.AppendBody(m.builder.AppendHead(dst[:0], 0, 0), 0)
	}
}
