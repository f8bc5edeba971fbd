package rdmatest

import (
	"fmt"
	"slices"

	"txnode/rdma"
)

// Grant adds an access key to a blade: rdma.Fabric.
func (f *Fabric) Grant(b rdma.BladeID) (rdma.Key, error) {
	if int(b) >= len(f.mem) || f.down[b] {
		return 0, fmt.Errorf("rdmatest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	if f.o.Bug == KeysRepeat {
		return f.keys[b].Oldest(), nil
	}
	k := f.keys[b].Grant()
	if f.o.Bug == KeysWithoutBound {
		f.extra[b] = append(f.extra[b], k)
	}
	return k, nil
}

// Revoke ends the access keys of a blade that are older than before: rdma.Fabric. WRITEs that
// have arrived are placed first.
func (f *Fabric) Revoke(b rdma.BladeID, before rdma.Key) error {
	if int(b) >= len(f.mem) || f.down[b] {
		return fmt.Errorf("rdmatest: blade %d: %w", b, rdma.ErrBladeDown)
	}
	k := &f.keys[b]
	if !k.Opens(before) {
		if f.o.Bug == StaleRevoke {
			k.Renew()
		}
		return fmt.Errorf("rdmatest: blade %d: key %#x opens nothing: %w", b, before, rdma.ErrStaleKey)
	}
	for _, p := range f.ports {
		if f.o.Bug != LandingAfterRevoke {
			p.qps[b].place(forever)
		}
	}
	switch f.o.Bug {
	case KeysWithoutBound:
		f.extra[b] = nil
	case OlderKeysStay:
		f.extra[b] = append(f.extra[b], k.Oldest())
	}
	k.Revoke(before)
	if f.o.Bug == NewerKeysEnd {
		*k = rdma.NewKeys(before, f.rng.Uint64())
	}
	return nil
}

// opens reports whether a key opens a blade.
func (f *Fabric) opens(b rdma.BladeID, k rdma.Key) bool {
	return f.keys[b].Opens(k) || slices.Contains(f.extra[b], k)
}
