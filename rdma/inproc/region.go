package inproc

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"txnode/rdma"
)

// region is the memory of one blade.
type region struct {
	mem      []byte
	file     *os.File // nil: anonymous
	readOnly bool
	key      atomic.Uint32
}

func mapRegion(o BladeOptions) (*region, error) {
	r := &region{readOnly: o.ReadOnly}
	prot := unix.PROT_READ | unix.PROT_WRITE
	if o.Size == 0 || o.Size%(1<<16) != 0 || o.Size > 1<<47 {
		return nil, fmt.Errorf("inproc: blade of %d bytes: the size must be a multiple of 64 KiB and at most 128 TiB", o.Size)
	}
	if o.Path == "" {
		m, err := anonymous(o.Size, o.HugePages)
		if err != nil {
			return nil, err
		}
		r.mem = m
	} else {
		f, err := os.OpenFile(o.Path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("inproc: blade file: %w", err)
		}
		st, err := f.Stat()
		if err == nil && st.Size() > int64(o.Size) {
			err = fmt.Errorf("file %s has %d bytes, more than the blade's %d", o.Path, st.Size(), o.Size)
		}
		if err == nil && st.Size() < int64(o.Size) {
			err = f.Truncate(int64(o.Size))
		}
		if err == nil {
			r.mem, err = unix.Mmap(int(f.Fd()), 0, int(o.Size), prot, unix.MAP_SHARED)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("inproc: blade file %s: %w", o.Path, err)
		}
		r.file = f
	}
	r.key.Store(uint32(o.Key))
	return r, nil
}

// anonymous maps zeroed memory, on explicit huge pages if asked for and
// reserved, else on transparent ones where the kernel grants them.
func anonymous(size uint64, explicit bool) ([]byte, error) {
	prot := unix.PROT_READ | unix.PROT_WRITE
	flags := unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE
	if explicit {
		m, err := unix.Mmap(-1, 0, int(size), prot, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB)
		if err != nil {
			return nil, fmt.Errorf("inproc: %d bytes on reserved huge pages (see /proc/sys/vm/nr_hugepages): %w", size, err)
		}
		return m, nil
	}
	m, err := unix.Mmap(-1, 0, int(size), prot, flags)
	if err != nil {
		return nil, fmt.Errorf("inproc: %d bytes of memory: %w", size, err)
	}
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // a hint; small pages work too
	return m, nil
}

// provision gives [off, off+n) of a file disk blocks now, so that a full disk is
// an error here and not a fault later.
func (r *region) provision(off, n uint64) error {
	if off > uint64(len(r.mem)) || n > uint64(len(r.mem))-off {
		return fmt.Errorf("inproc: provisioning [%#x, +%#x) of a region of %#x bytes: %w", off, n, len(r.mem), rdma.ErrNoMemory)
	}
	if r.file == nil {
		return nil
	}
	err := unix.Fallocate(int(r.file.Fd()), 0, int64(off), int64(n))
	switch {
	case err == nil || errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("inproc: %s: %w: %w", r.file.Name(), rdma.ErrNoMemory, err)
	default:
		return fmt.Errorf("inproc: %s: %w", r.file.Name(), err)
	}
}

func (r *region) flush(off, n uint64) error {
	if r.file == nil {
		return nil
	}
	page := uint64(os.Getpagesize())
	lo := off &^ (page - 1)
	hi := min((off+n+page-1)&^(page-1), uint64(len(r.mem)))
	if hi <= lo {
		return nil
	}
	return unix.Msync(r.mem[lo:hi], unix.MS_SYNC)
}

func (r *region) close() error {
	err := unix.Munmap(r.mem)
	r.mem = nil
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	return err
}

func (r *region) base() unsafe.Pointer { return unsafe.Pointer(&r.mem[0]) }
