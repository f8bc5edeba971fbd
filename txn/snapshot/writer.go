package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sync"
)

// frameSize is from how many bytes on a frame of base records is written.
const frameSize = 64 << 10

// Change is one write of a transaction. The bytes are the caller's again after
// the call they were passed to.
type Change struct {
	Table      uint16
	Key, Value []byte
	Deleted    bool
}

// Info is what a copy consists of.
type Info struct {
	Records uint64 `json:"records"` // base records, of which a key may have several
	Changes uint64 `json:"changes"` // transactions that committed meanwhile, those past the cut included
	Bytes   uint64 `json:"bytes"`   // of the file
}

// Writer writes a backup. Safe for concurrent use: the copying pass writes base
// records while transactions that commit write their changes.
type Writer struct {
	mu    sync.Mutex
	w     io.Writer
	base  []byte // payload of the next frame of base records
	frame []byte
	sum   uint64 // of the last frame
	info  Info
	err   error
}

// NewWriter begins a backup with its header. w is written to in pieces of up to
// some megabytes, from the goroutines of transactions that commit, too: it should
// be a file rather than a slow network.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Format = Format
	p, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("snapshot: header: %w", err)
	}
	s := &Writer{w: w}
	if err := writeAll(w, []byte(magic)); err != nil {
		return nil, err
	}
	s.info.Bytes = uint64(len(magic))
	if err := s.write(kindHeader, p); err != nil {
		return nil, err
	}
	return s, nil
}

// writeAll writes p. A writer that takes less of it, and says nothing, would leave a backup that
// is found damaged when it is needed.
func writeAll(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("snapshot: writing: %w", err)
	}
	return nil
}

// write writes a frame; the caller holds the lock.
func (s *Writer) write(k kind, payload []byte) error {
	if s.err != nil {
		return s.err
	}
	if len(payload) > maxPayload {
		s.err = fmt.Errorf("%w: a frame of %d bytes, the limit is %d", ErrTooLarge, len(payload), maxPayload)
		return s.err
	}
	f := s.frame[:0]
	f = append(f, byte(k), 0, 0, 0)
	f = binary.LittleEndian.AppendUint32(f, uint32(len(payload)))
	f = append(f, payload...)
	s.sum = sum(s.sum, f)
	f = binary.LittleEndian.AppendUint64(f, s.sum)
	s.frame = f
	if s.err = writeAll(s.w, f); s.err != nil {
		return s.err
	}
	s.info.Bytes += uint64(len(f))
	return nil
}

// Base adds a record as the pass found it. Both slices are copied.
func (s *Writer) Base(table uint16, key, value []byte) error {
	if len(key) > math.MaxUint16 || uint64(len(value)) >= deleted {
		return fmt.Errorf("%w: a key of %d bytes and a value of %d", ErrTooLarge, len(key), len(value))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = appendEntry(s.base, table, key, value, false)
	s.info.Records++
	if len(s.base) < frameSize {
		return s.err
	}
	return s.flush()
}

func (s *Writer) flush() error {
	if len(s.base) == 0 {
		return s.err
	}
	err := s.write(kindBase, s.base)
	s.base = s.base[:0]
	return err
}

// Commit adds what the transaction with a number of the serial order has written.
func (s *Writer) Commit(number uint64, changes []Change) error {
	n := 8
	for i := range changes {
		c := &changes[i]
		if len(c.Key) > math.MaxUint16 || uint64(len(c.Value)) >= deleted {
			return fmt.Errorf("%w: a key of %d bytes and a value of %d", ErrTooLarge, len(c.Key), len(c.Value))
		}
		n += entryHead + len(c.Key) + len(c.Value)
	}
	p := binary.LittleEndian.AppendUint64(make([]byte, 0, n), number)
	for i := range changes {
		c := &changes[i]
		p = appendEntry(p, c.Table, c.Key, c.Value, c.Deleted)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Changes++
	return s.write(kindChange, p)
}

// Finish ends the copy: it is the state after all transactions with numbers up to
// cut, all of which have been passed to Commit, or did not commit. tables are all
// that records were written of, at least.
func (s *Writer) Finish(cut uint64, tables []Table) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.flush(); err != nil {
		return s.info, err
	}
	for i := range tables {
		if err := tables[i].Validate(); err != nil {
			return s.info, err
		}
	}
	p, err := json.Marshal(end{Cut: cut, Records: s.info.Records, Changes: s.info.Changes, Tables: tables})
	if err != nil {
		return s.info, fmt.Errorf("snapshot: the list of tables: %w", err)
	}
	if err := s.write(kindEnd, p); err != nil {
		return s.info, err
	}
	s.err = errFinished
	return s.info, nil
}
