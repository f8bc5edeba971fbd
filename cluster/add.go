package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"txnode/internal/outwait"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// AddBlade adds a server of blades to a cluster whose catalog is at an address, while transactions
// run: it takes a place that is vacant and has as many blades, and its blades are taken in. A
// server that was drained takes the place that it had. A server that is there already has its
// blades taken in if they were drained. It returns the ids of the blades, when they take part;
// Rebalance moves something there.
//
// ErrOptions: a server of shared memory, the address of another cluster's, another name of a server
// that is there, no place is vacant, or its blades are too small. ErrOtherBlades: the memory of its
// blades is that of other places, or of another database. The catalog is as before then. Other
// errors are those of Open.
func AddBlade(ctx context.Context, catalog string, a BladeAddress, o Options) (ids []int, err error) {
	if a, err = a.absolute(); err != nil {
		return nil, err
	}
	return addServer(ctx, catalog, Server{Address: a}, nil, o)
}

// addServer is AddBlade for a server in a domain. ended, if not nil, says whether a server is known
// to have ended: its place is taken by one that has its memory.
func addServer(ctx context.Context, catalog string, server Server, ended func(BladeAddress) bool,
	o Options) (ids []int, err error) {
	a := server.Address
	if err := check([]BladeAddress{a}); err != nil {
		return nil, err
	}
	cat, err := DialCatalog(ctx, catalog, o)
	if err != nil {
		return nil, err
	}
	defer func(c layout.Catalog) { _ = c.Close() }(cat) // what was changed is there
	cat = heed(ctx, cat)
	servers, err := Servers(cat)
	if err != nil {
		return nil, err
	}
	if _, _, shm := a.shared(); shm && placeOf(servers, a) < 0 {
		return nil, fmt.Errorf("%w: %s: blades of shared memory are all there from the beginning, because each "+
			"process maps them when it opens the database: "+
			"make a cluster with more of them, or of sockets (unix:PATH), to which blades can be added", ErrOptions, a)
	}
	c, err := meet(ctx, servers, a, o)
	if err != nil {
		return nil, err
	}
	c.server.Domain, c.ended = server.Domain, ended
	place, added, again := 0, false, false
	err = change(cat, func(x *content) (err error) {
		all, l := x.servers, x.layout
		if l == nil {
			return fmt.Errorf("%w: the catalog at %s has no database yet: finish txnode cluster init",
				ErrNone, cat.Name())
		}
		added, again = false, false
		if place = placeOf(all, a); place >= 0 {
			return c.fits(l, all, place)
		}
		if place, err = c.choose(l, all, cat.Name()); err != nil {
			return err
		}
		again, added = !all[place].Vacant(), true
		all[place] = c.server
		for k := range c.infos {
			l.Blades[first(all, place)+k].Domain = c.server.domainOf()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for k := range c.infos {
		ids = append(ids, first(servers, place)+k)
	}
	if again { // programs take it in, as one that has restarted
		return ids, nil
	}
	err = with(ctx, catalog, o, func(db *txn.DB) error { return takeIn(ctx, db, ids) })
	if added && refused(err, ids) { // its memory has changed since
		for _, b := range ids {
			err = oneLine(err, DrainBlade(ctx, catalog, b, nil, o)) // the place is vacant again
		}
	}
	return ids, err
}

// placeOf is the place of a server, or -1.
func placeOf(servers []Server, a BladeAddress) int {
	return slices.IndexFunc(servers, func(s Server) bool { return s.Address == a })
}

// takeIn waits until blades take part.
func takeIn(ctx context.Context, db *txn.DB, ids []int) error {
	for _, b := range ids {
		if err := outwait.Await(ctx, func() error { return db.Undrain(b) }, nil); err != nil {
			return err
		}
	}
	for {
		v := db.Space().View()
		if !slices.ContainsFunc(ids, func(b int) bool { return !v.Up(rdma.BladeID(b)) }) { // MaxBlades at most
			return nil
		}
		if err := db.Redundancy().Failure; refused(err, ids) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), db.Redundancy().Failure)
		case <-time.After(lookPause):
		}
	}
}

