package memory

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of tables.
const (
	MaxTables       = 1<<16 - 1
	MaxTableName    = 255
	MaxTableOptions = 1 << 16 // bytes
)

// Table is what the catalog knows of a table.
type Table struct {
	ID      uint16
	Name    string
	Root    Addr   // extent of the root of its index; 0 until set
	Options []byte // opaque: the transaction layer's
	State   TableState
}

// TableState is how far a table is in its life. Its number and its entry stay for ever.
type TableState uint8

// States of tables.
const (
	TableLive     TableState = iota
	TableDropping            // it is not in use any more, and its records are being freed
	TableDropped             // nothing is left of it
)

// CreateTable records a table. Its number is never reused. A table of that name without a root,
// whose creation was not finished, gets the options. Another one is ErrTableExists.
func (s *Space) CreateTable(name string, options []byte) (Table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return Table{}, err
	}
	switch {
	case name == "":
		return Table{}, errors.New("memory: a table needs a name")
	case !utf8.ValidString(name):
		return Table{}, fmt.Errorf("memory: the name of a table is %q: it must be UTF-8", name)
	case len(name) > MaxTableName:
		return Table{}, fmt.Errorf("memory: the name of a table has %d bytes: at most %d are possible", len(name), MaxTableName)
	case len(options) > MaxTableOptions:
		return Table{}, fmt.Errorf("memory: the options of table %q have %d bytes: at most %d are possible", name, len(options), MaxTableOptions)
	}
	l := s.layout
	for i := range l.Tables {
		if l.Tables[i].Name != name || l.Tables[i].State != TableLive {
			continue
		}
		t := l.Tables[i]
		if t.Root != 0 {
			return Table{}, fmt.Errorf("%w: %q", ErrTableExists, name)
		}
		if t.Options = slices.Clone(options); !bytes.Equal(t.Options, l.Tables[i].Options) {
			if err := s.commit(tableEntry(t)); err != nil {
				return Table{}, err
			}
			l.Tables[i] = t
		}
		t.Options = slices.Clone(options)
		return t, nil
	}
	if len(l.Tables) == MaxTables {
		return Table{}, fmt.Errorf("%w: of tables, of which a database has %d at most", ErrExhausted, MaxTables)
	}
	t := Table{ID: uint16(len(l.Tables) + 1), Name: strings.Clone(name), Options: slices.Clone(options)}
	if err := s.commit(tableEntry(t), l.stateEntry(len(l.Segments)-1, len(l.Tables)+1, len(l.Coordinators))); err != nil {
		return Table{}, err
	}
	l.Tables = append(l.Tables, t)
	t.Options = slices.Clone(options)
	return t, nil
}

// SetTableRoot records where a table's index starts: an address in an extent.
func (s *Space) SetTableRoot(id uint16, root Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	l := s.layout
	if id == 0 || int(id) > len(l.Tables) {
		return fmt.Errorf("%w: %d", ErrNoTable, id)
	}
	if !l.validRoot(root) {
		return fmt.Errorf("memory: root %v of table %d is in no index segment", root, id)
	}
	t := l.Tables[id-1]
	t.Root = root
	if err := s.commit(tableEntry(t)); err != nil {
		return err
	}
	l.Tables[id-1] = t
	return nil
}

// DropTable records that a table is being dropped. From then on its name is free. The caller frees
// what it consists of, and calls ForgetTable. A table that is being dropped already stays so.
func (s *Space) DropTable(id uint16) error {
	return s.changeTable(id, func(t *Table) { t.State = max(t.State, TableDropping) })
}

// ForgetTable records that a table is dropped, of which only the extents of the index are left. The
// caller frees them. If it dies before that, the next opening does, as nothing leads to them.
func (s *Space) ForgetTable(id uint16) error {
	return s.changeTable(id, func(t *Table) { t.State, t.Root = TableDropped, 0 })
}

// changeTable records a change of a table that is not dropped.
func (s *Space) changeTable(id uint16, change func(t *Table)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	l := s.layout
	if id == 0 || int(id) > len(l.Tables) || l.Tables[id-1].State == TableDropped {
		return fmt.Errorf("%w: %d", ErrNoTable, id)
	}
	t := l.Tables[id-1]
	change(&t)
	if err := s.commit(tableEntry(t)); err != nil {
		return err
	}
	l.Tables[id-1] = t
	return nil
}

// Tables lists the tables by number.
func (s *Space) Tables() ([]Table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return nil, s.closed
	}
	return s.layout.clone().Tables, nil
}
