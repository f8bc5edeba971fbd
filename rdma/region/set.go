package region

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"txnode/rdma"
)

// Options describe one region.
type Options struct {
	// Size in bytes: a multiple of 64 KiB. Memory is used as it is touched, disk as
	// it is provisioned.
	Size uint64
	// Path of the file behind the region; empty: anonymous memory.
	Path string
	// HugePages asks for explicit huge pages (anonymous memory only), which
	// must have been reserved; Size is a multiple of theirs. Transparent ones are
	// used anyway.
	HugePages bool
	// ReadOnly rejects WRITEs and atomics. A file is opened for reading, and must
	// be there in full size.
	ReadOnly bool
	// Settle are parts of the file, offsets and lengths, that were provisioned once, and that are
	// written to the disk when it is mapped, also those that the system believes to be there: after
	// a write has failed it forgets that, and what is read from its memory is on no disk. So what
	// is read of them is durable. None: the program that had the file before has promised nothing.
	Settle [][2]uint64
	// Reserve are parts of the file, offsets and lengths, that were provisioned once, and get
	// disk blocks again when it is mapped if it is a copy that has holes there.
	Reserve [][2]uint64
	// Key is the first access key; 0: one that is drawn from the seed.
	Key rdma.Key
	// Shared asks for memory that other processes can map, by Set.File: a memfd, whose size
	// cannot change. Transparent huge pages are asked for.
	Shared bool
	// Words is where the control words of the region lie, WordsSize bytes at a multiple of 64, for
	// other processes to see; nil: in this process. They are overwritten, unless there is a File.
	// They stay there until the set is closed.
	Words []byte
	// File is the memory of a region that another process has: that of its Set.File, and Words
	// are its control words. The set has the file from now on, and closes it. The calls of the
	// control path are for that process; here only StopBlade, Replace and Blades work.
	File *os.File
}

// Set is the regions of one host, the lanes that execute requests on them, and
// the fence of their keys. A blade's id is the index of its region. Methods are
// safe for concurrent use.
type Set struct {
	regions []*region // under mu: see Replace
	lines   Lines
	revive  func(b rdma.BladeID)
	files   bool // a region is a file
	keep    bool

	mu     sync.RWMutex
	lanes  map[*Lane]struct{}
	closed bool
}

// Config configures a set.
type Config struct {
	Regions []Options // 1 to 4096
	// Seed of the access keys.
	Seed uint64
	// KeepFaulty: a region of whose file something cannot be accessed is not stopped. A
	// request that meets it fails with StatusIO, and others go on: to look at what is left.
	KeepFaulty bool
	// Lines are those of lanes of several processes; nil: regions are of this process alone.
	Lines Lines
	// Revive is called by Lane.Reset for a blade that is stopped, to bring it back or to Replace
	// it if that can be done. nil: it cannot.
	Revive func(b rdma.BladeID)
}

// New maps the regions. Errors name the blade and its file.
func New(c Config) (*Set, error) {
	if len(c.Regions) == 0 || len(c.Regions) > 1<<12 {
		return nil, fmt.Errorf("rdma: %d blades: at least 1 and at most 4096 are possible", len(c.Regions))
	}
	s := &Set{keep: c.KeepFaulty, lanes: map[*Lane]struct{}{}, lines: c.Lines, revive: c.Revive}
	if s.lines == nil {
		s.lines = newOwn()
	}
	life := uint64(time.Now().UnixNano()) // whatever the seed: files outlive the set that maps them
	for i, o := range c.Regions {
		r, err := mapRegion(o, c.Seed+uint64(i)*0x9e3779b97f4a7c15, life)
		if err != nil {
			for _, later := range c.Regions[i+1:] {
				if later.File != nil {
					err = errors.Join(err, later.File.Close())
				}
			}
			return nil, errors.Join(fmt.Errorf("blade %d: %w", i, err), s.Close())
		}
		s.regions = append(s.regions, r)
		s.files = s.files || r.file != nil
	}
	return s, nil
}

// Files reports whether a region is a file, so that lanes may meet faults: see
// Lane.Guarded.
func (s *Set) Files() bool { return s.files }

// Durable reports whether all regions are files.
func (s *Set) Durable() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.regions {
		if r.file == nil {
			return false
		}
	}
	return true
}

// Blades lists the regions with their oldest keys; a stopped one has its last.
func (s *Set) Blades() []rdma.BladeInfo {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]rdma.BladeInfo, len(s.regions))
	for i, r := range s.regions {
		out[i] = rdma.BladeInfo{
			ID: rdma.BladeID(i), Size: r.size, Key: r.accessKey(), ReadOnly: r.readOnly,
			Incarnation: r.incarnation.Load(),
		}
	}
	return out
}

// Mappings tells where the regions are, by blade. They stay there until Close, but one that is
// replaced.
func (s *Set) Mappings() []rdma.Mapping {
	s.mu.RLock()
	defer s.mu.RUnlock()
	maps := make([]rdma.Mapping, len(s.regions))
	for i, r := range s.regions {
		maps[i] = rdma.Mapping{Base: r.base(), Size: r.size}
	}
	return maps
}

// Provision reserves disk space behind a range of a file: rdma.Fabric.
func (s *Set) Provision(b rdma.BladeID, off, n uint64) error {
	return s.change(b, func(r *region) error {
		if err := r.provision(off, n); err != nil {
			return err
		}
		r.provisioned.Add(off, off+n)
		return nil
	})
}

