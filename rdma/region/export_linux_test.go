package region

import "os"

// ReserveError is what Provision makes of an error of fallocate.
var ReserveError = reserveError

// SetWitnessed replaces what flushes ask behind msync until the function that it returns is
// called.
func SetWitnessed(fn func(f *os.File, off, n uint64) error) (restore func()) {
	was := witnessed
	witnessed = fn
	return func() { witnessed = was }
}

// SetReopen replaces what makes more handles on a file until the function that it returns is
// called.
func SetReopen(fn func(f *os.File) (*os.File, error)) (restore func()) {
	was := reopen
	reopen = fn
	return func() { reopen = was }
}

// SetFallocate replaces what reserves and punches until the function that it returns is called.
func SetFallocate(fn func(fd int, mode uint32, off, n int64) error) (restore func()) {
	was := fallocate
	fallocate = fn
	return func() { fallocate = was }
}
