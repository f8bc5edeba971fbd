package race

import (
	"errors"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// Nobody is the owner of a lock whose client has given up in the middle of a change. Recover takes
// it over like the lock of a dead client, whatever it is told of those. Locks of a live client are
// never broken. A client that left its own behind would block all others for ever.
const Nobody = 1 << 40

// locks are those that a change of the index holds.
type locks struct {
	ix   *Index
	c    *rdma.Coro
	s    *scratch
	held []layout.Addr
}

// take takes a lock, if nobody has it. After an error it may be held, too: on the
// primary alone, if some copy did not follow.
func (l *locks) take(at layout.Addr) (bool, error) {
	ok, err := l.ix.one(l.c, l.s, l.ix.space.ViewOn(l.c.Thread()), at, 0, l.ix.lockWord(l.c))
	if ok {
		l.held = append(l.held, at)
	}
	return ok, err
}

// lockDirectory waits for the right to change the directory, which others hold for a few
// round trips only.
func (l *locks) lockDirectory() error {
	w := waiting{}
	at := l.ix.root + dirLockOff
	for {
		if ok, err := l.take(at); ok || err != nil {
			return err
		}
		if err := l.ix.waitFor(l.c, &w, at, ownerOf(l.s.steps[0].prior), "a change of the directory"); err != nil {
			return err
		}
	}
}

// unlock clears a lock word that is held.
func (l *locks) unlock(at layout.Addr) error {
	if err := l.ix.unlock(l.c, l.s, at); err != nil {
		return err
	}
	l.released(at)
	return nil
}

// released notes that a lock is not held any more.
func (l *locks) released(at layout.Addr) {
	l.held = slices.DeleteFunc(l.held, func(a layout.Addr) bool { return a == at })
}

// release changes a lock word that c holds, and reports whether it has. If the primary holds
// another word it is damaged: nobody but its owner changes the lock of a live client. So the owner
// puts its word there again before.
func (ix *Index) release(c *rdma.Coro, s *scratch, at layout.Addr, to uint64) (bool, error) {
	v, mine := ix.space.ViewOn(c.Thread()), ix.lockWord(c)
	ok, err := ix.one(c, s, v, at, mine, to)
	if err != nil || ok || v.Copies(at) < 2 {
		return ok, err
	}
	s.steps = append(s.steps[:0], step{addr: at, old: s.steps[0].prior, new: mine})
	if err := ix.primary(c, s, v, s.steps); err != nil || !s.steps[0].ok() {
		return false, err
	}
	return ix.one(c, s, v, at, mine, to)
}

// abandon leaves what is still held to whoever recovers the index, if err is why the
// change has not come to its end, and returns err. After a failed verb there is nothing
// that could be done: its client is as good as dead.
func (l *locks) abandon(err error) error {
	if err == nil || errors.Is(err, rdma.ErrVerb) {
		return err
	}
	mine := l.ix.lockWord(l.c)
	for _, at := range l.held {
		// Where the CAS fails, or does not reach every copy, recovery sees to that, too.
		if _, e := l.ix.release(l.c, l.s, at, Nobody<<16|mine&0xffff); errors.Is(e, rdma.ErrVerb) {
			return errors.Join(err, e)
		}
	}
	l.held = nil
	return err
}
