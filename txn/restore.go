package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"txnode/index/tree"
	"txnode/internal/owndir"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn/snapshot"
)

// Limits of the transactions that load a backup.
const (
	restoreRecords = 64
	restoreBytes   = 32 << 10
)

// Restore loads a backup that Backup has written into the database, which must
// have no tables. The backup is verified to its last byte before anything is
// written. All tables appear at once, when everything is loaded. After an error
// there are none, and what was written is freed by the next Restore, or the next
// opening of the database. Another process that has the database open is memory.ErrShared, and
// none opens it before Restore has returned. For each record of a hash table 16 bytes
// are kept in memory until the table's index is built.
func (db *DB) Restore(ctx context.Context, src io.ReadSeeker, o BackupOptions) (snapshot.Info, error) {
	r, err := snapshot.Open(&heedingReader{src, ctx}, nil)
	if err == nil {
		err = db.restore(ctx, r, o)
	}
	if err != nil {
		return snapshot.Info{}, fmt.Errorf("txn: restore: %w", err)
	}
	return r.Info(), nil
}

// heedingReader reads until a context ends.
type heedingReader struct {
	io.ReadSeeker
	ctx context.Context
}

func (r *heedingReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, canceled(r.ctx)
	}
	return r.ReadSeeker.Read(p)
}

// RestoreDir makes a database in the directory dir from a backup. dir must not exist or be empty;
// directories above it are made. Zero options take the geometry of the database that was copied.
// Blades become larger if the copy needs that: with fewer blades, more backups, larger segments, or
// another layout.
//
// A new directory appears when everything is in it and flushed to disk, whatever o.Durability is.
// Until then, or for good after a crash, it is called dir.restoring, where a long name of dir is
// cut. A directory that exists must be this user's, and stays; it may be a link or a mount point.
// Until everything is there it has nothing but a directory called restoring; then it gets the
// files, the catalog last. A failure leaves nothing behind, nor does a panic of ro.Progress. The
// database is for this user alone.
func RestoreDir(ctx context.Context, src io.ReadSeeker, dir string, o Options, ro BackupOptions) (info snapshot.Info,
	err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("txn: restore to %s: %w", dir, err)
		}
	}()
	if dir == "" {
		return info, errors.New("a directory needs a name")
	}
	files, err := os.ReadDir(dir)
	there := err == nil
	// A disk that is new, and mounted there, has that.
	files = slices.DeleteFunc(files, func(f fs.DirEntry) bool { return f.IsDir() && f.Name() == "lost+found" })
	switch {
	case len(files) == 1 && files[0].Name() == restoring && files[0].IsDir():
		return info, fmt.Errorf("%s exists: another restore is at work or has died; remove it if there is none",
			filepath.Join(dir, restoring))
	case len(files) > 0:
		return info, fmt.Errorf("the directory is not empty: name a new one, or remove what is in it")
	case !there && !errors.Is(err, fs.ErrNotExist):
		return info, err
	}
	r, err := snapshot.Open(&heedingReader{src, ctx}, nil)
	if err != nil {
		return info, err
	}
	to, err := filepath.Abs(dir) // dir may end in a slash, or be a dot
	if err != nil {
		return info, err
	}
	part, whole := filepath.Join(filepath.Dir(to), partName(filepath.Base(to))), false
	above := missing(filepath.Dir(to))
	defer func() {
		if !whole {
			for _, d := range above {
				_ = os.Remove(d) // one that is in use by now is not empty
			}
		}
	}()
	if there {
		if _, err := owndir.Dir(to); err != nil {
			return info, err
		}
		part = filepath.Join(to, restoring)
	} else if st, err := os.Lstat(to); err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return info, fmt.Errorf("it is a link, and what it leads to is not there: make that directory, or name another")
	} else if err := embedded.MakeDir(filepath.Dir(to)); err != nil {
		return info, err
	}
	if err := os.Mkdir(part, owndir.DirMode); errors.Is(err, fs.ErrExist) {
		return info, fmt.Errorf("%s exists: another restore is at work or has died; remove it if there is none", part)
	} else if err != nil {
		return info, err
	}
	defer func() {
		if !whole {
			err = errors.Join(err, os.RemoveAll(part))
		}
	}()
	o.Dir, o.ReadOnly = part, false
	open := o.BladeSize == 0
	o.like(r.Header())
	for tries := 0; ; tries++ {
		err := restoreInto(ctx, r, o, ro)
		var full *memory.NoSpaceError
		if err == nil {
			break
		}
		if !errors.As(err, &full) || full.Backing != nil {
			return info, err
		}
		if !open || tries == maxLarger {
			return info, &noRoomError{size: o.BladeSize, blades: o.Blades, copies: *o.Backups + 1, full: full}
		}
		if err := removeFiles(part); err != nil {
			return info, err
		}
		o.BladeSize = roomier(o.BladeSize, o.SegmentSize)
	}
	if err := syncFiles(part); err != nil {
		return info, err
	}
	if there {
		err = moveFiles(part, to)
	} else {
		err = os.Rename(part, to)
	}
	if err != nil {
		return info, err
	}
	whole = true
	if there {
		return r.Info(), embedded.Sync(to)
	}
	return r.Info(), embedded.Sync(filepath.Dir(to))
}

