package report

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// HistoryFile keeps results in a bbolt file. It is opened for the time of each
// call only, so that several programs can use it in turn. Errors are
// *HistoryError, or ErrNoResult where a result is asked for.
type HistoryFile struct {
	Path string
}

// Names inside the file. The presence of the first bucket says that the file is ours.
var (
	rootBucket    = []byte("txnode history 1")
	resultsBucket = []byte("results") // big-endian ID -> Result in JSON
)

const lockTimeout = time.Second

// Save keeps a result and sets its ID, the next number.
func (h HistoryFile) Save(r *Result) error {
	if err := os.MkdirAll(filepath.Dir(h.Path), 0o700); err != nil {
		return h.wrap(err)
	}
	return h.with(false, func(tx *bbolt.Tx) error {
		root, err := tx.CreateBucketIfNotExists(rootBucket)
		if err != nil {
			return err
		}
		results, err := root.CreateBucketIfNotExists(resultsBucket)
		if err != nil {
			return err
		}
		id, err := results.NextSequence()
		if err != nil {
			return err
		}
		r.ID = id
		value, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return results.Put(historyKey(id), value)
	})
}

// All returns the results, newest first. A file that does not exist has none.
// Results that are damaged, or of a newer schema, are left out and counted.
func (h HistoryFile) All() (results []*Result, unread int, err error) {
	err = h.with(true, func(tx *bbolt.Tx) error {
		return eachResult(tx, func(_ uint64, value []byte) error {
			r, err := DecodeResult(value)
			if errors.Is(err, ErrSchema) {
				unread++
				return nil
			}
			results = append(results, r)
			return err
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	return results, unread, err
}

// Find returns the result of an ID ("12" or "#12"), or the newest of a name.
func (h HistoryFile) Find(ref string) (*Result, error) {
	found, err := h.findAll(ref)
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// findAll finds a result for each reference, or fails.
func (h HistoryFile) findAll(refs ...string) (found []*Result, err error) {
	none := func(ref string) error {
		return fmt.Errorf("%w as %q in %s; see: txnode history list", ErrNoResult, ref, h.Path)
	}
	err = h.with(true, func(tx *bbolt.Tx) error {
		for _, ref := range refs {
			r, err := find(tx, ref)
			if err != nil {
				return err
			}
			if r == nil {
				return none(ref)
			}
			found = append(found, r)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = none(refs[0])
	}
	return found, err
}

// find returns the result of an ID, or the newest of a name; nil: there is none.
func find(tx *bbolt.Tx, ref string) (found *Result, err error) {
	id, isID := parseID(ref)
	err = eachResult(tx, func(k uint64, value []byte) error {
		if found != nil || isID && k != id {
			return nil
		}
		r, err := DecodeResult(value)
		if err != nil {
			if isID {
				return err
			}
			return nil // what cannot be read has no name to look for
		}
		if isID || r.Name == ref && ref != "" {
			found = r
		}
		return nil
	})
	return found, err
}

// Newest returns the newest result of a workload that has at least one run, or ErrNoResult.
func (h HistoryFile) Newest(workload string) (*Result, error) {
	all, _, err := h.All()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Workload == workload && len(r.Runs) > 0 {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w of %s in %s", ErrNoResult, workload, h.Path)
}

// Delete removes results by ID or name, all of them or, where one is not there, none. One that is
// asked for twice is removed, and returned, once.
func (h HistoryFile) Delete(refs ...string) (deleted []*Result, err error) {
	if len(refs) == 0 {
		return nil, nil
	}
	found, err := h.findAll(refs...)
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		if !slices.ContainsFunc(deleted, func(d *Result) bool { return d.ID == r.ID }) {
			deleted = append(deleted, r)
		}
	}
	err = h.with(false, func(tx *bbolt.Tx) error {
		for _, r := range deleted {
			if err := tx.Bucket(rootBucket).Bucket(resultsBucket).Delete(historyKey(r.ID)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

// DeleteAll removes every result, of whatever schema, and returns how many there were.
func (h HistoryFile) DeleteAll() (n int, err error) {
	if _, err := os.Stat(h.Path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	err = h.with(false, func(tx *bbolt.Tx) error {
		var keys []uint64
		if err := eachResult(tx, func(id uint64, _ []byte) error { keys = append(keys, id); return nil }); err != nil {
			return err
		}
		n = len(keys)
		for _, id := range keys {
			if err := tx.Bucket(rootBucket).Bucket(resultsBucket).Delete(historyKey(id)); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// eachResult calls fn for each result, newest first.
func eachResult(tx *bbolt.Tx, fn func(id uint64, value []byte) error) error {
	root := tx.Bucket(rootBucket)
	if root == nil {
		return nil
	}
	results := root.Bucket(resultsBucket)
	if results == nil {
		return nil
	}
	c := results.Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		if len(k) != 8 {
			continue
		}
		if err := fn(binary.BigEndian.Uint64(k), v); err != nil {
			return err
		}
	}
	return nil
}

var (
	// errForeign: a bbolt file, but not a history.
	errForeign = errors.New("is a database of something else")
	// errDamaged: bbolt trips over a page.
	errDamaged = errors.New("is damaged")
	errNoFile  = errors.New("is no file, but a directory, a device or a pipe")
)

// with opens the file and runs fn in a transaction. A file that is damaged in a
// way that bbolt does not notice makes it panic, or fault on its mapping: that
// too becomes an error.
func (h HistoryFile) with(readOnly bool, fn func(tx *bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = h.wrap(errDamaged)
		}
	}()
	st, err := os.Stat(h.Path)
	switch {
	case err == nil && !st.Mode().IsRegular(): // a pipe keeps waiting who opens it
		return h.wrap(errNoFile)
	case err == nil && st.Size() == 0 && readOnly: // as a name for a new one is made
		if p, err := os.ReadFile(h.Path); err != nil || len(p) > 0 {
			return h.wrap(cmp.Or(err, errDamaged))
		}
		return h.wrap(fs.ErrNotExist)
	case err != nil && readOnly:
		return h.wrap(err)
	}
	db, err := bbolt.Open(h.Path, 0o600, &bbolt.Options{Timeout: lockTimeout, ReadOnly: readOnly})
	if err != nil {
		return h.wrap(err)
	}
	defer func() {
		if e := db.Close(); err == nil && e != nil {
			err = h.wrap(e)
		}
	}()
	checked := func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k != nil && tx.Bucket(rootBucket) == nil {
			return errForeign
		}
		return fn(tx)
	}
	if readOnly {
		err = db.View(checked)
	} else {
		err = db.Update(checked)
	}
	return h.wrap(err)
}

func (h HistoryFile) wrap(err error) error {
	if err == nil || errors.Is(err, ErrNoResult) || errors.Is(err, ErrSchema) {
		return err
	}
	hint := "choose another with --history-file or TXNODE_HISTORY"
	var path *fs.PathError
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		err, hint = errors.New("in use by another program"), "try again, or "+hint
	case errors.Is(err, errDamaged):
		hint = "remove it, or " + hint
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		err, hint = errors.New("is no history, or damaged"), "remove it, or "+hint
	case errors.As(err, &path):
		err = path.Err
	}
	if st, e := os.Stat(h.Path); e == nil && st.IsDir() {
		err, hint = errors.New("is a directory"), "name a file in it with --history-file or TXNODE_HISTORY"
	}
	return &HistoryError{Path: h.Path, Err: err, Hint: hint}
}

func parseID(ref string) (uint64, bool) {
	if len(ref) > 0 && ref[0] == '#' {
		ref = ref[1:]
	}
	id, err := strconv.ParseUint(ref, 10, 64)
	return id, err == nil
}

func historyKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }
