//go:build !linux

package shm

import (
	"context"
	"fmt"

	"txnode/rdma"
	"txnode/rdma/region"
)

// Server is for Linux.
type Server struct{}

// Fabric is for Linux.
type Fabric struct{ rdma.Fabric }

// NewServer returns an error that is ErrOptions.
func NewServer(dir string, o ServerOptions) (*Server, error) {
	if err := o.complete(dir); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: blades in shared memory are known on Linux only: use package tcp", ErrOptions)
}

// Dial returns an error that is ErrOptions.
func Dial(_ context.Context, dir string, o Options) (*Fabric, error) {
	if err := o.complete(dir); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: blades in shared memory are known on Linux only: use package tcp", ErrOptions)
}

// Ask returns an error that is ErrOptions.
func Ask(ctx context.Context, dir, _ string, o Options) ([]byte, error) {
	_, err := Dial(ctx, dir, o)
	return nil, err
}

// Set is for Linux.
func (*Server) Set() *region.Set { return nil }

// Connections is for Linux.
func (*Server) Connections() int { return 0 }

// Serve is for Linux.
func (*Server) Serve() error { return rdma.ErrClosed }

// Close is for Linux.
func (*Server) Close() error { return nil }
