package memory

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"txnode/memory/layout"
)

// CreateTable records a table. Its number is never reused. A table of that name without a root,
// whose creation was not finished, gets the options, unless another process has the right to make
// its index (AcquireRight): then it is returned as that process has it. Another one is
// ErrTableExists.
func (s *allocation) CreateTable(name string, options []byte) (layout.Table, error) {
	return s.createTable(name, options, 0, 0, nil)
}

// LoadTable records a table that no process finds before ChangeTables gives it its root
// (TableChange.Root): until then it is one that is being dropped, so that what is left of a
// load that was cut short is freed as the rest of such tables is. nodes and maxKey are
// those of CreateNodesTable, or 0. The process has the right to drop tables (RightDrop):
// else it is ErrEnded.
func (s *allocation) LoadTable(name string, options []byte, nodes layout.Class, maxKey int) (
	made layout.Table, err error) {
	err = s.update(func() error {
		if err := s.mayAddTable(name, options); err != nil {
			return err
		}
		if err := s.keeps(layout.RightDrop); err != nil {
			return err
		}
		// record.MaxKey
		made, err = s.addTable(layout.Table{
			Name: name, Options: options, Nodes: nodes, MaxKey: uint16(maxKey), State: layout.TableDropping,
		})
		return err
	})
	return made, err
}

// CreateNodesTable is CreateTable of a table whose index has nodes in blocks of a class, which is
// not 0. maxKey is 0 for one of hashes. of, if not nil, is another table to which it belongs: if
// that is in use no more with these options, nothing is made, and that is ErrRevision.
func (s *allocation) CreateNodesTable(name string, options []byte, nodes layout.Class, maxKey int,
	of *layout.Table) (layout.Table, error) {
	if nodes == 0 || nodes >= layout.NumClasses || maxKey < 0 || maxKey > math.MaxUint16 {
		return layout.Table{}, fmt.Errorf("memory: a table with nodes of class %d and keys of %d bytes",
			nodes, maxKey)
	}
	return s.createTable(name, options, nodes, uint16(maxKey), of)
}

func (s *allocation) createTable(name string, options []byte, nodes layout.Class, maxKey uint16,
	of *layout.Table) (made layout.Table, err error) {
	err = s.update(func() error {
		if err := s.mayAddTable(name, options); err != nil {
			return err
		}
		l := s.layout
		if of != nil && (int(of.ID) > len(l.Tables) || l.Tables[of.ID-1].State != layout.TableLive ||
			!bytes.Equal(l.Tables[of.ID-1].Options, of.Options)) {
			return fmt.Errorf("%w: table %q, to which table %q belongs", ErrRevision, of.Name, name)
		}
		for i := range l.Tables {
			if l.Tables[i].Name != name || l.Tables[i].State != layout.TableLive {
				continue
			}
			t := l.Tables[i]
			if t.Root != 0 {
				return fmt.Errorf("%w: %q", ErrTableExists, name)
			}
			if p := l.Holder(uint32(t.ID)); p != 0 && p != s.process { // it is being made
				t.Options = slices.Clone(t.Options)
				made = t
				return nil
			}
			t.Options, t.Nodes, t.MaxKey = slices.Clone(options), nodes, maxKey
			if was := &l.Tables[i]; !bytes.Equal(t.Options, was.Options) || t.Nodes != was.Nodes ||
				t.MaxKey != was.MaxKey {
				if err := s.commit(layout.EntryOfTable(t)); err != nil {
					return err
				}
				l.Tables[i] = t
			}
			t.Options = slices.Clone(options)
			made = t
			return nil
		}
		made, err = s.addTable(layout.Table{Name: name, Options: options, Nodes: nodes, MaxKey: maxKey})
		return err
	})
	return made, err
}

