package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// made compares the cluster that a catalog has with what Init is asked for: ErrSame if it is that,
// ErrExists with the first difference otherwise. nil: there is none, or it is not finished. Servers
// are not asked, so it can be called when some are down.
func made(cat layout.Catalog, addresses []BladeAddress, g Geometry) error {
	entries, _, err := cat.Load()
	if err != nil {
		return err
	}
	if !has(entries, keyServers) || has(entries, keyInit) {
		return nil
	}
	servers, err := find(cat, entries)
	if err != nil {
		return err
	}
	l, err := layout.LoadLayout(cat)
	if err != nil || l == nil || !l.Formatted {
		return err
	}
	if d := difference(servers, l, addresses, g); d != "" {
		return fmt.Errorf("%w: the catalog at %s has a cluster already, with %s: use an empty one",
			ErrExists, cat.Name(), d)
	}
	return fmt.Errorf("%w: the catalog at %s has a cluster already, which is the same", ErrSame, cat.Name())
}

// difference is the first one between a cluster and what Init is asked for; "": there is none.
func difference(servers []Server, l *layout.Layout, addresses []BladeAddress, g Geometry) string {
	var has []BladeAddress
	var blades []rdma.BladeInfo
	places := 0
	for i := range servers {
		s := &servers[i]
		places += len(s.Blades)
		if s.Vacant() {
			continue
		}
		has = append(has, s.Address)
		for _, n := range s.Blades {
			blades = append(blades, rdma.BladeInfo{Size: n})
		}
	}
	m := g.options(blades)
	type number struct {
		what      string
		has, want int64
	}
	numbers := []number{
		{"backups", int64(l.Backups), int64(m.Backups)},
		{"bytes a segment", int64(l.SegmentSize), int64(m.SegmentSize)},
		{"bytes a log area", int64(l.LogArea), int64(cmp.Or(m.LogArea, min(memory.DefaultLogArea, m.SegmentSize)))},
		{"places of blades", int64(places), int64(max(g.Places, len(blades)))},
	}
	if !slices.Equal(has, addresses) {
		return fmt.Sprintf("blades of %s, and not of %s", list(has), list(addresses))
	}
	for _, n := range numbers {
		if n.has != n.want {
			return fmt.Sprintf("%d %s, and not %d", n.has, n.what, n.want)
		}
	}
	return ""
}

func list(addresses []BladeAddress) string {
	var out []string
	for _, a := range addresses {
		out = append(out, string(a))
	}
	return strings.Join(out, ", ")
}
