package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"txnode/check"
	"txnode/history"
)

// ednWriter writes the windows of a history to files of their own: h.edn, h.2.edn, ...
type ednWriter struct {
	path    string
	windows int
}

func (e *ednWriter) window(txns []history.Txn) error {
	e.windows++
	path := e.path
	if e.windows > 1 {
		ext := filepath.Ext(path)
		path = fmt.Sprintf("%s.%d%s", strings.TrimSuffix(path, ext), e.windows, ext)
	}
	return writeEDN(path, func(w io.Writer) error { return check.WriteElle(w, txns) })
}

// writeEDN writes a history to a file.
func writeEDN(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
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
