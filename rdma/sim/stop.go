package sim

import (
	"fmt"

	"txnode/rdma"
)

var _ rdma.Stopper = (*Fabric)(nil)

// StopBlade stops a blade: rdma.Stopper. It is the fault "restart" without an end.
func (f *Fabric) StopBlade(b rdma.BladeID) error {
	if int(b) >= len(f.blades) {
		return fmt.Errorf("sim: blade %d of %d: %w", b, len(f.blades), rdma.ErrBladeDown)
	}
	f.proc().sync()
	if bl := f.blades[b]; f.now >= bl.down {
		f.restart(bl, &Fault{Kind: FaultRestart, Thread: -1, Blade: int(b), Memory: true})
	}
	return nil
}

// RestartBlade brings a blade back: rdma.Stopper.
func (f *Fabric) RestartBlade(b rdma.BladeID, memory bool) error {
	if int(b) >= len(f.blades) {
		return fmt.Errorf("sim: blade %d of %d: %w", b, len(f.blades), rdma.ErrBladeDown)
	}
	f.proc().sync()
	bl := f.blades[b]
	if f.now >= bl.down {
		return nil
	}
	if !memory {
		bl.mem.reset()
	}
	bl.down = f.now
	f.trace.note(f.now, "back", uint64(b), uint64(bl.keys.Oldest()))
	return nil
}
