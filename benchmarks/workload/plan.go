package workload

import (
	"encoding/binary"
	"errors"
)

// Plan is the records that transactions of one type use, one transaction after another: of
// which tables, and what for, is said once, to Worker.Prepare; only the keys differ. It
// belongs to its worker. tx is always what the worker has passed to the transaction
// function.
type Plan interface {
	// Rows returns the rows, one for each use.
	Rows() []Row
	// Fetch is Stage of the key of each row, and then Get of each, in one call. A key that
	// has no value is no error.
	Fetch(tx Tx) error
	// Set is Put of the key of row i. It is fetched, by this transaction or an earlier one.
	Set(tx Tx, i int, value []byte) error
}

// Use is a record of a plan.
type Use struct {
	Table int
	Mode  Mode
}

// Row is where the store has the key and the value of a record of a plan, so that nobody
// copies them: the client writes the one and reads the other.
type Row struct {
	Key   *Key
	Value *[]byte // after Plan.Fetch as Tx.Get would return it; nil: the key has none
}

// Key is a key, little-endian.
type Key [8]byte

// Set makes it another key.
func (k *Key) Set(key uint64) { binary.LittleEndian.PutUint64(k[:], key) }

// Number returns the key.
func (k *Key) Number() uint64 { return binary.LittleEndian.Uint64(k[:]) }

// PlanEach returns a plan for stores that get keys one by one.
func PlanEach(uses []Use) Plan {
	p := &each{uses, make([]Key, len(uses)), make([][]byte, len(uses)), make([]Row, len(uses))}
	for i := range p.rows {
		p.rows[i] = Row{&p.keys[i], &p.values[i]}
	}
	return p
}

type each struct {
	uses   []Use
	keys   []Key
	values [][]byte
	rows   []Row // point to these
}

func (p *each) Rows() []Row { return p.rows }

func (p *each) Fetch(tx Tx) error {
	for i, u := range p.uses {
		tx.Stage(u.Table, p.keys[i].Number(), u.Mode)
	}
	for i, u := range p.uses {
		v, err := tx.Get(u.Table, p.keys[i].Number())
		switch {
		case errors.Is(err, ErrNotFound):
			v = nil
		case err != nil:
			return err
		case v == nil:
			v = []byte{}
		}
		p.values[i] = v
	}
	return nil
}

func (p *each) Set(tx Tx, i int, value []byte) error {
	return tx.Put(p.uses[i].Table, p.keys[i].Number(), value)
}
