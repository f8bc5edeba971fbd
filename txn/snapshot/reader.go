package snapshot

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Reader reads a backup that has been verified. It belongs to one goroutine.
type Reader struct {
	src    io.ReadSeeker
	header Header
	info   Info
	bases  uint64
	end    end
	counts map[uint16]uint64 // of base records and changed keys, by table
	// last is, for each key that changes up to the cut have written, the number of
	// the last of them.
	last map[string]uint64
}

// Open verifies a backup from its first byte to its last, and reads its header.
// The memory it takes is that of the keys that changed while the backup was
// taken. progress, which may be nil, is told how many bytes have been read.
func Open(src io.ReadSeeker, progress func(bytes uint64)) (*Reader, error) {
	r := &Reader{src: src, last: map[string]uint64{}, counts: map[uint16]uint64{}}
	// The cut is known at the end: what is past it is taken out then, unless it hides
	// an earlier change, so the changes of a key are kept in order until then.
	later := map[string][]uint64{}
	ended := false
	err := r.frames(progress, func(n uint64, k kind, p []byte) error {
		if (n == 0) != (k == kindHeader) {
			return fmt.Errorf("%w: frame %d has kind %d", ErrDamaged, n, k)
		}
		if ended {
			return fmt.Errorf("%w: something follows its end", ErrDamaged)
		}
		switch k {
		case kindHeader:
			if err := json.Unmarshal(p, &r.header); err != nil {
				return fmt.Errorf("%w: header: %w", ErrDamaged, err)
			}
			if r.header.Format != Format {
				return fmt.Errorf("%w: it has format %d, this program reads %d", ErrFormat, r.header.Format, Format)
			}
		case kindBase:
			for len(p) > 0 {
				var e entry
				var err error
				if e, p, err = nextEntry(p); err != nil {
					return err
				}
				if e.gone {
					return fmt.Errorf("%w: frame %d: a deletion among records", ErrDamaged, n)
				}
				r.counts[e.table]++
				r.bases++
			}
		case kindChange:
			if len(p) < 8 {
				return fmt.Errorf("%w: frame %d is too short", ErrDamaged, n)
			}
			number := binary.LittleEndian.Uint64(p)
			for p = p[8:]; len(p) > 0; {
				var e entry
				var err error
				if e, p, err = nextEntry(p); err != nil {
					return err
				}
				id := keyID(e.table, e.key)
				if later[id] == nil { // however often it has changed
					r.counts[e.table]++
				}
				later[id] = append(later[id], number)
			}
			r.info.Changes++
		case kindEnd:
			if err := json.Unmarshal(p, &r.end); err != nil {
				return fmt.Errorf("%w: its end: %w", ErrDamaged, err)
			}
			if e := &r.end; e.Records != r.bases || e.Changes != r.info.Changes {
				return fmt.Errorf("%w: %d records and %d changes, its end says %d and %d",
					ErrDamaged, r.bases, r.info.Changes, e.Records, e.Changes)
			}
			ended = true
		default:
			return fmt.Errorf("%w: frame %d has kind %d", ErrDamaged, n, k)
		}
		return nil
	})
	switch {
	case ended && errors.Is(err, ErrDamaged):
		return nil, fmt.Errorf("%w: something follows its end", ErrDamaged)
	case err != nil:
		return nil, err
	case !ended:
		return nil, fmt.Errorf("%w: it ends after %d bytes, before its last frame: it was cut off",
			ErrDamaged, r.info.Bytes)
	}
	if err := r.end.check(r.counts); err != nil {
		return nil, err
	}
	for i := range r.end.Tables {
		r.info.Skipped += r.end.Tables[i].Skipped
	}
	r.info.count(r.end.Tables)
	for id, numbers := range later {
		for _, n := range numbers {
			if n <= r.end.Cut && n >= r.last[id] {
				r.last[id] = n
			}
		}
	}
	return r, nil
}

func keyID(table uint16, key []byte) string {
	return strconv.Itoa(int(table)) + ":" + string(key)
}

// Header describes the copied database.
func (r *Reader) Header() *Header { return &r.header }

// Tables lists the tables of the copied database.
func (r *Reader) Tables() []Table { return r.end.Tables }

// Count is how many records a table has, or more: keys that have changed while the backup was
// taken may count twice.
func (r *Reader) Count(table uint16) uint64 { return r.counts[table] }

// Info is what the file consists of.
func (r *Reader) Info() Info { return r.info }

// frames calls fn for every frame; the payload is valid during the call.
func (r *Reader) frames(progress func(uint64), fn func(n uint64, k kind, payload []byte) error) error {
	if _, err := r.src.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("snapshot: reading: %w", err)
	}
	in := bufio.NewReaderSize(r.src, 1<<20)
	var start [len(magic)]byte
	if _, err := io.ReadFull(in, start[:]); err != nil || string(start[:]) != magic {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("snapshot: reading: %w", err)
		}
		return fmt.Errorf("%w: it does not begin with %q", ErrFormat, magic)
	}
	at := uint64(len(magic))
	var buf []byte
	before := uint64(0)
	for n := uint64(0); ; n++ {
		var head [frameHead]byte
		switch got, err := io.ReadFull(in, head[:]); {
		case errors.Is(err, io.EOF):
			r.info.Bytes = at
			return nil
		case err != nil:
			return cutOff(n, at, got, err)
		}
		size := binary.LittleEndian.Uint32(head[4:])
		if size > maxPayload {
			return fmt.Errorf("%w: frame %d, at byte %d, says that it has %d bytes", ErrDamaged, n, at, size)
		}
		need := frameHead + int(size) + frameTail
		if cap(buf) < need {
			buf = make([]byte, need)
		}
		buf = buf[:need]
		copy(buf, head[:])
		if got, err := io.ReadFull(in, buf[frameHead:]); err != nil {
			return cutOff(n, at, frameHead+got, err)
		}
		body := buf[:need-frameTail]
		before = sum(before, body)
		if binary.LittleEndian.Uint64(buf[need-frameTail:]) != before {
			return fmt.Errorf("%w: frame %d, at byte %d: checksum mismatch", ErrDamaged, n, at)
		}
		at += uint64(need)
		if err := fn(n, kind(body[0]), body[frameHead:]); err != nil {
			return err
		}
		if progress != nil {
			progress(at)
		}
	}
}

// cutOff explains an error within frame n, which begins at a byte, and of which so many were got.
func cutOff(n, at uint64, got int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends after %d bytes, within frame %d, which begins at byte %d: it was cut off",
			ErrDamaged, at+uint64(got), n, at)
	}
	return fmt.Errorf("snapshot: reading: %w", err)
}

// Records calls fn for the records of the copy: those without a change first, in
// an order that means nothing; the last call for a key has its value. (A key that
// was met twice by the copying pass is passed twice.) key and value are valid
// during the call. It ends with the first error of fn.
func (r *Reader) Records(progress func(bytes uint64), fn func(table uint16, key, value []byte) error) error {
	return r.frames(progress, func(_ uint64, k kind, p []byte) error {
		var number uint64
		switch k {
		case kindBase:
		case kindChange:
			number, p = binary.LittleEndian.Uint64(p), p[8:]
		default:
			return nil
		}
		for len(p) > 0 {
			e, rest, err := nextEntry(p)
			if err != nil {
				return err
			}
			p = rest
			last, changed := r.last[keyID(e.table, e.key)]
			if k == kindBase && changed || k == kindChange && (!changed || last != number) || e.gone {
				continue
			}
			if err := fn(e.table, e.key, e.value); err != nil {
				return err
			}
		}
		return nil
	})
}
