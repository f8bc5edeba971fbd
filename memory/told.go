package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// A catalog must not go back: it would hand out room twice, and miss tables. So whatever takes part
// remembers the latest revision that it has seen of it, and refuses an earlier one:
//
//	a process     store.rev; see store.load and store.newer
//	a blade       a word behind its header, in its file if it has one: see Tell. Every opening
//	              compares it, so that processes that
//	              have seen nothing yet are warned, too
//
// No blade is told of a revision before the catalog has it on its disk.

// distrust notes that the catalog cannot be used any more if an error says so, and returns the
// error. The caller holds the lock.
func (s *store) distrust(err error) error {
	if errors.Is(err, layout.ErrForeign) && s.closed == nil && s.view.Load() != nil {
		s.closed = err
	}
	return err
}

// load loads the entries of the catalog, which is not behind the revision that is known. The caller
// holds the lock, which is not held meanwhile, and has the turn.
func (s *store) load() (entries []layout.Entry, rev layout.Revision, err error) {
	s.called(func() { entries, rev, err = s.cat.Load() })
	if err == nil {
		err = layout.Behind(s.cat.Name(), rev, s.rev)
	}
	return entries, rev, s.distrust(err)
}

// Bytes of a buffer for the header of a region and the word behind it.
const (
	headerRoom = layout.HeaderCopies*layout.RegionHeaderSize + layout.RegionHeaderSize
	toldAt     = layout.HeaderCopies * layout.RegionHeaderSize
)

// readHeader reads both copies of a region's header into a buffer of headerRoom bytes, one after
// the other, and what the blade was told of behind them.
func readHeader(c *rdma.Coro, b rdma.BladeID, key rdma.Key, buf uint32) error {
	var batch rdma.Batch
	for i := range layout.HeaderCopies {
		batch.Read(rdma.RemoteAddr{Blade: b, Key: key, Off: layout.HeaderOffset(i)},
			buf+uint32(i)*layout.RegionHeaderSize, layout.RegionHeaderSize)
	}
	batch.Read(rdma.RemoteAddr{Blade: b, Key: key, Off: layout.ToldOffset}, buf+toldAt, 16) // and DoubtOffset
	return c.Do(&batch)
}

// compareTold compares the catalog with what a blade was told of, which readHeader has read: a
// *BehindError, with the name of the blade. The catalog is asked afterwards, since another process
// may have told the blade of a change meanwhile.
func (s *store) compareTold(c *rdma.Coro, b rdma.BladeID, rev layout.Revision, buf uint32) error {
	told, _ := layout.ParseTold(binary.LittleEndian.Uint64(c.Thread().Bytes(buf+toldAt, 8)))
	if told <= rev {
		return nil
	}
	now, err := s.cat.Revision()
	if err != nil {
		return s.unheard(err)
	}
	if err := layout.Behind(s.cat.Name(), now, told); err != nil {
		return &layout.BladeError{
			Blade: b, Name: s.opts.bladeName(b), Err: err, What: "it was told of a later revision",
		}
	}
	return nil
}

// Tell has the blades that are up remember at which revision the catalog is, as far as this process
// knows: no opening takes an earlier one for the catalog. A word that is damaged is replaced. It
// costs nothing if there is no other revision than the last time. In a shared database it also
// stamps the blades (Stamp), if it is time: stampEveryNs. It belongs to c, and takes the lock.
func (s *membership) Tell(c *rdma.Coro) error {
	if s.opts.ReadOnly {
		return nil
	}
	s.mu.Lock()
	rev, told, due := s.rev, s.told, s.stampDue()
	s.mu.Unlock()
	if due {
		return s.Stamp(c)
	}
	if rev == told {
		return nil
	}
	_, err := s.tellAll(c, rev, false)
	return err
}

// telling is of one blade that is told of a revision.
type telling struct {
	at          rdma.RemoteAddr // of its word
	incarnation uint64          // as the catalog has it
	had         layout.Revision // of which it was told before; 0: of none, or its word was damaged
	is          layout.Revision // of which it has been told now, at least
	word        uint64          // as it was seen last
	done        bool
}

// tellAll tells all blades that are up, and that the thread uses, of a revision; durable: so that
// they know of it after a loss of power.
func (s *store) tellAll(c *rdma.Coro, rev layout.Revision, durable bool) ([]telling, error) {
	v, barred := s.View(), c.Thread().Barred()
	s.mu.Lock()
	l, all := s.layout, make([]telling, 0, v.Blades())
	for b := range v.Blades() {
		if id := rdma.BladeID(b); v.Up(id) && v.Key(id) != 0 && barred&rdma.BladeBit(id) == 0 {
			all = append(all, telling{
				at:          rdma.RemoteAddr{Blade: id, Key: v.Key(id), Off: layout.ToldOffset},
				incarnation: l.Blades[b].Incarnation,
			})
		}
	}
	s.mu.Unlock()
	whole, err := tell(c, all, rev, durable)
	if err != nil {
		return nil, fmt.Errorf("memory: telling the blades of revision %d of the catalog: %w", rev, err)
	}
	if whole && len(all) == v.UpBlades() {
		s.mu.Lock()
		s.told = rev
		s.mu.Unlock()
	}
	return all, nil
}

