package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"txnode/memory"
	"txnode/rdma"
)

// headBytes is how much of a region says whose it is.
const headBytes = memory.HeaderCopies * memory.HeaderStride

// probeHeads is probe, and reads the heads of regions. Those that cannot be read just now, since the epoch moves, are left out.
func probeHeads(ctx context.Context, s Server, o Options) probed {
	f, err := fabricOf(ctx, []Server{s}, o)
	if err != nil {
		return probed{err: err}
	}
	p := probed{blades: f.Blades()}
	if t, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: 1 << 20}); err == nil {
		for _, b := range p.blades {
			p.heads = append(p.heads, readHead(t, b))
		}
		_ = t.Close() // nothing is under way
	}
	p.err = oneLine(f.Close())
	return p
}

// readHead reads the head of a blade's region; nil: it cannot be read.
func readHead(t *rdma.Thread, b rdma.BladeInfo) []byte {
	if b.Size < memory.HeaderArea || t.Fabric().Provision(b.ID, 0, memory.HeaderArea) != nil { // on a full disk a file without it cannot even be read
		return nil
	}
	buf, err := t.Alloc(headBytes)
	if err != nil {
		return nil
	}
	defer t.Free(buf, headBytes)
	var batch rdma.Batch
	batch.Read(rdma.RemoteAddr{Blade: b.ID, Key: b.Key}, buf, headBytes)
	if t.Plain().Do(&batch) != nil {
		return nil
	}
	return bytes.Clone(t.Bytes(buf, headBytes))
}

// toldOf is the last revision of the catalog of which one of the blades was told that have the database; 0: of none.
func toldOf(l *memory.Layout, servers []probed) (told memory.Revision) {
	if l == nil {
		return 0
	}
	for i := range servers {
		for _, head := range servers[i].heads {
			if h, err := memory.ParseRegionHeader(head); err == nil && h.UUID == l.UUID {
				told = max(told, memory.ToldIn(head))
			}
		}
	}
	return told
}

// faulty are the states of blades that have come with another region than the newest of theirs.
var faulty = map[memory.HeaderFault]BladeState{
	memory.HeaderStale: BladeOld, memory.HeaderBehind: BladeOld, memory.HeaderBlank: BladeBlank, memory.HeaderForeign: BladeForeign, memory.HeaderMisplaced: BladeMisplaced,
}

// examine says what is wrong with the region of blade k of a server, and what to do.
func (b *BladeStatus) examine(l *memory.Layout, p *probed, k int) (memory.HeaderFault, string) {
	if k >= len(p.heads) || p.heads[k] == nil {
		return memory.HeaderSound, ""
	}
	fault, err := l.Examine(rdma.BladeID(b.ID), fmt.Sprintf("blade %d (%s)", b.ID, b.Server), p.heads[k]) //nolint:gosec // there are MaxBlades
	if err == nil {
		return fault, ""
	}
	b.stale, _ = errors.AsType[*memory.StaleError](err)
	return fault, oneLine(err).Error()
}

// remedies says of blades that came with old copies what to do, as far as that depends on the others that are away.
func (st *Status) remedies() {
	var away []rdma.BladeID
	for i := range st.Blades {
		if b := &st.Blades[i]; b.Away() && b.State != BladeRestarted {
			away = append(away, rdma.BladeID(b.ID)) //nolint:gosec // there are MaxBlades
		}
	}
	for i := range st.Blades {
		if b := &st.Blades[i]; b.stale != nil {
			b.stale.Mend = st.Layout.StaleRemedy(append([]rdma.BladeID{b.stale.Blade}, away...)...)
			b.Why = b.stale.Error()
		}
	}
}
