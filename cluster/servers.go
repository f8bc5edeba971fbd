package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"txnode/memory"
	"txnode/memory/layout"
)

// Server is a process that has blades, as the catalog knows it.
type Server struct {
	Address BladeAddress `json:"address"`
	// Blades are the sizes of its blades in bytes. The blades of a cluster are numbered
	// through all servers.
	Blades []uint64 `json:"blades"`
	// Domain names what the server shares with others that fail together with it, such as a rack:
	// its blades have no two copies of a segment with theirs, while there is room elsewhere. "": it
	// shares nothing. At most layout.MaxDomain bytes.
	Domain string `json:"domain,omitempty"`
}

// domainOf is that of each of its blades. Blades of one server fail together.
func (s *Server) domainOf() string {
	if s.Domain == "" && len(s.Blades) > 1 {
		return string(s.Address[max(len(s.Address)-layout.MaxDomain, 0):])
	}
	return s.Domain
}

// Vacant reports whether it is a place for a server that has as many blades: it has no address, and
// its blades no bytes.
func (s *Server) Vacant() bool { return s.Address == "" }

// keyServers is the entry of the catalog.
const keyServers = layout.PrefixCluster + "servers"

// headline begins the value of the entry; a checksum of the JSON behind it follows.
const headline = "txnode cluster 1 "

// encode makes the value of the entry.
func encode(servers []Server) []byte {
	return sealed(headline, servers)
}

// sealed is the JSON of a value of strings and numbers behind a headline with its checksum.
func sealed(headline string, value any) []byte {
	p, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings and numbers
	}
	return fmt.Appendf(nil, "%s%08x\n%s", headline, checksum(p), p)
}

// unsealed is the value of an entry; it accepts any bytes.
func unsealed(key, headline string, v []byte, value any) error {
	head, body, _ := bytes.Cut(v, []byte("\n"))
	if string(head) != fmt.Sprintf("%s%08x", headline, checksum(body)) {
		if !bytes.HasPrefix(head, []byte(headline)) {
			return fmt.Errorf("%w: the entry %s begins with %.20q: it is damaged, or of another release of txnode",
				ErrDamaged, key, head)
		}
		return fmt.Errorf("%w: the entry %s does not match its checksum", ErrDamaged, key)
	}
	if err := json.Unmarshal(body, value); err != nil {
		return fmt.Errorf("%w: the entry %s: %w", ErrDamaged, key, err)
	}
	return nil
}

func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// decode accepts any bytes.
func decode(v []byte) ([]Server, error) {
	var servers []Server
	if err := unsealed(keyServers, headline, v, &servers); err != nil {
		return nil, err
	}
	var addresses []BladeAddress
	blades := 0
	for i := range servers {
		s := &servers[i]
		if !s.Vacant() {
			addresses = append(addresses, s.Address)
		}
		blades += len(s.Blades)
		if len(s.Domain) > layout.MaxDomain {
			return nil, fmt.Errorf("%w: the entry %s has a domain of %d bytes: at most %d are possible",
				ErrDamaged, keyServers, len(s.Domain), layout.MaxDomain)
		}
		if len(s.Blades) == 0 {
			return nil, fmt.Errorf("%w: the entry %s has no blades of %s", ErrDamaged, keyServers, s.Address)
		}
	}
	if err := check(addresses); err != nil {
		return nil, fmt.Errorf("%w: the entry %s: %w", ErrDamaged, keyServers, err)
	}
	if blades > layout.MaxBlades {
		return nil, fmt.Errorf("%w: the entry %s has %d blades: at most %d are possible",
			ErrDamaged, keyServers, blades, layout.MaxBlades)
	}
	return servers, nil
}

// find returns the servers of a catalog's entries: ErrNone if there are none.
func find(cat layout.Catalog, entries []layout.Entry) ([]Server, error) {
	i := slices.IndexFunc(entries, func(e layout.Entry) bool { return e.Key == keyServers })
	if i < 0 {
		return nil, fmt.Errorf("%w: the catalog at %s does not say where blades are: write it with txnode cluster init",
			ErrNone, cat.Name())
	}
	servers, err := decode(entries[i].Value)
	if err != nil {
		return nil, fmt.Errorf("the catalog at %s: %w", cat.Name(), err)
	}
	return servers, nil
}

// Servers returns where a catalog says that blades are: ErrNone, ErrDamaged, or the
// errors of the catalog.
func Servers(cat layout.Catalog) ([]Server, error) {
	entries, _, err := cat.Load()
	if err != nil {
		return nil, err
	}
	return find(cat, entries)
}

// keyInit is the entry of a cluster whose database Init is about to create. Init writes it with the
// servers, and deletes it at its end. So a cluster that has it is one of an Init that was
// interrupted, or still runs.
const keyInit = layout.PrefixCluster + "init"

// write puts servers, and keyInit, into a catalog that is empty, but for servers that have
// announced themselves, or that an interrupted Init has left with them.
func write(cat layout.Catalog, servers []Server) error {
	want := []layout.Entry{
		{Key: keyServers, Value: encode(servers)}, {Key: keyInit, Value: []byte("interrupted, or still running")},
	}
	var doubt error // of an attempt that may have been made
	for {
		entries, rev, err := cat.Load()
		if err != nil {
			return errors.Join(doubt, err)
		}
		entries = slices.DeleteFunc(entries, func(e layout.Entry) bool {
			return strings.HasPrefix(e.Key, layout.PrefixServer)
		})
		if has(entries, keyInit) {
			if was, err := find(cat, entries); err != nil {
				return err
			} else if !bytes.Equal(encode(was), want[0].Value) {
				return fmt.Errorf("%w: the catalog at %s has a cluster that was not finished, of other blades: "+
					"finish it with %s, or use an empty catalog", ErrExists, cat.Name(), inFlags(was))
			}
			return nil
		}
		// of an earlier build
		if len(entries) == 1 && entries[0].Key == keyServers && bytes.Equal(entries[0].Value, want[0].Value) {
			return nil
		}
		if len(entries) > 0 {
			what := "a database"
			if slices.ContainsFunc(entries, func(e layout.Entry) bool {
				return strings.HasPrefix(e.Key, layout.PrefixCluster)
			}) {
				what = "a cluster"
			}
			return fmt.Errorf("%w: the catalog at %s has %s already: use an empty one", ErrExists, cat.Name(), what)
		}
		if _, err = cat.Apply(rev, want); err == nil {
			return nil
		}
		if !errors.Is(err, memory.ErrRevision) {
			if doubt != nil {
				return err
			}
			doubt = err
		}
	}
}

func has(entries []layout.Entry, key string) bool {
	return slices.ContainsFunc(entries, func(e layout.Entry) bool { return e.Key == key })
}

// inFlags is the command that makes a cluster of servers.
func inFlags(servers []Server) string {
	text, places := "txnode cluster init", 0
	for i := range servers {
		places += len(servers[i].Blades)
		if !servers[i].Vacant() {
			text += " --blade " + string(servers[i].Address)
		}
	}
	if servers[len(servers)-1].Vacant() {
		text += fmt.Sprint(" --places ", places)
	}
	return text
}

// written takes keyInit back.
func written(cat layout.Catalog) error {
	for {
		entries, rev, err := cat.Load()
		if err != nil || !has(entries, keyInit) {
			return err
		}
		if _, err := cat.Apply(rev, []layout.Entry{{Key: keyInit}}); !errors.Is(err, memory.ErrRevision) {
			return err
		}
	}
}
