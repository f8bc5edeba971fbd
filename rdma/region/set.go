package region

import (
	"errors"
	"fmt"
	"runtime"
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
	// a write has failed it forgets that, and what is read from its memory is on no disk. So what is
	// read of them is durable. None: the program that had the file before has promised nothing.
	Settle [][2]uint64
	// Reserve are parts of the file, offsets and lengths, that were provisioned once, and get
	// disk blocks again when it is mapped if it is a copy that has holes there.
	Reserve [][2]uint64
	// Key is the first access key; 0: one that is drawn from the seed.
	Key rdma.Key
}

// Set is the regions of one host, the lanes that execute requests on them, and
// the fence of their keys. A blade's id is the index of its region. Methods are
// safe for concurrent use.
type Set struct {
	regions []*region
	barrier barrier
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
}

// New maps the regions. Errors name the blade and its file.
func New(c Config) (*Set, error) {
	if len(c.Regions) == 0 || len(c.Regions) > 1<<12 {
		return nil, fmt.Errorf("rdma: %d blades: at least 1 and at most 4096 are possible", len(c.Regions))
	}
	s := &Set{keep: c.KeepFaulty, lanes: map[*Lane]struct{}{}}
	s.barrier.init()
	life := uint64(time.Now().UnixNano()) // whatever the seed: files outlive the set that maps them
	for i, o := range c.Regions {
		r, err := mapRegion(o, c.Seed+uint64(i)*0x9e3779b97f4a7c15, life)
		if err != nil {
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
	for _, r := range s.regions {
		if r.file == nil {
			return false
		}
	}
	return true
}

// Blades lists the regions with their oldest keys; a stopped one has its last.
func (s *Set) Blades() []rdma.BladeInfo {
	out := make([]rdma.BladeInfo, len(s.regions))
	for i, r := range s.regions {
		out[i] = rdma.BladeInfo{ID: rdma.BladeID(i), Size: r.size, Key: r.accessKey(), ReadOnly: r.readOnly, Incarnation: r.life.Load()}
	}
	return out
}

// Mappings tells where the regions are, by blade. They stay there until Close.
func (s *Set) Mappings() []rdma.Mapping {
	maps := make([]rdma.Mapping, len(s.regions))
	for i, r := range s.regions {
		maps[i] = rdma.Mapping{Base: r.base(), Size: r.size}
	}
	return maps
}

// Provision reserves disk space behind a range of a file: rdma.Fabric.
func (s *Set) Provision(b rdma.BladeID, off, n uint64) error {
	return s.control(b, func(r *region) error {
		if r.stopped() {
			return r.stoppedError(b)
		}
		return r.provision(off, n)
	})
}

// Grant adds an access key to a region: rdma.Fabric.
func (s *Set) Grant(b rdma.BladeID) (k rdma.Key, err error) {
	err = s.control(b, func(r *region) error {
		if r.stopped() {
			return r.stoppedError(b)
		}
		keys := *r.keys.Load()
		k = keys.Grant()
		r.setKeys(keys)
		return nil
	})
	return k, err
}

// Revoke ends the access keys of a region that are older than before, and returns when no
// request with one of them is in progress: rdma.Fabric. It waits for each lane that is
// executing, at most a batch long.
func (s *Set) Revoke(b rdma.BladeID, before rdma.Key) error {
	return s.control(b, func(r *region) error {
		if r.stopped() {
			return r.stoppedError(b)
		}
		keys := *r.keys.Load()
		if !keys.Revoke(before) {
			return fmt.Errorf("rdma: blade %d: key %#x opens nothing: %w", b, before, rdma.ErrStaleKey)
		}
		r.setKeys(keys)
		s.settle()
		return nil
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

// settle returns when no request is in progress that was let in by the keys as
// they were before; s.mu is held.
func (s *Set) settle() {
	s.barrier.all()
	for l := range s.lanes {
		for n := l.executing(); n%2 == 1 && l.executing() == n; {
			runtime.Gosched()
		}
	}
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
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}
