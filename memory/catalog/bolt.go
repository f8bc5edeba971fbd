package catalog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
	"txnode/internal/oslimit"
	"txnode/internal/owndir"
	"txnode/memory"
	"txnode/memory/layout"
)

// bucket holds all entries; about has the identity of the catalog and its checksum, which earlier
// releases do not know.
var (
	bucket     = []byte("txnode catalog")
	about      = []byte("txnode about")
	aboutEntry = []byte("identity")
)

// Bolt is a catalog in a bbolt file.
type Bolt struct {
	path string
	mu   sync.Mutex
	file *os.File // of db
	db   *bolt.DB
	id   layout.Identity
	rev  layout.Revision // bbolt's number of the last transaction: that of the catalog's changes, and a few more
	// moved tells of changes, and that the catalog is closed.
	moved broadcast
	beats beats
	// broken: bbolt has met a page that is not there. It may hold its own locks for ever, so
	// that it must not be called again.
	broken error
	// doubt: a change is in the file that the disk may not have.
	doubt error
}

var _ layout.Catalog = (*Bolt)(nil)

// OpenBolt opens the catalog at path, or creates it unless readOnly. It does not
// wait for another process to close it: ErrLocked.
func OpenBolt(path string, readOnly bool) (*Bolt, error) {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.Mode().IsRegular() && st.Size() == 0: // bbolt would make it a new one
		return nil, fmt.Errorf("%w: %s is empty", ErrDamaged, path)
	case err == nil && !st.Mode().IsRegular(): // which may keep waiting who opens it
		return nil, fmt.Errorf("%w: %s is no file", ErrDamaged, path)
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("catalog: %w", err)
	case readOnly:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, path)
	default:
		if err := create(path); err != nil {
			return nil, err
		}
	}
	db, file, err := open(path, readOnly)
	if err != nil {
		return nil, err
	}
	b := &Bolt{path: path, file: file, db: db}
	if err := b.identify(readOnly); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// identify notes what tells the catalog from all others, and where it is. A file of an earlier
// release gets an identity when it is opened for writing.
func (b *Bolt) identify(readOnly bool) (err error) {
	defer guard(b.path, &err, &b.broken)()
	err = b.db.View(func(tx *bolt.Tx) error {
		b.rev = layout.Revision(tx.ID()) // bbolt counts up from 0
		if tx.Bucket(bucket) == nil {
			return errors.New("it is a bbolt file of something else")
		}
		_ = tx.Bucket(bucket).ForEach(func(k, v []byte) error { // members have a whole term from now on
			b.beats.changed([]layout.Entry{{Key: string(k), Value: v}})
			return nil
		})
		top := tx.Bucket(about)
		if top == nil {
			return nil
		}
		b.id, err = decodeIdentity(top.Get(aboutEntry))
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, b.path, err)
	}
	if b.id != (layout.Identity{}) || readOnly {
		return nil
	}
	err = eintr.Repeat(func() error {
		return update(b.db, func(tx *bolt.Tx) (err error) {
			b.rev = layout.Revision(tx.ID()) // as above
			b.id, err = newIdentity(tx)
			return err
		})
	})
	if err != nil {
		return roomFor(fmt.Errorf("catalog: %s: %w", b.path, err))
	}
	return nil
}

// newIdentity gives the catalog an identity.
func newIdentity(tx *bolt.Tx) (id layout.Identity, err error) {
	_, _ = rand.Read(id[:]) // never fails
	top, err := tx.CreateBucketIfNotExists(about)
	if err != nil {
		return id, err
	}
	return id, top.Put(aboutEntry, binary.LittleEndian.AppendUint32(id[:], crc32.ChecksumIEEE(id[:])))
}

func decodeIdentity(p []byte) (id layout.Identity, err error) {
	if len(p) != len(id)+crc32.Size || binary.LittleEndian.Uint32(p[len(id):]) != crc32.ChecksumIEEE(p[:len(id)]) {
		return id, fmt.Errorf("its identity is %x", p)
	}
	return layout.Identity(p), nil
}

// create makes an empty catalog under another name and renames it.
func create(path string) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("catalog: %w", err)
	}
	db, _, err := open(tmp, false)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket(bucket); err != nil {
			return err
		}
		_, err := newIdentity(tx)
		return err
	})
	if err = errors.Join(err, db.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return roomFor(fmt.Errorf("catalog: creating %s: %w", path, err))
	}
	return nil
}

