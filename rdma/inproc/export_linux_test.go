package inproc

// ReserveError is what Provision makes of an error of fallocate.
var ReserveError = reserveError

// SetMsync replaces msync until the function that it returns is called.
func SetMsync(fn func(p []byte, flags int) error) (restore func()) {
	was := msync
	msync = fn
	return func() { msync = was }
}
