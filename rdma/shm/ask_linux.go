package shm

import (
	"context"
	"errors"
)

// Ask asks a server of a directory what its program says of itself: ServerOptions.Describe. It maps
// nothing, and waits for Options.Connect and Options.Control. Errors match ErrOptions, ErrRefused,
// ErrProtocol, or rdma.ErrBladeDown for a server that does not answer.
func Ask(ctx context.Context, dir, name string, o Options) ([]byte, error) {
	o.Servers = []string{name}
	if err := o.complete(dir); err != nil {
		return nil, err
	}
	if err := checkDirectory(dir, false); err != nil {
		return nil, err
	}
	p := &peer{f: newFabric(dir, o), name: name, path: socketOf(dir, name)}
	defer p.f.cancel()
	c, _, k, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Control)
	defer cancel()
	a, _, err := do(ctx, c, &call{action: actReport})
	if err == nil {
		err = a.err(name)
	}
	if err != nil {
		err = p.failed(err)
	}
	if err := errors.Join(err, k.Close(), c.Close()); err != nil {
		return nil, err
	}
	return []byte(a.text), nil
}
