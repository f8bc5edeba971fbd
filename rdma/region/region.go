package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
	"txnode/internal/oslimit"
	"txnode/rdma"
)

// region is the memory of one blade.
type region struct {
	mem      []byte
	size     uint64
	file     *os.File // nil: anonymous
	memfd    *os.File // memory that other processes map; nil: it is of this one alone, or a file
	readOnly bool
	attached bool // another process has it, and changes the keys
	// words tell what opens it; doubtful there: a flush has failed. The system forgets then what
	// it could not write, and says of the next one that all is well.
	*words
	mu    sync.Mutex // for changes of keys, and what follows
	keys  rdma.Keys  // that open it
	fault error      // why it was stopped last; nil: it was told to, or by another process
	// For Stats, under mu.
	provisioned     Spans
	grants, revokes uint64
	refs            int // of the set, and of queue pairs; under the set's mu
	// witnesses are more handles on the file, that no flush has at present: see flush.
	// lent is how many have one, and one that gives it back says so.
	witnesses []*os.File
	lent      int
	witnessMu sync.Mutex
	returned  sync.Cond
}

// accessKey is the oldest key of the region, also if it is stopped.
func (r *region) accessKey() rdma.Key { return rdma.Key(r.oldest.Load()) }

// begin lets verbs in, with the keys that there are then.
func (r *region) begin() {
	r.publish(&r.keys)
	r.oldest.Store(uint64(r.keys.Oldest()))
}

// sizeUnit divides the size of every region: it is a multiple of any page size
// in use, and of the word's.
const sizeUnit = 1 << 16

// mapRegion maps a region. It has o.File from then on, also if it fails.
func mapRegion(o Options, seed, life uint64) (r *region, err error) {
	defer func() {
		if err != nil && r == nil && o.File != nil {
			err = errors.Join(err, o.File.Close())
		}
	}()
	if o.Size == 0 || o.Size%sizeUnit != 0 || o.Size > 1<<46 {
		return nil, fmt.Errorf("rdma: blade of %d bytes: the size must be a multiple of 64 KiB, from 64 KiB to 64 TiB",
			o.Size)
	}
	r = &region{size: o.Size, readOnly: o.ReadOnly, attached: o.File != nil, refs: 1}
	r.returned.L = &r.witnessMu
	if r.words, err = wordsIn(o.Words); err != nil {
		return nil, err
	}
	switch {
	case o.File != nil && (o.Path != "" || o.HugePages || o.Shared || o.Words == nil):
		err = errors.New("rdma: a region of another process has no path and no memory of its own, and it has that " +
			"process's control words")
	case o.File != nil:
		err = r.attach(o.File)
	case o.Shared && (o.Path != "" || o.HugePages):
		err = errors.New("rdma: shared memory is neither a file nor on reserved huge pages")
	case o.Shared:
		r.memfd, r.mem, err = shared(o.Size)
	case o.Path != "" && o.HugePages:
		err = fmt.Errorf("rdma: blade file %s: a file cannot be on huge pages", o.Path)
	case o.Path != "":
		err = r.mapFile(&o)
	case o.HugePages:
		r.mem, err = hugePages(o.Size)
	default:
		r.mem, err = anonymous(o.Size)
	}
	if err != nil {
		return nil, err
	}
	if !r.attached {
		r.keys = rdma.NewKeys(o.Key, seed)
		r.incarnation.Store(life)
		r.begin()
	}
	return r, nil
}

// attach maps the memory of another process's region, and has f from then on. It is sealed
// memory, whose size cannot change, or a file, of which parts may turn out not to be there.
func (r *region) attach(f *os.File) error {
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = errors.New("it is neither memory nor a regular file")
	case uint64(st.Size()) != r.size:
		err = fmt.Errorf("it has %d bytes, and the region %d", st.Size(), r.size)
	}
	prot := unix.PROT_READ | unix.PROT_WRITE
	if r.readOnly {
		prot = unix.PROT_READ
	}
	if err == nil {
		r.mem, err = unix.Mmap(int(f.Fd()), 0, int(r.size), prot, unix.MAP_SHARED)
	}
	if err != nil {
		return fmt.Errorf("rdma: the memory of another process's region: %w", oslimit.Explain(err))
	}
	notForked(r.mem)
	if sealed(f) {
		r.memfd = f
		adviseHuge(r.mem)
		return nil
	}
	r.file = f
	if err := r.firstWitness(); err != nil {
		r.file = nil
		return errors.Join(err, unix.Munmap(r.mem))
	}
	return nil
}

// firstWitness makes a handle on the file, so that there is one when there are no descriptors left.
func (r *region) firstWitness() error {
	if r.readOnly {
		return nil
	}
	w, err := reopen(r.file)
	if err != nil {
		return fmt.Errorf("rdma: blade file %s: another handle on it: %w", r.file.Name(), err)
	}
	r.witnesses = append(r.witnesses, w)
	return nil
}