// mayAddTable returns why this process cannot add a table of that name, with those options; nil: it
// can. The caller holds the lock.
func (s *allocation) mayAddTable(name string, options []byte) error {
	if err := s.writable(); err != nil {
		return err
	}
	switch {
	case name == "":
		return errors.New("memory: a table needs a name")
	case !utf8.ValidString(name):
		return fmt.Errorf("memory: the name of a table is %q: it must be UTF-8", name)
	case len(name) > layout.MaxTableName:
		return fmt.Errorf("memory: the name of a table has %d bytes: at most %d are possible",
			len(name), layout.MaxTableName)
	case len(options) > layout.MaxTableOptions:
		return fmt.Errorf("memory: the options of table %q have %d bytes: at most %d are possible",
			name, len(options), layout.MaxTableOptions)
	}
	if err := s.alone(); err != nil {
		return err
	}
	return s.enroll() // what is no member changes nothing
}

// addTable gives a table its number. The caller holds the lock.
func (s *allocation) addTable(t layout.Table) (layout.Table, error) {
	l := s.layout
	if len(l.Tables) == layout.MaxTables {
		return layout.Table{}, fmt.Errorf("%w: of tables, of which a database has %d at most",
			layout.ErrExhausted, layout.MaxTables)
	}
	t.ID, t.Name, t.Options = uint16(len(l.Tables)+1), strings.Clone(t.Name), slices.Clone(t.Options)
	if err := s.commit(layout.EntryOfTable(t), l.EntryOfState(len(l.Segments)-1, len(l.Tables)+1,
		len(l.Coordinators))); err != nil {
		return layout.Table{}, err
	}
	l.Tables = append(l.Tables, t)
	t.Options = slices.Clone(t.Options)
	return t, nil
}

// SetTableRoot records where a table's index starts: an address in an extent, or, of an ordered
// table, of a block. In a shared database it is ErrTableExists unless the table has none, and this
// process the right to make its index (AcquireRight).
func (s *allocation) SetTableRoot(id uint16, root layout.Addr) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		l := s.layout
		if id == 0 || int(id) > len(l.Tables) {
			return fmt.Errorf("%w: %d", ErrNoTable, id)
		}
		t := l.Tables[id-1]
		if s.opts.Shared && t.State != layout.TableLive {
			return fmt.Errorf("%w: %q was dropped meanwhile", ErrNoTable, t.Name)
		}
		if s.opts.Shared && (t.Root != 0 || !s.has(uint32(id))) {
			return fmt.Errorf("%w: %q: another process has made it, or makes it", ErrTableExists, t.Name)
		}
		t.Root = root
		if !l.ValidRoot(&t) {
			return fmt.Errorf("memory: root %v of table %d is in no segment of its kind", root, id)
		}
		if err := s.commit(layout.EntryOfTable(t)); err != nil {
			return err
		}
		l.Tables[id-1] = t
		return nil
	})
}

// TableChange is what ChangeTables does to a table.
type TableChange struct {
	ID      uint16
	Options []byte // the new ones; nil: they stay
	Was     []byte // of these, those that they were made of; others are ErrRevision. nil: whatever they were
	Drop    bool   // the table is being dropped from now on, and its name is free
	// Root, if it is not 0, is that of a table that was loaded (LoadTable), which others find from
	// now on. It is ErrTableExists if there is another one of its name.
	Root layout.Addr
	// Nodes, if it is not 0, says that Root is that of a new index of nodes, in blocks of this
	// class, of a table that others find, and whose index was in extents; else it is ErrRevision.
	// The process has the right to mend the old one (AcquireRight), which the caller frees.
	Nodes layout.Class
	// Unmade is of a table whose index could not be made: it is ErrTableExists if the table has a
	// root all the same, which others may have found and use, or unless this process has the right
	// to make the index (AcquireRight).
	Unmade bool

	forget bool // see ForgetTable
}

