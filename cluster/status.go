package cluster

import (
	"context"

	"txnode/memory"
)

// Status is what a cluster says of itself.
type Status struct {
	// Catalog is the address of the catalog that has answered.
	Catalog string
	Servers []ServerStatus
	// Layout is what the catalog says of the database; nil: there is none yet.
	Layout *memory.Layout
}

// ServerStatus is a server of blades.
type ServerStatus struct {
	Server
	// Err is why the server is of no use: it does not answer, or has other blades. nil: it answers, or its place is vacant.
	Err error
}

// Ask asks the catalog at an address, as Connect does, and then all servers of blades. Servers that do not answer are no error:
// ServerStatus.Err. It changes nothing.
func Ask(ctx context.Context, address string, o Options) (*Status, error) {
	cat, err := DialCatalog(ctx, address, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cat.Close() }() // it was asked only
	servers, err := Servers(cat)
	if err != nil {
		return nil, err
	}
	st := &Status{Catalog: cat.Name()}
	if st.Layout, err = memory.LoadLayout(cat); err != nil {
		return nil, err
	}
	for i, p := range probeAll(ctx, servers, o) {
		if p.err == nil && !servers[i].Vacant() {
			p.err = compare(string(servers[i].Address), servers[i].Blades, p.blades)
		}
		st.Servers = append(st.Servers, ServerStatus{servers[i], p.err})
	}
	return st, nil
}
