package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"txnode/benchmarks/workload"
)

// rowBytes is the length of a value of the rows workload.
const rowBytes = 100

// Transaction types of the rows workload. Each is measured by itself.
const (
	rowGet = iota
	rowScan10
	rowScan100
	rowScan1000
	rowInsert
	numRowTypes
)

var rowTypes = [numRowTypes]string{"get", "scan-10", "scan-100", "scan-1000", "insert"}

// scanned is how many rows a type of transaction scans.
var scanned = [numRowTypes]int{rowScan10: 10, rowScan100: 100, rowScan1000: 1000}

// rowsDriver is one ordered table with values of 100 bytes, and transactions of one operation: read
// a row, scan some, append one. Keys are the numbers from 0 on, without gaps, also where rows are
// appended: all workers share one counter.
type rowsDriver struct {
	rows    int // loaded
	shuffle bool
	next    atomic.Uint64 // key to be appended next
}

func newRows(rows int, shuffle bool) (*rowsDriver, error) {
	if least := scanned[rowScan1000]; rows < least || rows > math.MaxInt32 {
		return nil, fmt.Errorf("--rows has %d; it must be from %d, the longest scan, to %d", rows, least, math.MaxInt32)
	}
	return &rowsDriver{rows: rows, shuffle: shuffle}, nil
}

// appendRow appends the value of a row, which tells the key.
func appendRow(b []byte, key uint64) []byte {
	for i := range uint64(rowBytes / 8) {
		b = binary.LittleEndian.AppendUint64(b, key+i)
	}
	return append(b, "rows"[:rowBytes%8]...)
}

// Name implements workload.Driver.
func (d *rowsDriver) Name() string { return "rows" }

// Schema implements workload.Driver.
func (d *rowsDriver) Schema() []workload.Table {
	return []workload.Table{{Name: "rows", MaxValue: rowBytes, Expect: d.rows, Ordered: true}}
}

// Types implements workload.Driver.
func (d *rowsDriver) Types() []string { return rowTypes[:] }

// Mix implements workload.Driver.
func (d *rowsDriver) Mix() []float64 { return []float64{20, 20, 20, 20, 20} }

// rowsPerLoad is how many rows a transaction loads.
const rowsPerLoad = 100

// Load implements workload.Driver: in the order of keys, or in one that is drawn.
func (d *rowsDriver) Load(ctx context.Context, store workload.Store, progress func(done,
	total int)) (workload.LoadReport, error) {
	existed, err := store.Tables(ctx, d.Schema())
	if err == nil && existed {
		err = errors.New("rows: the store must be a new one")
	}
	if err != nil {
		return workload.LoadReport{}, err
	}
	var keys []uint32 // in the order of loading; nil: that of the numbers
	if d.shuffle {
		keys = make([]uint32, d.rows)
		for i := range keys {
			keys[i] = uint32(i)
		}
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	}
	err = workload.Scan(ctx, store, d.rows, rowsPerLoad, progress, func(w workload.Worker) func(context.Context, int,
		int) error {
		var value []byte
		return func(ctx context.Context, lo, hi int) error {
			return w.Update(ctx, func(tx workload.Tx) error {
				for i := lo; i < hi; i++ {
					key := uint64(i)
					if keys != nil {
						key = uint64(keys[i])
					}
					value = appendRow(value[:0], key)
					if err := tx.Insert(0, key, value); err != nil {
						return err
					}
				}
				return nil
			})
		}
	})
	d.next.Store(uint64(d.rows))
	return workload.LoadReport{Records: d.rows, Summary: fmt.Sprintf("%d rows of %d bytes", d.rows, rowBytes)}, err
}

