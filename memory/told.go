package memory

import (
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A catalog must not go back: it would hand out room twice, and miss tables. So whatever takes part remembers the latest revision that it
// has seen of it, and refuses an earlier one:
//
//	a process     store.rev; see store.load and store.newer
//	a blade       a word behind its header, in its file if it has one: see Tell. Every opening compares it, so that processes that
//	              have seen nothing yet are warned, too
//
// No blade is told of a revision before the catalog has it on its disk.

// distrust notes that the catalog cannot be used any more if an error says so, and returns the error. The caller holds the lock.
func (s *store) distrust(err error) error {
	if errors.Is(err, ErrForeign) && s.closed == nil && s.view.Load() != nil {
		s.closed = err
	}
	return err
}

// load loads the entries of the catalog, which is not behind the revision that is known. The caller holds the lock.
func (s *store) load() ([]Entry, Revision, error) {
	entries, rev, err := s.cat.Load()
	if err == nil {
		err = Behind(s.cat.Name(), rev, s.rev)
	}
	return entries, rev, s.distrust(err)
}

// Bytes of a buffer for the header of a region and the word behind it.
const (
	headerRoom = layout.HeaderCopies*layout.RegionHeaderSize + layout.RegionHeaderSize
	toldAt     = layout.HeaderCopies * layout.RegionHeaderSize
)

// readHeader reads both copies of a region's header into a buffer of headerRoom bytes, one after the other, and what the
// blade was told of behind them.
func readHeader(c *rdma.Coro, b rdma.BladeID, key rdma.Key, buf uint32) error {
	var batch rdma.Batch
	for i := range HeaderCopies {
		batch.Read(rdma.RemoteAddr{Blade: b, Key: key, Off: HeaderOffset(i)}, buf+uint32(i)*RegionHeaderSize, RegionHeaderSize)
	}
	batch.Read(rdma.RemoteAddr{Blade: b, Key: key, Off: layout.ToldOffset}, buf+toldAt, 8)
	return c.Do(&batch)
}

// compareTold compares the catalog with what a blade was told of, which readHeader has read: a *BehindError, with the name of the
// blade. The catalog is asked afterwards, since another process may have told the blade of a change meanwhile.
func (s *store) compareTold(c *rdma.Coro, b rdma.BladeID, rev Revision, buf uint32) error {
	told, _ := layout.ParseTold(binary.LittleEndian.Uint64(c.Thread().Bytes(buf+toldAt, 8)))
	if told <= rev {
		return nil
	}
	now, err := s.cat.Revision()
	if err != nil {
		return s.unheard(err)
	}
	if err := Behind(s.cat.Name(), now, told); err != nil {
		return &BladeError{Blade: b, Name: s.opts.bladeName(b), Err: err, What: "it was told of a later revision"}
	}
	return nil
}

// Tell has the blades that are up remember at which revision the catalog is, as far as this process knows: no opening takes an earlier
// one for the catalog. A word that is damaged is replaced. It costs nothing if there is no other revision than the last time. It belongs
// to c, and takes the lock.
func (s *store) Tell(c *rdma.Coro) error {
	s.mu.Lock()
	rev, told := s.rev, s.told
	s.mu.Unlock()
	v := s.View()
	if rev == told || s.opts.ReadOnly {
		return nil
	}
	var batch rdma.Batch
	words := make([]uint64, v.Blades()) // as they were seen last
	left := make([]rdma.BladeID, 0, v.Blades())
	for b := range v.Blades() {
		if id := rdma.BladeID(b); v.Up(id) && v.Key(id) != 0 {
			left = append(left, id)
		}
	}
	all := left
	for tries := 0; len(left) > 0 && tries < maxTells; tries++ { // each time that it fails a later revision may be there
		batch.Reset()
		for _, b := range left {
			batch.CAS(rdma.RemoteAddr{Blade: b, Key: v.Key(b), Off: layout.ToldOffset}, words[b], layout.ToldWord(rev))
		}
		if err := c.Do(&batch); err != nil {
			return fmt.Errorf("memory: telling the blades of revision %d of the catalog: %w", rev, err)
		}
		var again []rdma.BladeID
		for i, b := range left {
			is := batch.Result(i)
			if now, ok := layout.ParseTold(is); is != words[b] && (!ok || now < rev) {
				words[b] = is
				again = append(again, b)
			}
		}
		left = again
	}
	if len(left) == 0 && len(all) == v.UpBlades() {
		s.mu.Lock()
		s.told = rev
		s.mu.Unlock()
	}
	return nil
}

// maxTells bounds how often in a row a word of a blade changes while it is told of a revision.
const maxTells = 10
