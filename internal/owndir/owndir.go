package owndir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Modes of directories and files.
const (
	DirMode  fs.FileMode = 0o700
	FileMode fs.FileMode = 0o600
)

// ErrOthers means that a directory or a file is in other users' hands.
var ErrOthers = errors.New("it is not safe from other users")

// Dir makes a directory, with those above that are missing, or takes one that there is. Files in
// it whose names match one of the patterns (see path/filepath.Match) are those of the program.
// tightened: others had rights to the directory or to these files, and have none any more. A
// directory that has files of other programs alone loses the rights of others to write, and
// keeps those to read.
//
// Errors that match ErrOthers say what is of another user, or a link, and what to do.
func Dir(dir string, patterns ...string) (tightened bool, err error) {
	if err := os.MkdirAll(dir, DirMode); err != nil {
		return false, err
	}
	st, err := Check(dir)
	if err != nil {
		return false, err
	}
	me := uint32(os.Geteuid())
	if owner := ownerOf(st); owner != me && (me == 0 || st.Mode().Perm()&0o002 != 0) {
		return false, fmt.Errorf("%w: %s belongs to user %d, and this is user %d: run as the user of the directory, "+
			"or take one of your own", ErrOthers, dir, owner, me)
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	ours := slices.DeleteFunc(slices.Clone(all), func(e fs.DirEntry) bool { return !matches(e.Name(), patterns) })
	wide := fs.FileMode(0o077)
	if len(ours) == 0 && len(all) > 0 {
		wide = 0o022
	}
	if st.Mode().Perm()&wide != 0 && ownerOf(st) == me {
		if err := os.Chmod(dir, st.Mode().Perm()&^wide); err != nil {
			return false, err
		}
		tightened = true
	}
	for _, e := range ours {
		path := filepath.Join(dir, e.Name())
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			continue
		}
		if err != nil {
			return tightened, err
		}
		switch owner := ownerOf(st); {
		case st.Mode()&fs.ModeSymlink != 0:
			return tightened, fmt.Errorf("%w: %s is a link: put the file itself there", ErrOthers, path)
		case owner != me && owner != 0:
			return tightened, fmt.Errorf("%w: %s belongs to user %d, and this is user %d: have it belong to this "+
				"user (chown), or take another directory", ErrOthers, path, owner, me)
		case st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 && owner == me:
			if err := os.Chmod(path, st.Mode().Perm()&^0o077); err != nil {
				return tightened, err
			}
			tightened = true
		}
	}
	return tightened, nil
}

// Check looks whether a directory is there that is of one of the users, by number, and that others
// cannot write to. It changes nothing. No users: this one and root. A link to a directory must be
// theirs, too. Its errors are those of Dir.
func Check(dir string, users ...uint32) (fs.FileInfo, error) {
	if users == nil {
		users = []uint32{uint32(os.Geteuid()), 0}
	}
	l, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, err
	case !st.IsDir():
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	for _, x := range []fs.FileInfo{l, st} {
		if owner := ownerOf(x); !slices.Contains(users, owner) {
			return nil, fmt.Errorf("%w: %s belongs to user %d, and this is user %d: run as the user of the "+
				"directory, or take one of your own", ErrOthers, dir, owner, os.Geteuid())
		}
	}
	if ownerOf(st) != uint32(os.Geteuid()) && st.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("%w: all users can write to %s: make a directory in it, and take that", ErrOthers, dir)
	}
	return st, nil
}

func matches(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := filepath.Match(p, name)
		return ok && err == nil
	})
}

// ownerOf is the user of a file, by number.
func ownerOf(st fs.FileInfo) uint32 { return st.Sys().(*syscall.Stat_t).Uid }
