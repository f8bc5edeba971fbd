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
	// Nodes, of an ordered table, is the class of the blocks that the nodes of its index have, and MaxKey the length of its
	// longest key in bytes; 0: the table has a hash index, which lies in extents.
	Nodes  Class
	MaxKey uint16
}

// Ordered reports whether the table has an ordered index, whose nodes are blocks.
func (t *Table) Ordered() bool { return t.Nodes > 0 }

// TableState is how far a table is in its life. Its number and its entry stay for ever.
type TableState uint8

// States of tables.
const (
	TableLive     TableState = iota
	TableDropping            // it is not in use any more, and its records are being freed
	TableDropped             // nothing is left of it
)

// Renewed lists the tables that were there in an earlier layout, and are in another state since, or have other options: changes that all
// processes must know before they have an effect.
func (l *Layout) Renewed(old *Layout) (all []Table) {
	for i := range min(len(l.Tables), len(old.Tables)) {
		if was, is := &old.Tables[i], &l.Tables[i]; is.State != was.State || !bytes.Equal(is.Options, was.Options) {
			all = append(all, *is)
		}
	}
	return all
}
