package steptest

import (
	"fmt"
	"math"
)

// Realm is what an Access is to.
type Realm uint8

// Realms. The access keys of a blade are three: whether an old key opens it, which is the oldest,
// and which it has granted.
const (
	Memory  Realm = iota // of a blade
	opens                // asked by each request
	oldest               // asked by Fabric.Blades
	granted              // asked, and changed, by Fabric.Grant
	Outside              // what steps of the user's are about; Blade and Off tell one thing from another
)

// step is what a client waits for that makes one.
type step struct {
	name    string
	touches func(to []Access) []Access
	may     func() bool // nil: at any time
	rests   bool        // the client holds no lock meanwhile
}

// Step has a client wait until its next move that is no request: a call to a catalog, for example,
// which it makes when Step returns. touches appends what that reads and changes. Outside of a
// client it does nothing.
//
// The client may hold locks of its process. So nothing of this process goes on meanwhile: its other
// clients make no step, and get no completions.
func (f *Fabric) Step(name string, touches func(to []Access) []Access) {
	f.await(&step{name: name, touches: touches})
}

// Rest is Step for a client that holds no locks, and makes a step only while may says so. A client
// that rests for ever need not come to its end.
func (f *Fabric) Rest(name string, may func() bool, touches func(to []Access) []Access) {
	f.await(&step{name: name, touches: touches, may: may, rests: true})
}

// control is Step for a call to the fabric.
func (f *Fabric) control(name string, touches func(to []Access) []Access) {
	if f.o.Control {
		f.Step(name, touches)
	}
}

func (f *Fabric) await(x *step) {
	c := f.cur
	if c == nil || c.stopping && !x.rests { // it may hold locks: it goes on until it waits for something else
		return
	}
	c.step, c.until = x, math.MaxInt64
	if c.stopping || !c.yield(struct{}{}) {
		c.step = nil
		panic(stopped{})
	}
}

// doStep lets a client make the step that it waits for, or wake up.
func (f *Fabric) doStep(c *Client, wake bool) {
	if wake {
		f.now = max(f.now, c.until)
		c.wakes++
		c.awake = f.moved
	} else {
		c.step = nil
		c.steps++
		f.moved++
	}
	c.resume()
	f.settle()
}

// sleeps reports whether a client waits for time to pass, and for nothing else.
func (f *Fabric) sleeps(c *Client) bool {
	if c.step != nil || c.port == nil || c.until == math.MaxInt64 {
		return false
	}
	for _, q := range c.port.qps {
		if q.queue.len() > 0 {
			return false
		}
	}
	return c.port.done.len() == 0
}

// rests reports whether a client waits for a step that may never come.
func (c *Client) rests() bool { return c.step != nil && c.step.rests }

// busy reports whether another client of a process waits for a step, and may hold locks.
func (f *Fabric) busy(c *Client) bool {
	for _, x := range f.clients {
		if x != c && c.Process > 0 && x.Process == c.Process && !x.ended && x.step != nil && !x.step.rests {
			return true
		}
	}
	return false
}

// stepMoves lists the steps that may be made now.
func (f *Fabric) stepMoves() (all []Move) {
	for i, c := range f.clients {
		if c.paused {
			continue
		}
		if x := c.step; !c.ended && x != nil && (x.may == nil || x.may()) && !f.busy(c) {
			all = append(all, Move{Client: 1 + i, Port: -1, Step: c.steps})
		}
		if f.o.Wakes && !c.ended && c.awake < f.moved && f.sleeps(c) && !f.busy(c) {
			all = append(all, Move{Client: 1 + i, Port: -1, Step: c.wakes, Wake: true})
		}
	}
	return all
}

// Describe says what a move that is possible now is, for a reader.
func (f *Fabric) Describe(m Move) string {
	process := 0
	if c := f.Of(m); c != nil {
		process = c.Process
	}
	if m.Wake {
		return fmt.Sprintf("process %d: wakes up", process)
	}
	if m.Client > 0 {
		return fmt.Sprintf("process %d: %s", process, f.clients[m.Client-1].step.name)
	}
	if m.Place {
		return fmt.Sprintf("process %d: WRITEs to blade %d are placed", process, m.Blade)
	}
	out := fmt.Sprintf("process %d:", process)
	for _, q := range f.ports[m.Port].qps {
		for _, r := range q.queue.all() {
			if w := r.b.WR(r.i); r.post == m.Post && (f.o.Grain == Batches || q.blade == m.Blade) {
				out += fmt.Sprintf(" %v [%#x, +%d) of blade %d", w.Op, w.Off, w.Len, w.Blade)
			}
		}
	}
	return out
}
