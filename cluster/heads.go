package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"txnode/memory/layout"
	"txnode/rdma"
)

// headBytes is how much of a region says whose it is.
const headBytes = layout.HeaderCopies * layout.HeaderStride

// probeHeads is probe, and reads the heads of regions. Those that cannot be read just now, since
// the epoch moves, are left out.
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
	// on a full disk a file without it cannot even be read
	if b.Size < layout.HeaderArea || t.Fabric().Provision(b.ID, 0, layout.HeaderArea) != nil {
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

// toldOf is the last revision of the catalog of which one of the blades was told that have the
// database; 0: of none.
func toldOf(l *layout.Layout, servers []probed) (told layout.Revision) {
	if l == nil {
		return 0
	}
	for i := range servers {
		for _, head := range servers[i].heads {
			if h, err := layout.ParseRegionHeader(head); err == nil && h.UUID == l.UUID {
				told = max(told, layout.ToldIn(head))
			}
		}
	}
	return told
}

// faulty are the states of blades that have come with another region than the newest of theirs.
var faulty = map[layout.HeaderFault]BladeState{
	layout.HeaderStale: BladeOld, layout.HeaderBehind: BladeOld, layout.HeaderBlank: BladeBlank,
	layout.HeaderForeign: BladeForeign, layout.HeaderMisplaced: BladeMisplaced,
}

// examine says what is wrong with the region of blade k of a server, and what to do.
func (b *BladeStatus) examine(l *layout.Layout, p *probed, k int) (layout.HeaderFault, string) {
	if k >= len(p.heads) || p.heads[k] == nil {
		return layout.HeaderSound, ""
	}
	// there are MaxBlades
	fault, err := l.Examine(rdma.BladeID(b.ID), fmt.Sprintf("blade %d (%s)", b.ID, b.Server), p.heads[k])
	if err == nil {
		return fault, ""
	}
	b.stale, _ = errors.AsType[*layout.StaleError](err)
	return fault, oneLine(err).Error()
}

// remedies says of blades that came with old copies what to do, as far as that depends on the
// others that are away.
func (st *Status) remedies() {
	var away []rdma.BladeID
	for i := range st.Blades {
		if b := &st.Blades[i]; b.Away() && b.State != BladeRestarted {
			away = append(away, rdma.BladeID(b.ID)) // there are MaxBlades
		}
	}
	for i := range st.Blades {
		if b := &st.Blades[i]; b.stale != nil {
			b.stale.Advice = st.Layout.StaleRemedy(append([]rdma.BladeID{b.stale.Blade}, away...)...)
			b.Why = b.stale.Error()
		}
	}
}
