package record

// Secondary is a table that is a secondary index of another table: its records are entries, each of
// which leads to a record of that one. What entries a record should have only a program knows that
// has the function of the index.
type Secondary struct {
	ID, Of uint16 // numbers of the two tables
	// Key returns the key of the record to which an entry leads, which may lie in the entry or its
	// value; ok: it has one.
	Key func(entry, value []byte) (key []byte, ok bool)
}
