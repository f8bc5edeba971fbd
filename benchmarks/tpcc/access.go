package tpcc

import (
	"errors"

	"txnode/benchmarks/workload"
)

// sizes of the values, by table.
var sizes = func() (s [numTables]int) {
	for i := range tables {
		s[i] = sizeOf(tables[i].row)
	}
	return s
}()

// maxRow is the size of the largest row, a customer.
const maxRow = 670

// codec turns rows into values and back. It belongs to one goroutine.
type codec struct {
	cursor cursor
	value  [maxRow]byte
}

// decode reads a row. It fails if the value has not the size of the table's.
func (x *codec) decode(table int, key uint64, value []byte, r row) error {
	if len(value) != sizes[table] {
		return &RowError{Table: table, Key: key, Length: len(value)}
	}
	x.cursor = cursor{b: value, read: true}
	r.layout(&x.cursor)
	return nil
}

// encode writes a row. The value is valid until the next call.
func (x *codec) encode(table int, r row) []byte {
	value := x.value[:sizes[table]]
	x.cursor = cursor{b: value}
	r.layout(&x.cursor)
	return value
}

// get reads a row that must be there.
func (x *codec) get(tx workload.Tx, table int, key uint64, r row) error {
	v, err := tx.Get(table, key)
	if err != nil {
		if errors.Is(err, workload.ErrNotFound) {
			return &RowError{Table: table, Key: key, Length: -1}
		}
		return err
	}
	return x.decode(table, key, v, r)
}

func (x *codec) put(tx workload.Tx, table int, key uint64, r row) error {
	return tx.Put(table, key, x.encode(table, r))
}

// insert inserts a row that is not there.
func (x *codec) insert(tx workload.Tx, table int, key uint64, r row) error {
	err := tx.Insert(table, key, x.encode(table, r))
	if err != nil && errors.Is(err, workload.ErrExists) {
		return &RowError{Table: table, Key: key, Length: sizes[table]}
	}
	return err
}