// Verify implements workload.Driver: the table has the rows that were loaded and
// appended, and no others.
func (d *rowsDriver) Verify(ctx context.Context, store workload.Store) (r workload.VerifyReport, err error) {
	want := d.next.Load()
	wrong, first := 0, ""
	next := uint64(0)
	err = store.Run(ctx, 1, 1, func(ctx context.Context, _ int, w workload.Worker) error {
		var value []byte
		for page := 1; page > 0; {
			var keys []uint64
			var broken []bool
			err := w.View(ctx, func(tx workload.Tx) error {
				rt, err := workload.RangerOf(tx)
				if err != nil {
					return err
				}
				keys, broken = keys[:0], broken[:0] // of this attempt
				return rt.Range(0, workload.Range{
					From: next, To: math.MaxUint64, Limit: 1000,
				}, func(key uint64, v []byte) bool {
					value = appendRow(value[:0], key)
					keys, broken = append(keys, key), append(broken, !slices.Equal(v, value))
					return true
				})
			})
			if err != nil {
				return err
			}
			for i, key := range keys {
				if key != next || broken[i] {
					if wrong++; wrong == 1 {
						first = fmt.Sprintf("key %d, where %d is next", key, next)
					}
				}
				next = key + 1
			}
			r.Records += len(keys)
			page = len(keys)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	r.Add("rows have the values of their keys, without gaps", wrong == 0, "%d are wrong, the first: %s", wrong, first)
	r.Add("there are the rows that were loaded and appended", uint64(r.Records) == want,
		"%d, and there are %d", want, r.Records)
	err = r.Err()
	return r, err
}

// NewClient implements workload.Driver.
func (d *rowsDriver) NewClient(id int, seed uint64, w workload.Worker) workload.Client {
	c := &rowsClient{driver: d, worker: w, rand: workload.NewRand(seed, uint64(id))}
	c.get, c.scan, c.insert, c.step = c.runGet, c.runScan, c.runInsert, c.take
	return c
}

// rowsClient is a workload.Client. Its functions are bound once; their parameters are fields.
type rowsClient struct {
	driver            *rowsDriver
	worker            workload.Worker
	rand              workload.Rand
	get, scan, insert func(workload.Tx) error
	step              func(key uint64, value []byte) bool

	typ   int
	key   uint64
	value []byte
	seen  int    // rows of this scan
	sum   uint64 // so that values are read
}

// Next implements workload.Client.
func (c *rowsClient) Next() int {
	c.Draw(c.rand.Intn(numRowTypes))
	return c.typ
}

// Draw implements workload.Client.
func (c *rowsClient) Draw(typ int) {
	c.typ = typ
	if typ != rowInsert {
		c.key = uint64(c.rand.Intn(c.driver.rows - max(scanned[typ], 1) + 1))
	}
}

// Run implements workload.Client.
func (c *rowsClient) Run(ctx context.Context) (workload.Outcome, error) {
	switch c.typ {
	case rowGet:
		return workload.Committed, c.worker.View(ctx, c.get)
	case rowInsert:
		c.key = c.driver.next.Add(1) - 1
		c.value = appendRow(c.value[:0], c.key)
		return workload.Committed, c.worker.Update(ctx, c.insert)
	default:
		return workload.Committed, c.worker.View(ctx, c.scan)
	}
}

func (c *rowsClient) runGet(tx workload.Tx) error {
	v, err := tx.Get(0, c.key)
	if err == nil && (len(v) != rowBytes || binary.LittleEndian.Uint64(v) != c.key) {
		err = fmt.Errorf("%w: row %d is %q", workload.ErrInconsistent, c.key, v)
	}
	return err
}

func (c *rowsClient) runInsert(tx workload.Tx) error { return tx.Insert(0, c.key, c.value) }

func (c *rowsClient) runScan(tx workload.Tx) error {
	rt, err := workload.RangerOf(tx)
	if err != nil {
		return err
	}
	n := scanned[c.typ]
	c.seen = 0
	if err := rt.Range(0, workload.Range{From: c.key, To: math.MaxUint64, Limit: n}, c.step); err != nil {
		return err
	}
	if c.seen != n {
		return fmt.Errorf("%w: a scan of %d rows from %d has %d", workload.ErrInconsistent, n, c.key, c.seen)
	}
	return nil
}

// take counts a row of a scan that is the one which comes next.
func (c *rowsClient) take(key uint64, value []byte) bool {
	if key != c.key+uint64(c.seen) || len(value) != rowBytes {
		return false
	}
	c.sum += binary.LittleEndian.Uint64(value)
	c.seen++
	return true
}
