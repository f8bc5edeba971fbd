package command

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// A process that is killed leaves files that are not complete, and directories of its blades. Each
// is locked by the process that has made it, as long as that is there, and the next command of the
// same kind removes those in the same place that are not locked any more. On a file system without
// locks nothing is removed.

// createPartial makes a file that gets another name when it is complete. Its name does not grow
// with that one, which may be as long as the file system allows. The file must be renamed before it
// is closed, which unlocks it.
func createPartial(dir string, mode fs.FileMode) (*os.File, error) {
	removeLeft(dir, partials, false)
	for {
		path := filepath.Join(dir, fmt.Sprintf("txnode-%08x.partial", rand.Uint32()))
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil || held(f) {
			return f, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// bladesPrefix begins the names of directories that a benchmark makes for its blades. A number
// follows.
const bladesPrefix = "txnode-bench-blades-"

// The names of what is removed: a directory or a file of the user's with a name of its own is none.
var (
	partials = regexp.MustCompile(`^txnode-[0-9a-f]{8}\.partial$`)
	blades   = regexp.MustCompile(`^` + bladesPrefix + `[0-9]+$`)
)

// createDir makes a directory for blades in another one, and locks it until unlock.
func createDir(in string) (path string, unlock func() error, err error) {
	removeLeft(in, blades, true)
	for {
		if path, err = os.MkdirTemp(in, bladesPrefix); err != nil {
			return "", nil, err
		}
		d, err := os.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process has taken it for left
			continue
		case err != nil:
			return "", nil, errors.Join(err, os.Remove(path))
		case held(d):
			return path, d.Close, nil
		}
		if err := d.Close(); err != nil {
			return "", nil, err
		}
	}
}

// held locks what was just made. false: another process has taken it for left before
// that, and removes it.
func held(f *os.File) bool {
	if err := flock(f); errors.Is(err, unix.EWOULDBLOCK) {
		return false
	}
	return inPlace(f)
}

func flock(f *os.File) error {
	return eintr.Repeat(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
}

// inPlace reports whether a file is there under its name.
func inPlace(f *os.File) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(a, b)
}

// removeLeft removes what processes of this user have left that are gone. What cannot be removed
// stays.
func removeLeft(in string, names *regexp.Regexp, dirs bool) {
	if in == "" {
		in = os.TempDir()
	}
	all, _ := os.ReadDir(in) // a directory that cannot be read has nothing to remove
	for _, e := range all {
		if !names.MatchString(e.Name()) || e.IsDir() != dirs || !dirs && !e.Type().IsRegular() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(in, e.Name()), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		err = eintr.Repeat(func() error { return unix.Fstat(int(f.Fd()), &st) })
		if err == nil && int(st.Uid) == os.Geteuid() && flock(f) == nil && inPlace(f) {
			_ = os.RemoveAll(f.Name())
		}
		_ = f.Close() // nothing was written
	}
}
