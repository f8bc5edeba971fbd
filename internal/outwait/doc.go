// Package outwait has a caller go when its context ends, whatever its call waits for. It is the one
// place where the data path leaves something to a goroutine: only callers that heed a context come
// here, and none does where time is virtual.
package outwait