// tell tells blades of a revision, and reports whether all know of it, or of a later one.
func tell(c *rdma.Coro, all []telling, rev layout.Revision, durable bool) (whole bool, err error) {
	var batch rdma.Batch
	for tries := range maxTells { // each time that it fails a later revision may be there
		batch.Reset()
		for i := range all {
			if x := &all[i]; !x.done {
				batch.CAS(x.at, x.word, layout.ToldWord(rev))
			}
		}
		if batch.Len() == 0 {
			break
		}
		if err := c.Do(&batch); err != nil {
			return false, err
		}
		k := 0
		for i := range all {
			x := &all[i]
			if x.done {
				continue
			}
			was := batch.Result(k)
			k++
			now, ok := layout.ParseTold(was)
			if tries == 0 {
				x.had = now
			}
			switch {
			case was == x.word:
				x.is, x.done = rev, true
			case ok && now >= rev:
				x.is, x.done = now, true
			default:
				x.word = was
			}
		}
	}
	whole = true
	batch.Reset()
	for i := range all {
		if whole = whole && all[i].done; durable && all[i].done {
			batch.Flush(all[i].at, 8)
		}
	}
	if batch.Len() > 0 {
		err = c.Do(&batch)
	}
	return whole, err
}

// maxTells bounds how often in a row a word of a blade changes while it is told of a revision.
const maxTells = 10

// Nor must a blade go back: the file of a blade of an hour ago lacks what was committed since. So
// the catalog remembers in turn of which revision each blade was told (Blade.Told), and a region
// that was told of an earlier one is an old copy (Layout.Stale).
//
// Invariant: Blade.Told of a blade that is up <= the revision in its word, also after a loss of
// power. The blade is told first, and flushes its word; then the catalog has it. So the newest
// region is never taken for an old one.
//
// Claim: a copy of a region that was made before a call of Stamp is an old copy after it. Stamp
// notes of each blade the revision had before it tells the blade anything. The word only grows, so
// the copy has at most had. Stamp returns nil when the catalog has Blade.Told > had. If all of that
// were the same revision, nothing has changed in the catalog since the blades were told; then the
// first round of Stamp changes the catalog, and the second one has a later revision.
//
// A session writes nothing before the Stamp of its Space's opening. So what is not noticed is a
// copy of a region, made while sessions were at work, if no Stamp was made after it: they are made
// by Close, and in a shared database every stampEveryNs. It takes a copy that was made in the last
// seconds before all processes died without closing the database.

// Stamp has an old copy of each blade that is up be known as one, if it was made before the call:
// see above. It makes one change of the catalog, or two. It belongs to c, and takes the lock.
func (s *membership) Stamp(c *rdma.Coro) error {
	var had map[rdma.BladeID]layout.Revision
	for range maxStamps {
		s.mu.Lock()
		rev := s.rev
		s.mu.Unlock()
		all, err := s.tellAll(c, rev, true)
		if err != nil {
			return err
		}
		if had == nil {
			had = map[rdma.BladeID]layout.Revision{}
			for i := range all {
				had[all[i].at.Blade] = all[i].had
			}
		}
		if err := s.updateAs(&update{
			turn: true, unwaiting: true,
		}, func() error { return s.noteTold(all) }); err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(x telling) bool { return x.done && x.is <= had[x.at.Blade] }) {
			return nil
		}
	}
	return nil
}

// maxStamps: one for the catalog to have a revision that no blade was told of.
const maxStamps = 2

// noteTold changes the catalog so that it has of what blades were told, if they are those still.
// The caller holds the lock, in a change.
func (s *store) noteTold(all []telling) error {
	if err := s.writable(); err != nil {
		return err
	}
	var changes []layout.Entry
	next := slices.Clone(s.layout.Blades)
	for i := range all {
		x, b := &all[i], &next[all[i].at.Blade]
		if !x.done || b.State != layout.BladeUp || b.Incarnation != x.incarnation {
			continue
		}
		b.Told = max(b.Told, x.is)
		changes = append(changes, layout.EntryOfBlade(x.at.Blade, *b))
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.commit(changes...); err != nil {
		return err
	}
	s.layout.Blades = next
	return nil
}

// stampEveryNs is for how long no process stamps the blades of a shared database while one has it
// open. The process that was registered first stamps them before, after stampFirstNs: else many
// would at once, and all processes follow each stamp.
const (
	stampEveryNs = int64(5_000_000_000)
	stampFirstNs = int64(3_000_000_000)
)

// stampDue reports whether this process is to stamp the blades: see stampEveryNs. The
// caller holds the lock.
func (s *membership) stampDue() bool {
	if !s.opts.Shared || s.closed != nil {
		return false
	}
	last := layout.Revision(0)
	for i := range s.layout.Blades {
		last = max(last, s.layout.Blades[i].Told)
	}
	if now := s.fabric.Now(); last != s.stamped.last || s.stamped.at == 0 {
		s.stamped.last, s.stamped.at = last, max(now, 1)
		return false
	}
	every := stampEveryNs
	if all := s.layout.Processes; len(all) > 0 && all[0].ID == s.process {
		every = stampFirstNs
	}
	return s.fabric.Now()-s.stamped.at >= every
}
