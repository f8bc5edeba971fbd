package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"txnode/check"
	"txnode/history"
)

// ednWriter writes the windows of a history to files of their own: h.edn, h.2.edn, ...
type ednWriter struct {
	path    string
	mode    fs.FileMode
	windows int
}

func (e *ednWriter) window(txns []history.Txn) error {
	e.windows++
	path := e.path
	if e.windows > 1 {
		before, ext := splitWindow(path)
		path = fmt.Sprintf("%s.%d%s", before, e.windows, ext)
	}
	return writeEDN(path, e.mode, func(w io.Writer) error { return check.WriteElle(w, txns) })
}

// splitWindow cuts the name of a history where the numbers of its windows stand.
func splitWindow(path string) (before, ext string) {
	ext = filepath.Ext(path)
	return strings.TrimSuffix(path, ext), ext
}

// apartFromWindows fails if one of the files has a name that a window of the history may get:
// h.2.edn, of h.edn.
func apartFromWindows(edn string, paths ...string) error {
	if edn == "" {
		return nil
	}
	before, ext := splitWindow(place(edn))
	for _, path := range paths {
		if path == "" {
			continue
		}
		number, of := strings.CutPrefix(place(path), before+".")
		number, is := strings.CutSuffix(number, ext)
		if _, err := strconv.ParseUint(number, 10, 64); of && is && err == nil {
			return usagef("%s would be written over: --history %s numbers its files so: name another", path, edn)
		}
	}
	return nil
}

// writeEDN writes a history to a file.
func writeEDN(path string, mode fs.FileMode, write func(io.Writer) error) error {
	f, err := create(path, mode)
	if err != nil {
		return fmt.Errorf("no history: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("history %s: %w", path, err)
	}
	return nil
}
