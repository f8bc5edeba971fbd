package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
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
	Records uint64 `json:"records"` // of all tables in the copy
	Entries uint64 `json:"entries"` // of secondary indexes, likewise
	Changes uint64 `json:"changes"` // transactions that committed meanwhile, those past the cut included
	Bytes   uint64 `json:"bytes"`   // of the file
	// Skipped is how many records and parts of tables were left out because they are damaged:
	// see txn.BackupOptions. Parts of tables that were dropped before the end count here, and
	// are not in the file.
	Skipped uint64 `json:"skipped,omitempty"`
}

// count adds what tables have.
func (i *Info) count(tables []Table) {
	for n := range tables {
		i.Records += tables[n].Records
		i.Entries += tables[n].Entries
	}
}

// MaxPending is how many bytes of changes a Writer keeps at most until they are written.
const MaxPending = 64 << 20

// Writer writes a backup. One goroutine, the copying pass, calls Base, Flush and Finish, which
// write. Commit only keeps what transactions have changed meanwhile, and never waits for the
// file: any goroutine may call it.
type Writer struct {
	w     io.Writer
	base  []byte // payload of the next frame of base records
	frame []byte
	sum   uint64 // of the last frame
	bases uint64 // base records, of which a key may have several
	info  Info
	spare [][]byte
	// frames counts the frames that were written.
	frames atomic.Uint64

	mu      sync.Mutex
	pending [][]byte // payloads of frames of changes
	changes uint64
	sealed  bool // no more of them
	bytes   int  // of pending, and of what is being written of it
	err     error
}

// NewWriter begins a backup with its header. w is written to in pieces of up to
// some megabytes.
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

// failed is the first error, after which nothing is written.
func (s *Writer) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail sets the first error, and returns it.
func (s *Writer) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	return s.err
}

// write writes a frame.
func (s *Writer) write(k kind, payload []byte) error {
	if err := s.failed(); err != nil {
		return err
	}
	if len(payload) > maxPayload {
		return s.fail(fmt.Errorf("%w: a frame of %d bytes, the limit is %d", ErrTooLarge, len(payload), maxPayload))
	}
	f := s.frame[:0]
	f = append(f, byte(k), 0, 0, 0)
	f = binary.LittleEndian.AppendUint32(f, uint32(len(payload)))
	f = append(f, payload...)
	s.sum = sum(s.sum, f)
	f = binary.LittleEndian.AppendUint64(f, s.sum)
	s.frame = f
	if err := writeAll(s.w, f); err != nil {
		return s.fail(err)
	}
	s.info.Bytes += uint64(len(f))
	s.frames.Add(1)
	return nil
}

// Base adds a record as the pass found it. Both slices are copied.
func (s *Writer) Base(table uint16, key, value []byte) error {
	if len(key) > math.MaxUint16 || uint64(len(value)) >= deleted {
		return fmt.Errorf("%w: a key of %d bytes and a value of %d", ErrTooLarge, len(key), len(value))
	}
	s.base = appendEntry(s.base, table, key, value, false)
	s.bases++
	if len(s.base) >= frameSize {
		if err := s.flushBase(); err != nil {
			return err
		}
	}
	if s.Pending() < frameSize {
		return s.failed()
	}
	return s.flushPending()
}

// Flush writes what Base and Commit have kept.
func (s *Writer) Flush() error {
	if err := s.flushBase(); err != nil {
		return err
	}
	return s.flushPending()
}

func (s *Writer) flushBase() error {
	if len(s.base) == 0 {
		return s.failed()
	}
	err := s.write(kindBase, s.base)
	s.base = s.base[:0]
	return err
}

func (s *Writer) flushPending() error {
	s.mu.Lock()
	changes := s.pending
	s.pending = s.spare[:0]
	s.mu.Unlock()
	for _, p := range changes {
		err := s.write(kindChange, p)
		s.mu.Lock()
		s.bytes -= len(p)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	clear(changes)
	s.spare = changes
	return s.failed()
}

// seal has Commit take no more, unless something of it waits.
func (s *Writer) seal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = len(s.pending) == 0
	return s.sealed
}

// total is what has been written, and kept.
func (s *Writer) total() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Changes = s.changes
	return s.info
}

// Frames is how many frames have been written.
func (s *Writer) Frames() uint64 { return s.frames.Load() }

// Pending is how many bytes of changes wait to be written.
func (s *Writer) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Commit keeps what the transaction with a number of the serial order has written, for the next
// Flush. When more than MaxPending bytes wait, the backup has failed: ErrBehind.
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
	if s.sealed {
		return errFinished
	}
	if s.err == nil && s.bytes > MaxPending {
		s.err = ErrBehind
	}
	if s.err != nil {
		s.pending = nil
		return s.err
	}
	s.changes++
	s.bytes += len(p)
	s.pending = append(s.pending, p)
	return nil
}

// Finish ends the copy: it is the state after all transactions with numbers up to
// cut, all of which have been passed to Commit, or did not commit. tables are all
// that records were written of, at least; what they say they have is not compared with that.
func (s *Writer) Finish(cut uint64, tables []Table) (Info, error) {
	for last := false; !last; last = s.seal() {
		if err := s.Flush(); err != nil {
			return s.total(), err
		}
	}
	for i := range tables {
		if err := tables[i].Validate(); err != nil {
			return s.total(), err
		}
	}
	p, err := json.Marshal(end{Cut: cut, Records: s.bases, Changes: s.total().Changes, Tables: tables})
	if err != nil {
		return s.total(), fmt.Errorf("snapshot: the list of tables: %w", err)
	}
	if err := s.write(kindEnd, p); err != nil {
		return s.total(), err
	}
	s.info.count(tables)
	_ = s.fail(errFinished)
	return s.total(), nil
}
