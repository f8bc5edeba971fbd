package rdmatest

import (
	"bytes"
	"fmt"

	"txnode/rdma"
)

var _ rdma.Stopper = (*Fabric)(nil)

// StopBlade stops a blade: rdma.Stopper. What has arrived and is not placed is
// lost; a READ or WRITE that is being copied is completed, like one that was
// faster than the failure.
func (f *Fabric) StopBlade(b rdma.BladeID) error {
	if int(b) >= len(f.mem) {
		return fmt.Errorf("rdmatest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if f.down[b] {
		return nil
	}
	f.down[b] = true
	for _, p := range f.ports {
		p.qps[b].landing = nil
	}
	return nil
}

// RestartBlade brings a blade back: rdma.Stopper.
func (f *Fabric) RestartBlade(b rdma.BladeID, memory bool) error {
	if int(b) >= len(f.mem) {
		return fmt.Errorf("rdmatest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if !f.down[b] {
		return nil
	}
	if !memory {
		for at := uint64(0); at < f.o.Size; at += rdma.LineSize {
			if line := f.bytes(b, at, rdma.LineSize); !bytes.Equal(line, make([]byte, len(line))) {
				clear(line)
				f.changed(b, at, rdma.LineSize)
			}
		}
	}
	f.down[b] = false
	f.lives[b]++
	f.keys[b].Renew()
	return nil
}
