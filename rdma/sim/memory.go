package sim

import (
	"encoding/binary"
	"unsafe"
)

// Memory of a blade: a directory of tables of pages, all made when first
// written. Reading what was never written gives zeros and costs nothing, so an
// address space of any size is possible.
const (
	pageBits  = 12
	pageSize  = 1 << pageBits
	tableBits = 10
	tableSize = 1 << tableBits // pages
	minSlab   = 8              // pages that are allocated together: a quarter of what there is
	maxSlab   = 4096           // 16 MiB
	hugePage  = 2 << 20
)

type page = [pageSize]byte

type memory struct {
	size   uint64
	tables []*[tableSize]*page
	fresh  []byte // rest of the last slab
	pages  int
}

func (m *memory) init(size uint64) {
	m.size = size
	m.tables = make([]*[tableSize]*page, (size+pageSize*tableSize-1)>>(pageBits+tableBits))
}

// reset forgets everything.
func (m *memory) reset() {
	clear(m.tables)
	m.fresh, m.pages = nil, 0
}

// at returns the page of off, or nil when it was never written.
func (m *memory) at(off uint64) *page {
	t := m.tables[off>>(pageBits+tableBits)]
	if t == nil {
		return nil
	}
	return t[off>>pageBits%tableSize]
}

// make returns the page of off for writing.
func (m *memory) make(off uint64) *page {
	t := &m.tables[off>>(pageBits+tableBits)]
	if *t == nil {
		*t = new([tableSize]*page)
	}
	p := &(*t)[off>>pageBits%tableSize]
	if *p == nil {
		if len(m.fresh) == 0 {
			m.fresh = slab(min(max(m.pages/4, minSlab), maxSlab) * pageSize)
		}
		*p = (*page)(m.fresh)
		m.fresh = m.fresh[pageSize:]
		m.pages++
	}
	return *p
}

// expect starts loading what a request is about to touch into the cache: between
// doorbell and effect hundreds of other events run, and the memory is cold.
func (m *memory) expect(off uint64, n uint32) {
	if p := m.at(off); p != nil {
		in := off % pageSize
		prefetch(unsafe.Pointer(&p[in]), uintptr(min((uint64(n)+63)/64, (pageSize-in+63)/64, 4)))
	}
}

// slab makes memory for pages; a large one on huge pages.
func slab(size int) []byte {
	if size < hugePage {
		return make([]byte, size)
	}
	size &^= hugePage - 1
	b := make([]byte, size+hugePage) // what is left over at the ends is never touched
	b = b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%hugePage:][:size:size]
	hugePages(b)
	return b
}

func (m *memory) read(dst []byte, off uint64) {
	for {
		in := off % pageSize
		n := min(uint64(len(dst)), pageSize-in)
		if p := m.at(off); p != nil {
			copy(dst[:n], p[in:])
		} else {
			clear(dst[:n])
		}
		if dst = dst[n:]; len(dst) == 0 {
			return
		}
		off += n
	}
}

func (m *memory) write(off uint64, src []byte) {
	for len(src) > 0 {
		n := copy(m.make(off)[off%pageSize:], src)
		src = src[n:]
		off += uint64(n)
	}
}

// word returns the aligned word at off.
func (m *memory) word(off uint64) uint64 {
	p := m.at(off)
	if p == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(p[off%pageSize:])
}

func (m *memory) setWord(off, v uint64) {
	binary.LittleEndian.PutUint64(m.make(off)[off%pageSize:], v)
}

// Image is what the memory of a blade held, to make other blades from. It does
// not change; any number of fabrics, on any goroutines, may start from it.
type Image struct{ m memory }

// copyFrom makes m, which is empty, hold what src does.
func (m *memory) copyFrom(src *memory) {
	for t, pages := range src.tables {
		if pages == nil || t >= len(m.tables) {
			continue
		}
		for i, p := range pages {
			if p != nil {
				*m.make(uint64(t*tableSize+i) << pageBits) = *p
			}
		}
	}
}