// partName is what a new directory is called until everything is in it. Its length is bounded,
// since that of names is: of a long one it is the beginning, and a number that stands for the rest.
func partName(name string) string {
	const most = 64
	if len(name) > most {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name))
		name = fmt.Sprintf("%s-%08x", strings.ToValidUTF8(name[:most], ""), h.Sum32())
	}
	return name + ".restoring"
}

// like fills in what is left open of the geometry.
func (o *Options) like(h *snapshot.Header) {
	if o.Blades == 0 {
		o.Blades = h.Blades
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = h.SegmentSize
	}
	if o.LogArea == 0 {
		o.LogArea = h.LogArea
	}
	if o.Backups == nil {
		o.Backups = F(h.Backups)
	}
	if o.BladeSize == 0 {
		o.BladeSize = roomFor(h, o.Blades, *o.Backups, o.SegmentSize)
		least, _, _ := o.leastBladeSize()
		o.BladeSize = max(o.BladeSize, roundUp(least))
	}
}

// noRoomError is an ErrNoSpace: the blades that were asked for are too small for a backup.
type noRoomError struct {
	size           uint64
	blades, copies int
	full           *memory.NoSpaceError
}

// Error says which, and what to ask for. Nothing can be deleted to make room, and there is
// nothing to be reopened.
func (e *noRoomError) Error() string {
	return fmt.Sprintf("%v: %d blades of %d bytes are too small for %d copies of what was copied (none for another "+
		"segment of %s): give a larger BladeSize, or none, and one is chosen",
		memory.ErrNoSpace, e.blades, e.size, e.copies, e.full.What)
}

// Unwrap returns what found no room.
func (e *noRoomError) Unwrap() error { return e.full }

// restoreInto makes a database from a backup in a directory that is empty. It is closed, also
// when a panic unwinds.
func restoreInto(ctx context.Context, r *snapshot.Reader, o Options, ro BackupOptions) (err error) {
	db, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if e := db.Close(context.WithoutCancel(ctx)); err == nil {
			err = e
		}
	}()
	return db.restore(ctx, r, ro)
}

// maxLarger is how often a restore begins anew with larger blades, when those that it has are full.
const maxLarger = 4

// roomier is the size of blades when those of a size were full. What is not used of it takes
// no room on a disk.
func roomier(size uint64, segment uint32) uint64 {
	return roundUp(size + max(size/4, 8*uint64(segment)))
}

// bladeUnit is what sizes of blades are multiples of.
const bladeUnit = 64 << 10

func roundUp(size uint64) uint64 {
	return min((size+bladeUnit-1)/bladeUnit*bladeUnit, 1<<46)
}

// removeFiles empties a directory.
func removeFiles(dir string) error {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
	}
	return err
}

// moveFiles moves the files of a database to the directory above, in which it does not appear
// before its catalog does.
func moveFiles(from, to string) (err error) {
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	var names, moved []string
	defer func() {
		if err != nil {
			for _, name := range moved {
				err = errors.Join(err, os.Remove(name))
			}
		}
	}()
	for _, f := range files {
		if f.Name() != embedded.CatalogName {
			names = append(names, f.Name())
		}
	}
	for _, name := range append(names, embedded.CatalogName) {
		if name == embedded.CatalogName { // what it describes has its names
			if err := embedded.Sync(to); err != nil {
				return err
			}
		}
		at := filepath.Join(to, name)
		if _, err := os.Lstat(at); err == nil {
			return fmt.Errorf("%s has come to be meanwhile, and is left: something else uses the directory", at)
		}
		if err := os.Rename(filepath.Join(from, name), at); err != nil {
			return err
		}
		moved = append(moved, at)
	}
	moved = nil // it is there, whatever else may lie in from by now
	_ = os.Remove(from)
	return nil
}

// missing lists the directories that have to be made for one, itself first, and those above it.
func missing(dir string) (list []string) {
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return list
		}
		list = append(list, dir)
		dir = filepath.Dir(dir)
	}
}

