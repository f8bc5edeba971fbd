package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"txnode/memory/embedded"
)

// writeFile writes a file by a function. It appears under its name when it is complete, and takes
// the place of one that is there, and is no more readable than that; after an error that one is as
// it was. A device, or what is in a directory in which nothing can be made, is written as it is.
func writeFile(path string, write func(io.Writer) error) error {
	return writeFileAs(0o666, path, write)
}

// writeFileAs is writeFile, and gives a new file a mode.
func writeFileAs(mode fs.FileMode, path string, write func(io.Writer) error) (err error) {
	to, whole := path, true
	if st, err := os.Stat(path); err == nil {
		mode, whole = st.Mode().Perm(), st.Mode().IsRegular()
		if to, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	var f *os.File
	if whole {
		f, err = createPartial(filepath.Dir(to), mode)
		whole = !errors.Is(err, fs.ErrPermission)
	}
	if !whole {
		f, err = create(path, mode)
	}
	if err != nil {
		return err
	}
	if !whole {
		err = errors.Join(write(f), f.Close())
	} else if err = write(f); err == nil {
		err = f.Sync() // closing comes last
	}
	if err != nil && whole {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if whole {
		return errors.Join(os.Rename(f.Name(), to), f.Close())
	}
	return nil
}

// keeping writes until that fails, and keeps the error: who writes goes on, and what it has
// found is not lost with the file.
type keeping struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (k *keeping) Write(p []byte) (int, error) {
	if k.err == nil {
		_, k.err = k.to.Write(p)
	}
	return len(p), nil
}

// writable fails if one of the files cannot be written, before a long run whose results
// go there, or is to be written twice; "" is none. It creates those that there are not, and
// done removes them again if nothing has been written.
func writable(paths ...string) (done func(), err error) { return writableAs(0o666, paths...) }

// writableAs is writable, and gives those files a mode.
func writableAs(mode fs.FileMode, paths ...string) (done func(), err error) {
	var made []string
	done = func() {
		for _, path := range made {
			if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == 0 {
				_ = os.Remove(path) // who fails says why, and of no file of no use
			}
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	if err := distinct(paths...); err != nil {
		return done, err
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		_, missing := os.Lstat(path)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, mode)
		if err != nil {
			return done, err
		}
		if missing != nil {
			made = append(made, path)
		}
		if err := f.Close(); err != nil {
			return done, err
		}
	}
	return done, distinct(paths...) // links to what was not there
}

// distinct fails if two of the names are of one file; "" is none, and a device may be written
// twice.
func distinct(paths ...string) error {
	for i, a := range paths {
		x, missing := os.Stat(a)
		if a == "" || missing == nil && !x.Mode().IsRegular() {
			continue
		}
		for _, b := range paths[:i] {
			one := false
			if y, err := os.Stat(b); err == nil && missing == nil {
				one = os.SameFile(x, y)
			} else if b != "" {
				p, e1 := filepath.Abs(a)
				q, e2 := filepath.Abs(b)
				one = p == q && e1 == nil && e2 == nil
			}
			if one {
				return usagef("%s and %s are one file: name two", b, a)
			}
		}
	}
	return nil
}

// apart fails if one of the files that a command is about to write belongs to the database in dir:
// it lies in that directory, is a link into it, or is another name of a file there. Call it before
// anything is opened. An empty dir is no database, and "" is no file.
func apart(dir string, paths ...string) error {
	if dir == "" {
		return nil
	}
	home := place(dir)
	files, _ := os.ReadDir(dir) // a database that is yet to be made has none
	for _, path := range paths {
		if path == "" {
			continue
		}
		at := place(path)
		if at == home || filepath.Dir(at) == home {
			return usagef("%s is in %s, which is the directory of the database: name a file elsewhere", path, dir)
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		for _, f := range files {
			if of, err := os.Stat(filepath.Join(dir, f.Name())); err == nil && os.SameFile(st, of) {
				return usagef("%s is %s of the database in %s by another name: name another file", path, f.Name(), dir)
			}
		}
	}
	return nil
}

// place is where a name leads, absolute and without links, whether it is there or not.
func place(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for range 40 { // as many links as the system follows
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = filepath.Clean(to)
	}
	above, missing := filepath.Dir(path), filepath.Base(path)
	for {
		if dir, err := filepath.EvalSymlinks(above); err == nil {
			return filepath.Join(dir, missing)
		}
		if above == filepath.Dir(above) {
			return path
		}
		above, missing = filepath.Dir(above), filepath.Join(filepath.Base(above), missing)
	}
}

// allowed is the most readable mode of a file that has something out of the database in dir: nobody
// may read it who may not read the database. The umask of the process applies in addition.
func allowed(dir string) fs.FileMode {
	mode := fs.FileMode(0o666)
	st, err := os.Stat(dir)
	if dir == "" || err != nil {
		return mode
	}
	for _, class := range []fs.FileMode{0o070, 0o007} {
		if st.Mode()&class&0o111 == 0 { // it cannot be entered
			mode &^= class
		}
	}
	for _, path := range append(regionsIn(dir), filepath.Join(dir, embedded.CatalogName)) {
		if st, err := os.Stat(path); err == nil {
			mode &= st.Mode().Perm() | 0o600
		}
	}
	return mode
}

// regionsIn lists the region files in a directory.
func regionsIn(dir string) (paths []string) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if ours, _ := filepath.Match("blade-*.region", f.Name()); ours {
			paths = append(paths, filepath.Join(dir, f.Name()))
		}
	}
	return paths
}

// create makes a file, or empties one that is there, which keeps its mode.
func create(path string, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
}