// refused reports whether an error says that blades cannot be taken in, however often it is tried.
func refused(err error, ids []int) bool {
	var e *layout.BladeError
	return errors.As(err, &e) && slices.Contains(ids, int(e.Blade)) && (errors.Is(err, layout.ErrForeign) ||
		errors.Is(err, layout.ErrGeometry))
}

// candidate is a server that is to be added.
type candidate struct {
	server  Server
	infos   []rdma.BladeInfo
	headers []*layout.RegionHeader // what each blade says of itself; nil: nothing
	twin    int                    // the place of the same server at another address, or -1
	silent  []bool                 // by place: the server there does not answer
	ended   func(BladeAddress) bool
}

// meet asks a server for its blades and for what they say of themselves, and all others for their
// incarnations. Others that do not answer tell nothing.
func meet(ctx context.Context, servers []Server, a BladeAddress, o Options) (*candidate, error) {
	c := &candidate{server: Server{Address: a}}
	others := slices.Clone(servers)
	if i := placeOf(others, a); i >= 0 {
		others[i] = Server{Blades: others[i].Blades}
	}
	known := incarnations{}
	for i, p := range probeAll(ctx, others, o) {
		known.add(i, p.blades)
		e := rdma.EvidenceOf(p.err)
		c.silent = append(c.silent, p.err != nil && (e == rdma.Silent || e == rdma.Refused))
	}
	f, err := fabricOf(ctx, []Server{c.server}, o)
	if err != nil {
		return nil, err
	}
	c.infos = slices.Clone(f.Blades())
	for _, b := range c.infos {
		c.server.Blades = append(c.server.Blades, b.Size)
	}
	c.twin = known.add(len(servers), c.infos)
	if err = c.read(f); err != nil {
		err = fmt.Errorf("%s: reading what its blades say of themselves: %w", a, err)
	}
	if err := oneLine(err, f.Close()); err != nil {
		return nil, err
	}
	return c, nil
}

// keyTries bounds how often a header is read whose key has ended meanwhile: one epoch is enough for
// that.
const keyTries = 5

// read reads the headers.
func (c *candidate) read(f rdma.Fabric) error {
	t, err := rdma.NewThread(f, rdma.ThreadOptions{})
	if err != nil {
		return err
	}
	for b := range c.infos {
		var h *layout.RegionHeader
		for range keyTries {
			// a server has MaxBlades at most
			if h, err = readHeader(t, rdma.BladeID(b)); !errors.Is(err, rdma.ErrStaleKey) {
				break
			}
			if err = t.Reconnect(rdma.BladeID(b)); err != nil { // as above
				break
			}
		}
		if err != nil {
			return errors.Join(err, t.Close())
		}
		c.headers = append(c.headers, h)
	}
	return t.Close()
}

// readHeader reads the header of a blade; nil: none is whole.
func readHeader(t *rdma.Thread, b rdma.BladeID) (*layout.RegionHeader, error) {
	const room = layout.HeaderCopies * layout.RegionHeaderSize
	buf, err := t.Alloc(room)
	if err != nil {
		return nil, err
	}
	defer t.Free(buf, room)
	var batch rdma.Batch
	for i := range layout.HeaderCopies {
		a := rdma.RemoteAddr{Blade: b, Key: t.Fabric().Blades()[b].Key, Off: layout.HeaderOffset(i)}
		batch.Read(a, buf+uint32(i)*layout.RegionHeaderSize, layout.RegionHeaderSize) // two copies
	}
	if err := t.Plain().Do(&batch); err != nil {
		return nil, err
	}
	for i := range layout.HeaderCopies {
		// as above
		h, blank, err := layout.ParseHeaderCopy(t.Bytes(buf+uint32(i)*layout.RegionHeaderSize, layout.RegionHeaderSize),
			i)
		if err == nil && !blank {
			return &h, nil
		}
	}
	return nil, nil
}

