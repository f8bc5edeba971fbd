package cluster

import (
	"context"
	"sync"

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
	// Full are the disks of the server that are full: Report.Full. Servers of earlier releases tell of none.
	Full []string
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
		st.Servers = append(st.Servers, ServerStatus{Server: servers[i], Err: p.err})
	}
	var asked sync.WaitGroup
	for i := range st.Servers {
		if s := &st.Servers[i]; s.Err == nil && !s.Vacant() {
			asked.Go(func() {
				if r, err := AskReport(ctx, string(s.Address), o); err == nil { // else it is no daemon of txnode
					s.Full = r.Full
				}
			})
		}
	}
	asked.Wait()
	return st, nil
}
