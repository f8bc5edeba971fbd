package layout

import "bytes"

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
	Root    Addr   // extent, or block, of the root of its index; 0 until set
	Options []byte // opaque: the transaction layer's
	State   TableState
	// Nodes is the class of the blocks of its index: those of all nodes of an ordered one, or of the
	// leaves of one of hashes. 0: its index lies in extents.
	Nodes Class
	// MaxKey, of an ordered table, is the length of its longest key in bytes; 0: it has a hash index.
	MaxKey uint16
}

// InBlocks reports whether the table has an index of nodes, which are blocks like records.
func (t *Table) InBlocks() bool { return t.Nodes > 0 }

// Ordered reports whether the index has the records in the order of their keys.
func (t *Table) Ordered() bool { return t.MaxKey > 0 }

// TableState is how far a table is in its life. Its number and its entry stay for ever.
type TableState uint8

// States of tables.
const (
	TableLive     TableState = iota
	TableDropping            // it is not in use any more, and its records are being freed
	TableDropped             // nothing is left of it
)

// Renewed lists the tables that were there in an earlier layout, and are in another state since, or
// have other options: changes that all processes must know before they have an effect.
func (l *Layout) Renewed(old *Layout) (all []Table) {
	for i := range min(len(l.Tables), len(old.Tables)) {
		if was, is := &old.Tables[i], &l.Tables[i]; is.State != was.State || !bytes.Equal(is.Options, was.Options) {
			all = append(all, *is)
		}
	}
	return all
}
