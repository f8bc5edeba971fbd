package rdma

import "unsafe"

// Mapped is a Port of which the blades' regions are memory of this process. The
// mappings, by blade, are those of the time when the thread was made.
type Mapped interface {
	Mappings() []Mapping
}

// Mapping is where a region is. What is posted goes through the port all the same.
type Mapping struct {
	Base unsafe.Pointer // of its first byte
	Size uint64         // bytes
}

// Prefetches reports whether Prefetch does anything.
func (t *Thread) Prefetches() bool { return canPrefetch && t.maps != nil }

// prefetchMax bounds what one Prefetch loads, in bytes: the caches hold more useful things.
const prefetchMax = 1024

// Prefetch starts to load memory that the thread will use soon into the processor's
// caches, to be written if write, while it does something else. It is no verb and is
// not counted; an address that leads nowhere is ignored.
func (t *Thread) Prefetch(a RemoteAddr, n uint32, write bool) {
	if int(a.Blade) < len(t.maps) {
		if m := &t.maps[a.Blade]; a.Off < m.Size {
			prefetch(unsafe.Add(m.Base, a.Off), min(n, prefetchMax), write)
		}
	}
}

// PageAdvisor is a Fabric that can tell the operating system which pages are good for memory of
// this process. Both are hints.
type PageAdvisor interface {
	// AdviseHuge tells that p, which is not used yet, will be accessed all over.
	AdviseHuge(p []byte)
	// AdviseSmall tells that little of [off, off+n) of a blade's region, which is not used yet,
	// will be accessed, here and there.
	AdviseSmall(b BladeID, off, n uint64)
}
