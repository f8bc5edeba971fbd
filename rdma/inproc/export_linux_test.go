package inproc

// ReserveError is what Provision makes of an error of fallocate.
var ReserveError = reserveError
