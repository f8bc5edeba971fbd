package rdma

// Toucher is a Port that can start to load a blade's memory into the processor's
// caches, because the blade is memory of this machine. What it is told is a hint,
// and checked like one: an address that leads nowhere is ignored.
type Toucher interface {
	// Touch loads the lines of [a.Off, a.Off+n), to be written if write.
	Touch(a RemoteAddr, n uint32, write bool)
}

// Touches reports whether Touch does anything.
func (t *Thread) Touches() bool { return t.touch != nil }

// Touch starts to load memory that the thread will use soon, while it does
// something else: see Toucher. It is no verb and is not counted.
func (t *Thread) Touch(a RemoteAddr, n uint32, write bool) {
	if t.touch != nil {
		t.touch.Touch(a, n, write)
	}
}

// PageAdvisor is a Fabric that can ask the operating system for huge pages.
type PageAdvisor interface {
	// AdviseHuge tells that p, which is not used yet, will be accessed all over.
	AdviseHuge(p []byte)
}