// roomFor is the size of blades that have room for what was copied, if there are so many of
// them, and so many backups: fewer blades have to be larger, and so have those of more copies,
// and of larger segments.
func roomFor(h *snapshot.Header, blades, backups int, segment uint32) uint64 {
	if blades < 1 || backups < 0 || blades >= h.Blades && backups <= h.Backups && segment <= h.SegmentSize {
		return h.BladeSize
	}
	// As large a share of their rooms is needed, and a segment more of each purpose is begun:
	// of larger ones, of each class of blocks. What is not used takes no room on a disk.
	more := 4 * float64(max(segment, h.SegmentSize))
	if segment > h.SegmentSize {
		more += float64(layout.NumClasses) * float64(backups+1) / float64(blades) * float64(segment)
	}
	have := float64(h.BladeSize) * float64(h.Blades) / float64(h.Backups+1)
	need := have*float64(backups+1)/float64(blades) + more
	return max(h.BladeSize, roundUp(uint64(math.Ceil(min(need, 1<<46)))))
}

// syncFiles makes the files in a directory durable, and their names.
func syncFiles(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := embedded.Sync(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return embedded.Sync(dir)
}

// restore loads a backup. Until all of its tables are there they are such as are being
// dropped: after a crash, or an error, the next opening of the database frees what there is of
// them, or the next restore.
func (db *DB) restore(ctx context.Context, r *snapshot.Reader, o BackupOptions) (err error) {
	if db.isClosed() {
		return ErrClosed
	}
	if err := db.space.BeginAlone(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.space.EndAlone()) }()
	switch names, err := db.Tables(); {
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("the database has tables already: restore into a new one")
	}
	left, ordered := leftOut(r.Tables()), 0
	options := make([]tableOptions, len(r.Tables()))
	for i, t := range r.Tables() {
		if options[i], err = decodeTableOptions(t.Options); err != nil {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
		for k := range options[i].Indexes {
			left.index(&options[i], t.Name, &options[i].Indexes[k])
		}
		if options[i].Index == indexOrdered {
			ordered++
		}
	}
	w, err := db.ownWorker(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }() // also when o.Progress panics
	end, err := db.beginDrop(ctx, w)
	if err != nil {
		return err
	}
	defer end()
	if err := db.finishDrops(ctx, w, 0, func(*layout.Table) bool { return true }); err != nil {
		return fmt.Errorf("freeing what a restore before has left: %w", err)
	}
	l, err := db.newLoaders(ctx, w, ordered, o.Progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	tables := map[uint16]*occ.Table{}
	for i, t := range r.Tables() { // each is a change of the catalog
		if ctx.Err() != nil {
			return canceled(ctx)
		}
		if tables[t.ID], err = db.loadTable(w, t.Name, options[i]); err != nil {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
	}
	add := func(table uint16, key, value []byte) error { return l.add(tables[table], key, value) }
	if err := r.Records(nil, add); err != nil {
		return err
	}
	if err := l.flush(); err != nil {
		return err
	}
	var changes []memory.TableChange
	for _, of := range r.Tables() {
		t := tables[of.ID]
		var root layout.Addr
		if t.Ordered != nil {
			root = t.Ordered.Root()
		} else if root, err = l.bulk.index(t); err != nil {
			return err
		}
		changes = append(changes, memory.TableChange{ID: t.ID, Root: root})
	}
	if db.opts.Durability == DurabilityPower { // no log has what was written in bulk
		flush := func(c *rdma.Coro) error { return db.space.FlushSegments(c, layout.KindBlocks, layout.KindIndex) }
		db.ctlMu.Lock()
		err := db.withBlades(flush)
		db.ctlMu.Unlock()
		if err != nil {
			return err
		}
	}
	if err := db.space.ChangeTables(changes...); err != nil || len(left) == 0 {
		return err
	}
	for i, t := range r.Tables() {
		if tables[t.ID], err = db.table(t.Name, options[i], false); err != nil {
			return err
		}
	}
	return db.dropStrays(ctx, w, r.Tables(), left, tables)
}

// loadTable makes a table that nobody can find yet.
func (db *DB) loadTable(w *Worker, name string, o tableOptions) (*occ.Table, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	nodes := layout.Class(0)
	switch o.Index {
	case indexHash:
		if o.MaxKey = 0; db.opts.LeafIndex {
			nodes = tree.LeafClass
		}
	case indexOrdered:
		if nodes, err = tree.Fit(o.MaxKey); err != nil {
			return nil, fmt.Errorf("%w: its MaxKey is %d: %w", ErrOptions, o.MaxKey, err)
		}
	default:
		return nil, fmt.Errorf("%w: it has an index %q, which this program does not know", ErrTableType, o.Index)
	}
	meta, err := db.space.LoadTable(name, options, nodes, o.MaxKey)
	t := &occ.Table{ID: meta.ID, Name: name, Hashed: o.Index == indexHash && nodes != 0}
	if err != nil || o.Index == indexHash {
		return t, err
	}
	if meta.Root, err = w.newNodes(t, nodes); err != nil {
		return nil, err
	}
	return db.withTree(t, meta)
}

// restoring is where in a directory that was there a restore is made.
const restoring = "restoring"
