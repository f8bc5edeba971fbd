// Package unixsocket makes unix sockets with modes, and removes those that it has made, and no
// others.
package unixsocket