// ChangeTables changes tables, each of them once, in one step of the catalog: all or none. Of a
// table that is being dropped the caller frees what it consists of, and calls ForgetTable. A
// table that is being dropped already stays so. One that is dropped, or was never there, is
// ErrNoTable. It is a change that all must know: see Notice. ErrEnded: this process has had the
// right to drop tables (RightDrop), and has it no more. ErrShared: likewise, to be alone
// (BeginAlone). Nothing has changed then.
func (s *allocation) ChangeTables(changes ...TableChange) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.alone(); err != nil {
			return err
		}
		if err := s.enroll(); err != nil { // what is no member changes nothing
			return err
		}
		l, known := s.layout, s.rev
		tables, entries := make([]layout.Table, len(changes)), make([]layout.Entry, len(changes))
		for i, x := range changes {
			if x.ID == 0 || int(x.ID) > len(l.Tables) || l.Tables[x.ID-1].State == layout.TableDropped {
				return fmt.Errorf("%w: %d", ErrNoTable, x.ID)
			}
			if len(x.Options) > layout.MaxTableOptions {
				return fmt.Errorf("memory: the options of table %d have %d bytes: at most %d are possible",
					x.ID, len(x.Options), layout.MaxTableOptions)
			}
			t := l.Tables[x.ID-1]
			if x.Was != nil && !bytes.Equal(t.Options, x.Was) {
				return fmt.Errorf("%w: the options of table %q", ErrRevision, t.Name)
			}
			if x.Unmade && t.State == layout.TableLive && (t.Root != 0 || s.opts.Shared && !s.has(uint32(x.ID))) {
				return fmt.Errorf("%w: %q: it was made, or another process makes it", ErrTableExists, t.Name)
			}
			if x.Drop && !x.Unmade || x.forget || x.Root != 0 {
				if err := s.keeps(layout.RightDrop); err != nil {
					return err
				}
			}
			if x.forget || x.Nodes != 0 {
				if err := s.keeps(uint32(x.ID)); err != nil {
					return err
				}
			}
			if x.Options != nil {
				t.Options = slices.Clone(x.Options)
			}
			if x.Drop {
				t.State = max(t.State, layout.TableDropping)
			}
			if x.Nodes != 0 {
				if t.State != layout.TableLive || t.Root == 0 || t.InBlocks() {
					return fmt.Errorf("%w: table %q has no index in extents any more", ErrRevision, t.Name)
				}
				t.Nodes, t.Root = x.Nodes, x.Root
				if t.Root == 0 || t.Nodes >= layout.NumClasses || !l.ValidRoot(&t) {
					return fmt.Errorf("memory: root %v of table %d, with nodes of class %d, is in no segment of "+
						"its kind", t.Root, t.ID, t.Nodes)
				}
			} else if x.Root != 0 {
				if slices.ContainsFunc(l.Tables, func(o layout.Table) bool {
					return o.Name == t.Name && o.State == layout.TableLive
				}) {
					return fmt.Errorf("%w: %q", ErrTableExists, t.Name)
				}
				t.State, t.Root = layout.TableLive, x.Root
				if !l.ValidRoot(&t) {
					return fmt.Errorf("memory: root %v of table %d is in no segment of its kind", t.Root, t.ID)
				}
			}
			if x.forget {
				t.State, t.Root = layout.TableDropped, 0
			}
			tables[i], entries[i] = t, layout.EntryOfTable(t)
		}
		if err := s.commit(entries...); err != nil {
			return err
		}
		for _, t := range tables {
			l.Tables[t.ID-1] = t
		}
		s.noteOwn(known, tables)
		return nil
	})
}

// ForgetTable records that a table is dropped, of which only the extents of the index are left. The
// caller frees them. If it dies before that, the next opening does, as nothing leads to them.
func (s *allocation) ForgetTable(id uint16) error {
	return s.ChangeTables(TableChange{ID: id, forget: true})
}

// TableInBlocks reports whether the index of table id is one of nodes, which are blocks.
func (s *store) TableInBlocks(id uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id > 0 && int(id) <= len(s.layout.Tables) && s.layout.Tables[id-1].InBlocks()
}

// Tables lists the tables by number.
func (s *store) Tables() ([]layout.Table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return nil, s.closed
	}
	return s.layout.Clone().Tables, nil
}
