package sim

import "math"

// spinlock is a lock of the driver: of a queue pair that threads share, or of a
// doorbell register. Whoever waits burns its processor. It is passed on in the
// order of arrival, and that, much more than the work done under it, takes the
// time that makes shared doorbells slow (SMART, section 3.1): the store that frees
// it, the write-combining buffer that must be flushed first, and the cache line
// that every spinning thread pulls away.
type spinlock struct {
	f     *Fabric
	id    uint32
	held  bool
	queue []spinner
	owner *proc   // to whom it was passed, until that one goes on
	last  *proc   // who has had it last
	base  float64 // ps to pass it on, and
	each  float64 // more for each thread that spins, at the speed of an idle processor
	far   float64 // more to a thread on the far socket
	fetch float64 // ps to take it when it is free and another thread has had it last
}

// spinner is a thread that waits for a lock, and what its processor time costs.
type spinner struct {
	p *proc
	c *costs
}

func (d *device) newLock(baseNs, eachNs, farNs, fetchNs float64) *spinlock {
	f := d.f
	l := &spinlock{
		f: f, id: uint32(len(f.locks)), base: 1000 * baseNs, each: 1000 * eachNs, far: 1000 * farNs,
		fetch: 1000 * fetchNs,
	}
	f.locks = append(f.locks, l)
	return l
}

// acquire returns when p has the lock; its clock says when that was.
func (l *spinlock) acquire(p *proc, c *costs) {
	p.sync()
	if !l.held {
		l.held = true
		if l.last != p {
			if l.last != nil {
				p.clock += int64(c.slow * l.fetch)
			}
			l.last = p
		}
		return
	}
	l.queue = append(l.queue, spinner{p, c})
	p.lock = l
	granted := false
	defer func() {
		if !granted && l.owner == p { // stopped when it was its turn
			l.releaseAt(l.f.now)
		}
	}()
	p.suspend()
	granted, l.owner = true, nil
}

// releaseAt frees the lock at t.
func (l *spinlock) releaseAt(t int64) { l.f.push(t, evRelease, l.id, 0) }

func (l *spinlock) release() {
	for len(l.queue) > 0 {
		n := len(l.queue)
		p, c := l.queue[0].p, l.queue[0].c
		copy(l.queue, l.queue[1:])
		l.queue[n-1] = spinner{}
		l.queue = l.queue[:n-1]
		if p.dead || p.stop == nil {
			continue
		}
		l.owner, l.last = p, p
		took := l.base + float64(l.each*float64(n))
		if c.far {
			took += l.far
		}
		l.f.push(l.f.now+int64(c.slow*took), evResume, uint32(p.id), p.gen)
		return
	}
	l.held = false
}

// shared is a queue pair and completion queue that several threads use.
type shared struct {
	lock  *spinlock
	users int   // active ones
	perWR int64 // ps of serialized work for each request, at this number of users
}

func (s *shared) resize(d *device, by int) {
	s.users += by
	pr := &d.f.opt.Profile
	s.perWR = 0
	if s.users > 1 {
		s.perWR = ps(pr.ShareNs * math.Pow(float64(s.users)-1.5, pr.ShareExp))
	}
}
