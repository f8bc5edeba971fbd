package sim

import "txnode/rdma"

// mediaCache is the part of the last-level cache of a blade's processor that its
// RNIC writes to (Intel's DDIO): a WRITE or an atomic leaves its lines there, and the
// line that has to make room goes to the memory. A READ of a line that is there does
// not reach the memory, and leaves nothing behind. Two ways, as DDIO has.
type mediaCache struct {
	lines [][2]uint64 // line number + 1, the younger one first; 0: none
}

const (
	mediaLine = 64
	// mediaQueuePs is how far the memory may fall behind before a WRITE waits for it:
	// the queues of its controllers.
	mediaQueuePs = 1e6
)

func newMediaCache(bytes int) mediaCache {
	return mediaCache{lines: make([][2]uint64, bytes/mediaLine/2)}
}

func (m *mediaCache) set(line uint64) *[2]uint64 {
	return &m.lines[mix64(line)%uint64(len(m.lines))]
}

func (m *mediaCache) has(line uint64) bool {
	if len(m.lines) == 0 {
		return false
	}
	s := m.set(line)
	return s[0] == line+1 || s[1] == line+1
}

// put notes that a line was written: whether it was there, and which had to go.
func (m *mediaCache) put(line uint64) (hit bool, out uint64, evicted bool) {
	s := m.set(line)
	switch line + 1 {
	case s[0]:
		return true, 0, false
	case s[1]:
		s[0], s[1] = s[1], s[0]
		return true, 0, false
	}
	out, evicted = s[1]-1, s[1] != 0
	s[0], s[1] = line+1, s[0]
	return false, out, evicted
}

// media returns when the memory of the blade has served a request that reaches it
// at a time.
func (c *course) media(pr *Profile, v *verb, at int64) int64 {
	w, bl := &v.wr, c.bl
	if w.Op == rdma.OpFlush || v.size == 0 {
		return at
	}
	end := w.Off + uint64(v.size)
	grain := uint64(pr.MediaGrain)
	busy := func(bytes uint64, rate float64) {
		if rate > 0 {
			bl.media = max(bl.media, at) + scale(int64(float64(bytes)*1000/rate), c.x)
		}
	}
	if w.Op != rdma.OpWrite {
		missed := false
		for g := w.Off / grain; g <= (end-1)/grain; g++ {
			if !bl.cache.has(max(w.Off, g*grain) / mediaLine) {
				busy(grain, pr.MediaReadBytesPerNs)
				missed = true
			}
		}
		if missed {
			at = max(at, bl.media) + scale(ps(pr.MediaReadNs), c.x)
		}
	}
	if w.Op == rdma.OpRead {
		return at
	}
	if len(bl.cache.lines) == 0 {
		busy(((end-1)/grain-w.Off/grain+1)*grain, pr.MediaWriteBytesPerNs)
		return max(at, bl.media)
	}
	for line := w.Off / mediaLine; line <= (end-1)/mediaLine; line++ {
		hit, out, evicted := bl.cache.put(line)
		if hit {
			continue
		}
		if evicted {
			busy(bl.cache.written(out, grain), pr.MediaWriteBytesPerNs)
		}
		if w.Op == rdma.OpWrite && (line*mediaLine < w.Off || (line+1)*mediaLine > end) {
			busy(grain, pr.MediaReadBytesPerNs) // the rest of the line
		}
	}
	return max(at, bl.media-mediaQueuePs)
}

// written is how much the memory writes for a line that leaves the cache: a grain,
// or the line alone when others of its grain will follow, which the memory's own
// buffer puts together.
func (m *mediaCache) written(line, grain uint64) uint64 {
	per := max(grain/mediaLine, 1)
	for l := line / per * per; l < (line/per+1)*per; l++ {
		if l != line && m.has(l) {
			return mediaLine
		}
	}
	return grain
}
