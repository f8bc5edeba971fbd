package sim

// Heal ends the faults: what was armed and has not struck never will, what lasts
// ends now, and blades that are down come back, those that lost their memory without
// it. What faults have done stays done, and requests that they have delayed still
// arrive.
func (f *Fabric) Heal() {
	now := f.proc().clock
	f.waiting = nil
	for _, c := range f.cpus {
		if c == nil {
			continue
		}
		for _, list := range [][]window{c.pauses, c.troubles} {
			for i := range list {
				list[i].to = min(list[i].to, now)
			}
		}
		if c.clocks != nil {
			c.run(now, 1)
		}
		for _, p := range c.ports {
			p.faults = nil
			p.upcoming()
		}
	}
	for i := range f.faults {
		f.faults[i].Kind = FaultNone // strike passes it over
	}
	for i := range f.deaf {
		f.deaf[i].to = min(f.deaf[i].to, now)
	}
	for _, b := range f.blades {
		for _, list := range [][]window{b.slow, b.parted} {
			for i := range list {
				list[i].to = min(list[i].to, now)
			}
		}
		b.down = min(b.down, now)
	}
	f.trace.note(f.now, "heal", 0, 0)
}

// StopAll stops every thread that has a port, as when the processes that they belong
// to are killed: what they have posted arrives. Only outside Run.
func (f *Fabric) StopAll() {
	for _, c := range f.cpus {
		if c == nil {
			continue
		}
		for _, p := range c.ports {
			if !p.dead {
				f.stopThread(p, nil)
			}
		}
	}
}

// Unwinds reports whether a panic is that which unwinds a body whose thread a fault
// has stopped.
func Unwinds(r any) bool { _, ok := r.(killed); return ok }
