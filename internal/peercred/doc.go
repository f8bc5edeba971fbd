// Package peercred tells which user, and which process, the peer of a unix socket is, where
// the system says so.
package peercred