// mapFile maps a file, made or extended as needed; of a read-only blade it must
// be there, in full size.
func (r *region) mapFile(o *Options) error {
	path := o.Path
	mode, prot := os.O_RDWR|os.O_CREATE, unix.PROT_READ|unix.PROT_WRITE
	if r.readOnly {
		mode, prot = os.O_RDONLY, unix.PROT_READ
	}
	f, err := os.OpenFile(path, mode, 0o600)
	if err != nil {
		return fmt.Errorf("rdma: blade file: %w", oslimit.Explain(err))
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = errors.New("not a regular file")
	case st.Size() > int64(r.size):
		err = fmt.Errorf("it has %d bytes, more than the blade's %d", st.Size(), r.size)
	case st.Size() < int64(r.size) && r.readOnly:
		err = fmt.Errorf("it has %d bytes, fewer than the read-only blade's %d", st.Size(), r.size)
	case st.Size() < int64(r.size):
		if err = f.Truncate(int64(r.size)); err == nil {
			err = syncNew(f)
		}
	}
	for _, part := range o.Reserve {
		if err == nil && !r.readOnly {
			err = reserve(f, part[0], part[1])
		}
	}
	if err == nil {
		r.mem, err = unix.Mmap(int(f.Fd()), 0, int(r.size), prot, unix.MAP_SHARED)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("rdma: blade file %s: %w", path, oslimit.Explain(err)), f.Close())
	}
	r.file = f
	if err := r.firstWitness(); err != nil {
		return errors.Join(err, r.close())
	}
	for _, part := range o.Settle {
		off := min(part[0], r.size)
		n := min(part[1], r.size-off)
		if n == 0 || r.readOnly {
			continue
		}
		err := guard(r.mem, func() { redirty(r.mem[off : off+n]) })
		if err == nil {
			err = r.flush(off, n)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("rdma: blade file %s: writing what the system has of it in memory to "+
				"the disk: %w", path, err), r.close())
		}
	}
	return nil
}

// touch has the system write a page again.
func touch(page []byte) { atomic.AddUint64((*uint64)(unsafe.Pointer(&page[0])), 0) }

// syncNew makes size and name of a file durable: FLUSH speaks of contents only.
func syncNew(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// provision gives [off, off+n) of a file disk blocks now, so that a full disk is
// an error here and not a fault later.
func (r *region) provision(off, n uint64) error {
	if off > r.size || n > r.size-off {
		return fmt.Errorf("rdma: provisioning [%#x, +%#x) of a region of %#x bytes: %w",
			off, n, r.size, rdma.ErrNoMemory)
	}
	if r.file == nil || r.readOnly || n == 0 {
		return nil
	}
	return reserve(r.file, off, n)
}

// msync is unix.Msync, but in tests.
var msync = unix.Msync

// errDoubtful is what a flush after one that has failed fails with.
var errDoubtful = errors.New("rdma: a flush has failed before: what the disk has is not known")

// witnessed is what the system says of writes of a range, but in tests.
var witnessed = writesFailed

// flush writes the pages that [off, off+n) touches to the file's disk. After an error every
// other flush fails, too, until the file is opened again.
//
// The system reports an error once to each handle on a file, and the mapping has one. Of
// flushes at the same time it might tell another one than that whose pages were not written,
// so each asks by a handle that is its own.
func (r *region) flush(off, n uint64) error {
	if r.file == nil || n == 0 {
		return nil
	}
	if r.doubtful.Load() != 0 {
		return errDoubtful
	}
	page := uint64(pageSize)
	lo := off &^ (page - 1)
	hi := (off + n + page - 1) &^ (page - 1)
	w, err := r.witness()
	if err != nil {
		return err
	}
	err = eintr.Repeat(func() error { return msync(r.mem[lo:hi], unix.MS_SYNC) })
	err = errors.Join(err, witnessed(w, lo, hi-lo))
	r.witnessMu.Lock()
	r.witnesses = append(r.witnesses, w)
	r.lent--
	r.witnessMu.Unlock()
	r.returned.Signal()
	if err != nil {
		r.doubtful.Store(1)
	}
	return err
}

// reopen is openAgain, but in tests.
var reopen = openAgain

// witness takes a handle on the file that nobody else has. While the process cannot have one
// more, it waits for one of those that there are: a flush that fails is taken for a disk that
// does.
func (r *region) witness() (*os.File, error) {
	r.witnessMu.Lock()
	defer r.witnessMu.Unlock()
	if len(r.witnesses) == 0 {
		w, err := reopen(r.file)
		if err == nil || r.lent == 0 {
			if err == nil {
				r.lent++
			}
			return w, err
		}
		for len(r.witnesses) == 0 {
			r.returned.Wait()
		}
	}
	n := len(r.witnesses) - 1
	w := r.witnesses[n]
	r.witnesses = r.witnesses[:n]
	r.lent++
	return w, nil
}

func (r *region) close() error {
	var w words // what is told of the region from now on: the memory of its words may vanish
	w.oldest.Store(r.oldest.Load())
	w.incarnation.Store(r.incarnation.Load())
	r.words = &w
	err := unix.Munmap(r.mem)
	r.mem = nil
	for _, f := range []*os.File{r.file, r.memfd} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	for _, w := range r.witnesses {
		err = errors.Join(err, w.Close())
	}
	r.witnesses = nil
	return err
}

func (r *region) base() unsafe.Pointer { return unsafe.Pointer(&r.mem[0]) }
