//go:build !amd64

package addrcache

// prefetch does nothing: the line is loaded when it is needed.
func prefetch(*line) {}