// bySystem reports whether err is the system's, which could not open, read, write or map the
// file for a reason that is not in it: rights, descriptors, memory, a full disk. EIO is of what
// cannot be read, and EINVAL of what cannot be mapped.
func bySystem(err error) bool {
	var errno syscall.Errno
	return errors.Is(err, fs.ErrPermission) || errors.As(err, &errno) && errno != unix.EIO && errno != unix.EINVAL
}

// roomFor returns err, as a memory.ErrNoSpace if it is that of a full disk.
func roomFor(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &fullError{err}
	}
	return oslimit.Explain(err)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openFile is os.OpenFile, but in tests.
var openFile = os.OpenFile

// open opens a bbolt file without waiting for its lock.
func open(path string, readOnly bool) (db *bolt.DB, file *os.File, err error) {
	defer func() {
		if err != nil && db == nil && file != nil {
			abandon(file) // bbolt has closed it, or panicked before it could
		}
	}()
	defer guard(path, &err, nil)()
	err = eintr.Repeat(func() (err error) { // bbolt does not repeat its flock and fdatasync
		db, err = bolt.Open(path, owndir.FileMode, &bolt.Options{
			Timeout:  time.Nanosecond,
			ReadOnly: readOnly,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				f, err := openFile(name, flag, mode)
				file = f
				return f, err
			},
		})
		return err
	})
	if err == nil {
		var p *pages
		if p, err = check(file, db); err == nil && !readOnly {
			if failed := settle(file, p); failed != nil { // which is no damage
				return nil, nil,
					errors.Join(fmt.Errorf("catalog: %s: writing what the system has of it in memory to the disk: %w",
						path, failed), db.Close())
			}
		}
		if err != nil {
			err = errors.Join(err, db.Close())
			db = nil
		}
	}
	switch {
	case err == nil:
		return db, file, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, nil, fmt.Errorf("%w: %s is open in another process, or twice in this one", ErrLocked, path)
	case bySystem(err):
		if !strings.Contains(err.Error(), path) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return nil, nil, roomFor(fmt.Errorf("catalog: %w", err))
	default:
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
}

// abandon closes a file that bbolt cannot close. Its mapping stays, and would keep the lock
// beyond the descriptor.
func abandon(file *os.File) {
	_ = eintr.Repeat(func() error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) })
	_ = file.Close()
}

// check looks at the structure of an open file, whose lock is held.
func check(file *os.File, db *bolt.DB) (*pages, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return checkPages(file, info.Size(), db.Info().PageSize)
}

// fsync is os.File.Sync, but in tests.
var fsync = (*os.File).Sync

// settle writes the pages of an open file again, whose lock is held, and flushes it. What is
// read of it may be on no disk: whoever had it open before was killed before he could flush
// it, or was told that the disk had failed, after which the system takes what it has in memory
// for written. Then changes that build on it would be durable, and it not. The copies of the
// meta page come last, as they do in a commit.
func settle(file *os.File, p *pages) error {
	again := func(id uint64) error {
		page, err := p.read(id, 1)
		if err == nil {
			_, err = file.WriteAt(page, int64(id*p.size))
		}
		return err
	}
	for id, used := range p.used {
		if used {
			if err := again(uint64(id)); err != nil {
				return err
			}
		}
	}
	if err := fsync(file); err != nil {
		return err
	}
	if err := errors.Join(again(0), again(1)); err != nil {
		return err
	}
	return errors.Join(fsync(file), syncDir(filepath.Dir(file.Name())))
}

// guard turns panics, and faults on pages of a file that is shorter than it
// claims, into errors: bbolt trusts its pages. broken, if not nil, keeps the error. Call what
// it returns with defer.
func guard(path string, err, broken *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		switch r := recover().(type) {
		case nil:
			return
		case runtime.Error: // what it was that went wrong in bbolt helps nobody
			*err = fmt.Errorf("%w: %s: a page that it points to is not there, or no page", ErrDamaged, path)
		default:
			*err = fmt.Errorf("%w: %s: %v", ErrDamaged, path, r)
		}
		if broken != nil {
			*broken = *err
		}
	}
}