// named fails if the server is there by another address than that of a place; -1: of none.
func (c *candidate) named(l *layout.Layout, all []Server, place int) error {
	twin := c.twin
	for b := range l.Blades { // the catalog may know it by an address that leads nowhere any more
		if x := &l.Blades[b]; x.State == layout.BladeUp && slices.ContainsFunc(c.infos, func(i rdma.BladeInfo) bool {
			return !i.Unheard && i.Incarnation == x.Incarnation
		}) {
			twin = serverOf(all, b)
		}
	}
	if twin < 0 || twin == place || twin >= len(all) || all[twin].Vacant() {
		return nil
	}
	return fmt.Errorf("%w: %s is another name of %s, which the cluster has already, with blade %d: name another server",
		ErrOptions, c.server.Address, all[twin].Address, first(all, twin))
}

// serverOf is the place with a blade, or -1.
func serverOf(all []Server, blade int) int {
	for i := range all {
		if b := first(all, i); b <= blade && blade < b+len(all[i].Blades) {
			return i
		}
	}
	return -1
}

// fits says why the server cannot have a place; nil: it can.
func (c *candidate) fits(l *layout.Layout, all []Server, place int) error {
	a, b := c.server.Address, first(all, place)
	if err := c.named(l, all, place); err != nil {
		return err
	}
	if err := compare(string(a), all[place].Blades, c.infos); err != nil {
		return err
	}
	for k, info := range c.infos {
		if least := layout.HeaderArea + uint64(l.SegmentSize); info.Size < least {
			return fmt.Errorf("%w: %s: its blade %d has %d bytes, and needs %d for one segment",
				ErrOptions, a, k, info.Size, least)
		}
		h := c.headers[k]
		if h == nil {
			continue
		}
		switch l.Judge(rdma.BladeID(b+k), h) { // MaxBlades at most
		case layout.HeaderForeign:
			return fmt.Errorf("%w: %s: the memory of its blade %d belongs to database %v, and the catalog to %v: "+
				"start it without that memory (a blade in memory anew, --dir with an empty directory)",
				ErrOtherBlades, a, k, h.UUID, l.UUID)
		case layout.HeaderMisplaced:
			return c.misplaced(all, k)
		}
	}
	return nil
}

// misplaced is the error of a server whose blade k has the memory of a place that another one has.
func (c *candidate) misplaced(all []Server, k int) error {
	h, has := c.headers[k], "which this server cannot have"
	if i := serverOf(all, int(h.Blade)); i >= 0 && !all[i].Vacant() {
		has = fmt.Sprintf("which is at %s", all[i].Address)
	}
	return fmt.Errorf("%w: %s: the memory of its blade %d is that of blade %d of this database, %s: if it is needed, "+
		"start the server at that address; "+
		"else start it without that memory (a blade in memory anew, --dir with an empty directory)",
		ErrOtherBlades, c.server.Address, k, h.Blade, has)
}

// replaces reports whether the server of a place has ended, so that one with its memory, at another
// address, is that one again.
func (c *candidate) replaces(all []Server, place int) bool {
	return c.ended != nil && place < len(c.silent) && c.silent[place] && c.ended(all[place].Address)
}

// choose is the place for the server: that which its memory is of, or the first vacant one.
func (c *candidate) choose(l *layout.Layout, all []Server, catalog string) (int, error) {
	if err := c.named(l, all, -1); err != nil {
		return 0, err
	}
	place := slices.IndexFunc(all, func(s Server) bool { return s.Vacant() && len(s.Blades) == len(c.infos) })
	for k, h := range c.headers {
		if h == nil || h.UUID != l.UUID {
			continue
		}
		own := serverOf(all, int(h.Blade))
		if own < 0 || len(all[own].Blades) != len(c.infos) || !all[own].Vacant() && !c.replaces(all, own) {
			return 0, c.misplaced(all, k)
		}
		place = own
		break // fits compares the others
	}
	if place < 0 {
		return 0, fmt.Errorf("%w: the cluster at %s has no vacant place for a server of %d blades: drain one, or "+
			"make a cluster with more places (txnode cluster init --places)",
			ErrOptions, catalog, len(c.infos))
	}
	return place, c.fits(l, all, place)
}
