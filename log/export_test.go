package log

import "encoding/binary"

// Reseal makes the checksum of the record that starts in p right, whatever else
// is wrong with it: so that fuzzing reaches what is behind the checksum.
func Reseal(p []byte) {
	n, err := Peek(p)
	if err != nil || n > len(p) {
		return
	}
	binary.LittleEndian.PutUint64(p[24:], checksum(p[:n]))
}

// Pending is how many reservations the ring remembers.
func (r *Ring) Pending() int { return len(r.spans) }