// useless is why the catalog must not be used again, until it is opened anew.
func (b *Bolt) useless() error {
	if b.broken != nil {
		return b.broken
	}
	return b.doubt
}

// Name returns the path.
func (b *Bolt) Name() string { return b.path }

// Identity returns that of the file.
func (b *Bolt) Identity() (layout.Identity, error) { return b.id, nil }

// Load reads all entries.
func (b *Bolt) Load() (out []layout.Entry, rev layout.Revision, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.db == nil {
		return nil, 0, memory.ErrClosed
	}
	if err := b.useless(); err != nil {
		return nil, 0, err
	}
	defer guard(b.path, &err, &b.broken)()
	tx, err := b.db.Begin(false)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = tx.Rollback() }()
	err = tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		if v == nil {
			return fmt.Errorf("%w: %s has a bucket %q", ErrDamaged, b.path, k)
		}
		out = append(out, layout.Entry{Key: string(k), Value: slices.Clone(v)})
		return nil
	})
	return out, b.rev, err
}

// update is bolt.DB.Update, but in tests.
var update = (*bolt.DB).Update

// Apply makes the changes in one transaction, which is on disk when it returns. When the disk
// fails behind the last write of it, they are there for whoever reads the file, and may be
// gone when the power goes: then the catalog is of no use any more until it is opened again.
func (b *Bolt) Apply(rev layout.Revision, changes []layout.Entry) (_ layout.Revision, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.db == nil {
		return 0, memory.ErrClosed
	}
	if err := b.useless(); err != nil {
		return 0, err
	}
	if rev != b.rev {
		return 0, fmt.Errorf("%w: at revision %d, not %d", memory.ErrRevision, b.rev, rev)
	}
	defer guard(b.path, &err, &b.broken)()
	id := 0
	change := func(tx *bolt.Tx) error {
		id = tx.ID()
		top := tx.Bucket(bucket)
		for _, e := range changes {
			var err error
			if e.Value == nil {
				err = top.Delete([]byte(e.Key))
			} else {
				err = top.Put([]byte(e.Key), e.Value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for {
		err = update(b.db, change)
		if !errors.Is(err, unix.EINTR) {
			break
		}
		if last, lastErr := b.last(); lastErr != nil || last >= id {
			break // a signal came behind the last write: the change is there, and in doubt
		}
	}
	if err != nil {
		if last, lastErr := b.last(); lastErr != nil || last >= id {
			b.doubt = fmt.Errorf("catalog: %s: a change may be in the file, and not on its disk; look after the "+
				"disk, and open the database again: %w", b.path, errors.Join(err, lastErr))
		}
		return 0, roomFor(err)
	}
	b.rev = layout.Revision(id) // as in identify
	b.beats.changed(changes)
	b.moved.tell()
	return b.rev, nil
}

// Await waits for a change of this handle: no other one has the file open for writing.
func (b *Bolt) Await(ctx context.Context, after layout.Revision) (layout.Revision, error) {
	return await(ctx, &b.mu, &b.moved, after, b.revision)
}

// Revision returns the revision; ErrClosed.
func (b *Bolt) Revision() (layout.Revision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.revision()
}

// revision is Revision for a caller that holds the lock.
func (b *Bolt) revision() (layout.Revision, error) {
	if b.db == nil {
		return 0, memory.ErrClosed
	}
	return b.rev, nil
}

// KeepAlive notes a sign of life, in memory. It does not wait for changes.
func (b *Bolt) KeepAlive(x layout.Beat) ([]layout.Beat, error) { return b.beats.keepAlive(x) }

// last is the number of the last transaction that a reader sees.
func (b *Bolt) last() (id int, err error) {
	err = b.db.View(func(tx *bolt.Tx) error {
		id = tx.ID()
		return nil
	})
	return id, err
}

// Close closes the file.
func (b *Bolt) Close() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.db == nil {
		return nil
	}
	db := b.db
	b.db = nil
	b.moved.tell()
	if b.broken != nil {
		abandon(b.file)
		return nil // whoever uses it has been told
	}
	defer func() {
		if b.broken != nil {
			abandon(b.file)
		}
	}()
	defer guard(b.path, &err, &b.broken)()
	return db.Close()
}
