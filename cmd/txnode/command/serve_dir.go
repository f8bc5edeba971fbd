package command

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
	"txnode/memory/layout"
)

// bladeDir is the directory of txnode serve --dir, which one process has at a time:
//
//	LOCK               locked by that process; as in the directory of a database, so neither takes
//	                   the other's
//	blades.json        identity and size of each blade: written last, when the files are there
//	boot               the life of the host in which the files were in use last, and whether they
//	                   were written to the disk since
//	blade-000.region   the memory of blade 0
type bladeDir struct {
	dir   string
	lock  *os.File
	ids   []string // 32 hexadecimal digits each, for ever
	sizes []byteSize
}

const (
	bladesFile   = "blades.json"
	bladesFormat = 1
)

// bladesJSON is the content of blades.json.
type bladesJSON struct {
	Format int         `json:"format"`
	Blades []bladeJSON `json:"blades"`
}

type bladeJSON struct {
	ID    string `json:"id"`
	Bytes uint64 `json:"bytes"`
}

// openBladeDir locks a directory, and makes the files of the blades if there are none. asked are
// the sizes that blades must have, nil: those that they have, or fresh ones if there are none yet.
func openBladeDir(dir string, asked, fresh []byteSize) (*bladeDir, error) {
	d := &bladeDir{dir: dir}
	if err := d.take(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, bladesFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.sizes = fresh
		err = d.make()
	case err == nil:
		if err = d.read(text); err == nil && asked != nil && !slices.Equal(asked, d.sizes) {
			has, wants := sizeList(d.sizes), sizeList(asked)
			err = fmt.Errorf("it has blades of %v, and %v was asked for; leave the sizes out, or take "+
				"another directory", &has, &wants)
		}
	}
	if err == nil {
		err = d.begin()
	}
	if err != nil {
		return nil, errors.Join(err, d.unlock())
	}
	return d, nil
}

const bootFile = "boot"

// bootID tells one life of the host from others; "": the system does not say. Tests have others.
var bootID = func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// begin notes that the files are in use in this life of the host. If they were in use in another
// one, and were not written to the disk then, each region is told: layout.DoubtOffset.
func (d *bladeDir) begin() error {
	now := bootID()
	if now == "" {
		return nil
	}
	path := filepath.Join(d.dir, bootFile)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if was, inUse := strings.CutSuffix(string(text), " in use\n"); inUse && was != now {
		for i := range d.sizes {
			if err := doubt(d.path(i)); err != nil {
				return err
			}
		}
	}
	return writeWhole(path, []byte(now+" in use\n"))
}

// doubt notes in a region that what was written last may be missing.
func doubt(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var word [8]byte
	if _, err = f.ReadAt(word[:], layout.ToldOffset); err == nil && word != [8]byte{} {
		if _, err = f.WriteAt(word[:], layout.DoubtOffset); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// end writes the files to the disk, and notes that. Nothing has them mapped any more.
func (d *bladeDir) end() error {
	now := bootID()
	if now == "" {
		return nil
	}
	for i := range d.sizes {
		f, err := os.OpenFile(d.path(i), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return writeWhole(filepath.Join(d.dir, bootFile), []byte(now+" written\n"))
}

// take locks the directory without waiting.
func (d *bladeDir) take() error {
	f, err := os.OpenFile(filepath.Join(d.dir, "LOCK"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = eintr.Repeat(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		owner, _ := io.ReadAll(io.LimitReader(f, 64)) // for the message only
		if s := strings.TrimSpace(string(owner)); strings.HasPrefix(s, "process ") {
			return errors.Join(fmt.Errorf("%s has it open; end it first, or take another directory", s), f.Close())
		}
		return errors.Join(errors.New("another process has it open; end it first, or take another directory"),
			f.Close())
	}
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(fmt.Appendf(nil, "process %d\n", os.Getpid()), 0)
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	d.lock = f
	return nil
}

// path is the file of a blade.
func (d *bladeDir) path(blade int) string {
	return filepath.Join(d.dir, fmt.Sprintf("blade-%03d.region", blade))
}

// make makes the files. Those that an end in the middle has left have no content.
func (d *bladeDir) make() error {
	there, err := filepath.Glob(filepath.Join(escapeGlob(d.dir), "blade-*.region"))
	if err != nil {
		return err
	}
	for _, path := range there {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err
		}
		if st.Blocks != 0 {
			return fmt.Errorf("%s is there without %s: it is of a database, or of blades whose %s is lost; take "+
				"another directory", filepath.Base(path), bladesFile, bladesFile)
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	content := bladesJSON{Format: bladesFormat}
	for i, n := range d.sizes {
		if err := makeSparse(d.path(i), int64(n)); err != nil {
			return err
		}
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		d.ids = append(d.ids, hex.EncodeToString(id[:]))
		content.Blades = append(content.Blades, bladeJSON{d.ids[i], uint64(n)})
	}
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(d.dir, bladesFile), append(text, '\n'))
}

// escapeGlob is a path as a pattern that means itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// makeSparse makes a file of holes, durably.
func makeSparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// writeWhole writes a file that is there as a whole or not at all, and the directory with it,
// durably.
func writeWhole(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// read takes identities and sizes over, and looks whether the files are there.
func (d *bladeDir) read(text []byte) error {
	var c bladesJSON
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return fmt.Errorf("%s is damaged: %w", bladesFile, err)
	}
	if c.Format != bladesFormat {
		return fmt.Errorf("%s is of format %d, and this program knows %d", bladesFile, c.Format, bladesFormat)
	}
	if len(c.Blades) == 0 || len(c.Blades) > maxBlades {
		return fmt.Errorf("%s is damaged: it has %d blades", bladesFile, len(c.Blades))
	}
	for i, b := range c.Blades {
		if id, err := hex.DecodeString(b.ID); err != nil || len(id) != 16 {
			return fmt.Errorf("%s is damaged: blade %d has the identity %q", bladesFile, i, b.ID)
		}
		st, err := os.Stat(d.path(i))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s is missing: bring it back, or take another directory: a database has copies on "+
				"other blades", filepath.Base(d.path(i)))
		case err != nil:
			return err
		case uint64(st.Size()) != b.Bytes:
			return fmt.Errorf("%s has %d bytes, and %s says %d: bring it back, or take another directory",
				filepath.Base(d.path(i)), st.Size(), bladesFile, b.Bytes)
		}
		d.ids = append(d.ids, b.ID)
		d.sizes = append(d.sizes, byteSize(b.Bytes))
	}
	return nil
}

// close ends the use of the files, and unlocks the directory.
func (d *bladeDir) close() error { return errors.Join(d.end(), d.unlock()) }

// unlock unlocks the directory.
func (d *bladeDir) unlock() error {
	return errors.Join(d.lock.Truncate(0), d.lock.Close())
}