// Grant adds an access key to a region: rdma.Fabric.
func (s *Set) Grant(b rdma.BladeID) (k rdma.Key, err error) {
	err = s.change(b, func(r *region) error {
		k = r.keys.Grant()
		r.grants++
		r.publish(&r.keys)
		return nil
	})
	return k, err
}

// Revoke ends the access keys of a region that are older than before, and returns when no
// request with one of them is in progress: rdma.Fabric. It waits for each lane that is
// executing, at most a batch long.
func (s *Set) Revoke(b rdma.BladeID, before rdma.Key) error {
	return s.RevokeContext(context.Background(), b, before)
}

// RevokeContext is Revoke, which waits for lanes of other processes no longer than ctx:
// Lines.Settle. The keys have ended then, and requests may be in progress. Other calls of the
// control path do not wait for it.
func (s *Set) RevokeContext(ctx context.Context, b rdma.BladeID, before rdma.Key) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.revoke(b, before); err != nil {
		return err
	}
	return s.lines.Settle(ctx)
}

// revoke changes the keys alone; s.mu is held.
func (s *Set) revoke(b rdma.BladeID, before rdma.Key) error {
	r, err := s.region(b)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.changeable(b); err != nil {
		return err
	}
	if !r.keys.Revoke(before) {
		return fmt.Errorf("rdma: blade %d: key %#x opens nothing: %w", b, before, rdma.ErrStaleKey)
	}
	r.revokes++
	r.publish(&r.keys)
	if !r.setOldest(before) {
		return r.stoppedError(b) // another process has met a fault meanwhile
	}
	return nil
}

// changeable returns an error for a region that is another process's, or stopped; r.mu is held.
func (r *region) changeable(b rdma.BladeID) error {
	switch {
	case r.attached:
		return fmt.Errorf("rdma: blade %d is another process's, which alone can do this", b)
	case r.stopped():
		return r.stoppedError(b)
	}
	return nil
}

// change runs fn on a region of this process that is not stopped, alone on its control path.
func (s *Set) change(b rdma.BladeID, fn func(r *region) error) error {
	return s.control(b, func(r *region) error {
		if err := r.changeable(b); err != nil {
			return err
		}
		return fn(r)
	})
}

// control runs fn on a region, alone on that region's control path; the set stays
// open meanwhile.
func (s *Set) control(b rdma.BladeID, fn func(r *region) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, err := s.region(b)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fn(r)
}

// Replace puts another region in the place of one that is stopped: that of the process that has
// begun anew. Lanes keep the one before until Reset. Errors: that is not stopped, or the new one
// is of another kind; ErrClosed.
func (s *Set) Replace(b rdma.BladeID, o Options) error {
	r, err := mapRegion(o, 0, 0)
	if err != nil {
		return fmt.Errorf("blade %d: %w", b, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err := s.region(b)
	switch {
	case err != nil:
	case !was.stopped():
		err = fmt.Errorf("rdma: blade %d is not stopped", b)
	case was.size != r.size || was.readOnly != r.readOnly || (was.file == nil) != (r.file == nil):
		err = fmt.Errorf("rdma: blade %d has another size than before, or is a file and was memory: connect anew", b)
	}
	if err != nil {
		return errors.Join(err, r.close())
	}
	s.regions[b] = r
	return was.drop()
}

// drop gives up a reference to a region; the set's mu is held.
func (r *region) drop() error {
	if r.refs--; r.refs > 0 {
		return nil
	}
	return r.close()
}

// File is the memory of a region for other processes: sealed memory, or its file. It is open until
// Close; nil: the memory is of this process alone.
func (s *Set) File(b rdma.BladeID) *os.File {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.regions[b]
	if r.file != nil {
		return r.file
	}
	return r.memfd
}

// region returns a blade's region; s.mu is held.
func (s *Set) region(b rdma.BladeID) (*region, error) {
	if s.closed {
		return nil, rdma.ErrClosed
	}
	if int(b) >= len(s.regions) {
		return nil, fmt.Errorf("rdma: blade %d of %d: %w", b, len(s.regions), rdma.ErrBladeDown)
	}
	return s.regions[b], nil
}

// Sync has the system write to the disk whatever it has of a blade's file. Without an error
// nothing that was written to it since it was mapped is in the system's memory alone, whether it
// was flushed or not, unless it is written meanwhile.
func (s *Set) Sync(b rdma.BladeID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.region(b)
	if err != nil {
		return err
	}
	return r.flush(0, r.size)
}

// AdviseHuge asks for transparent huge pages: rdma.PageAdvisor. It is a hint.
func (s *Set) AdviseHuge(p []byte) {
	if skip := -uintptr(unsafe.Pointer(unsafe.SliceData(p))) & uintptr(pageSize-1); skip < uintptr(len(p)) {
		adviseHuge(p[skip:])
	}
}

// AdviseSmall asks for small pages, of which a huge one would take many times what is used:
// rdma.PageAdvisor. It is a hint.
func (s *Set) AdviseSmall(b rdma.BladeID, off, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := uint64(pageSize)
	if r, err := s.region(b); err == nil && off%page == 0 && n%page == 0 && off <= r.size && n <= r.size-off {
		adviseSmall(r.mem[off : off+n])
	}
}

// Close unmaps the memory. Every lane must be closed. To close again does nothing.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.lanes); n > 0 {
		return fmt.Errorf("rdma: %d ports are still open", n)
	}
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, r := range s.regions {
		errs = append(errs, r.drop())
	}
	return errors.Join(errs...)
}
