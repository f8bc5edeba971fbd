// Package peercred tells which user the peer of a unix socket is, where the system says so.
package peercred
