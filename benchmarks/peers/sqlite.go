package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"

	"modernc.org/sqlite"

	"txnode/benchmarks/workload"
)

// sqliteStore is SQLite in memory, translated to Go. All workers share one connection, whose pages
// are then the database itself, and take turns: connections of their own would lock it all the
// same, and drop their caches after each update of another one. It is used below database/sql, with
// statements that are prepared once.
type sqliteStore struct {
	clock
	mu                      sync.Mutex // held by the transaction that runs
	conn                    driver.Conn
	begin, commit, rollback driver.Stmt
	tables                  []sqliteTable
}

// sqliteTable is the statements of a table. Keys are SQLite's row ids.
type sqliteTable struct{ get, put, insert, remove, up, down driver.Stmt }

func openSQLite(context.Context, *options) (workload.Store, error) {
	conn, err := (&sqlite.Driver{}).Open(":memory:")
	if err != nil {
		return nil, err
	}
	s := &sqliteStore{conn: conn, clock: newClock()}
	err = s.prepare([]statement{{&s.begin, "BEGIN"}, {&s.commit, "COMMIT"}, {&s.rollback, "ROLLBACK"}})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// statement is one to be prepared, and where it goes.
type statement struct {
	to  *driver.Stmt
	sql string
}

func (s *sqliteStore) prepare(all []statement) (err error) {
	for _, x := range all {
		if *x.to, err = s.conn.Prepare(x.sql); err != nil {
			return fmt.Errorf("%s: %w", x.sql, err)
		}
	}
	return nil
}

// Name implements workload.Store.
func (s *sqliteStore) Name() string { return "sqlite" }

// Tables implements workload.Store.
func (s *sqliteStore) Tables(_ context.Context, tables []workload.Table) (bool, error) {
	if s.tables != nil {
		return true, nil
	}
	s.tables = make([]sqliteTable, len(tables))
	for i := range tables {
		var create driver.Stmt
		err := s.prepare([]statement{{&create, fmt.Sprintf("CREATE TABLE t%d (k INTEGER PRIMARY KEY, v BLOB NOT NULL)",
			i)}})
		if err != nil {
			return false, err
		}
		if err := errors.Join(execute(create), create.Close()); err != nil {
			return false, err
		}
		t := &s.tables[i]
		all := []statement{
			{&t.get, "SELECT v FROM t%d WHERE k = ?"},
			{&t.put, "INSERT INTO t%d VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v"},
			{&t.insert, "INSERT OR IGNORE INTO t%d VALUES (?, ?)"},
			{&t.remove, "DELETE FROM t%d WHERE k = ?"},
			{&t.up, "SELECT k, v FROM t%d WHERE k BETWEEN ? AND ? ORDER BY k LIMIT ?"},
			{&t.down, "SELECT k, v FROM t%d WHERE k BETWEEN ? AND ? ORDER BY k DESC LIMIT ?"},
		}
		for k := range all {
			all[k].sql = fmt.Sprintf(all[k].sql, i)
		}
		if err := s.prepare(all); err != nil {
			return false, err
		}
	}
	return false, nil
}

// execute runs a statement without results.
func execute(x driver.Stmt, args ...driver.Value) error {
	_, err := x.Exec(args) //nolint:staticcheck // the form without a context, which has nothing to cancel here
	return err
}

// changes runs a statement and returns whether it has changed a row.
func changes(x driver.Stmt, args ...driver.Value) (bool, error) {
	r, err := x.Exec(args) //nolint:staticcheck // as in execute
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// query calls do for each row of the results until it returns false.
func query(x driver.Stmt, columns []driver.Value, do func() bool, args ...driver.Value) error {
	rows, err := x.Query(args) //nolint:staticcheck // as in execute
	if err != nil {
		return err
	}
	for {
		if err = rows.Next(columns); err != nil || !do() {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, rows.Close())
}

// Run implements workload.Store.
func (s *sqliteStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return runWorkers(ctx, threads*coroutines, func() workload.Worker { return &sqliteWorker{s: s} }, fn)
}

// Close implements workload.Store. It finalizes the statements.
func (s *sqliteStore) Close(context.Context) error {
	all := []driver.Stmt{s.begin, s.commit, s.rollback}
	for _, t := range s.tables {
		all = append(all, t.get, t.put, t.insert, t.remove, t.up, t.down)
	}
	var errs []error
	for _, x := range all {
		errs = append(errs, x.Close())
	}
	return errors.Join(append(errs, s.conn.Close())...)
}

// sqliteWorker is a worker and its transaction.
type sqliteWorker struct {
	oneByOne
	s       *sqliteStore
	columns [2]driver.Value
}

// Update implements workload.Worker.
func (w *sqliteWorker) Update(_ context.Context, fn func(workload.Tx) error) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if err := execute(w.s.begin); err != nil {
		return err
	}
	if err := fn(w); err != nil {
		if failed := execute(w.s.rollback); failed != nil {
			return errors.Join(err, failed)
		}
		return err
	}
	err := execute(w.s.commit)
	if err == nil {
		w.counters.Committed++
	}
	return err
}

// View implements workload.Worker. It is alone, and so needs no transaction of SQLite's.
func (w *sqliteWorker) View(_ context.Context, fn func(workload.Tx) error) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	err := fn(w)
	if err == nil {
		w.counters.Committed++
	}
	return err
}

// rowID is a key as SQLite orders it: as a signed number.
func rowID(key uint64) driver.Value { return int64(key ^ 1<<63) }

// Get implements workload.Tx. The driver copies each value.
func (w *sqliteWorker) Get(table int, key uint64) (value []byte, err error) {
	found := false
	err = query(w.s.tables[table].get, w.columns[:1], func() bool {
		value, _ = w.columns[0].([]byte)
		found = true
		return false
	}, rowID(key))
	if err == nil && !found {
		err = workload.ErrNotFound
	}
	return value, err
}

// Put implements workload.Tx.
func (w *sqliteWorker) Put(table int, key uint64, value []byte) error {
	return execute(w.s.tables[table].put, rowID(key), blob(value))
}

// blob is a value that is not NULL.
func blob(value []byte) driver.Value {
	if value == nil {
		return []byte{}
	}
	return value
}

// Insert implements workload.Tx.
func (w *sqliteWorker) Insert(table int, key uint64, value []byte) error {
	done, err := changes(w.s.tables[table].insert, rowID(key), blob(value))
	if err == nil && !done {
		err = workload.ErrExists
	}
	return err
}

// Delete implements workload.Tx.
func (w *sqliteWorker) Delete(table int, key uint64) error {
	done, err := changes(w.s.tables[table].remove, rowID(key))
	if err == nil && !done {
		err = workload.ErrNotFound
	}
	return err
}

// Range implements workload.Ranger.
func (w *sqliteWorker) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	x, limit := w.s.tables[table].up, int64(-1)
	if r.Descending {
		x = w.s.tables[table].down
	}
	if r.Limit > 0 {
		limit = int64(r.Limit)
	}
	return query(x, w.columns[:], func() bool {
		id, _ := w.columns[0].(int64)
		value, _ := w.columns[1].([]byte)
		return do(uint64(id)^1<<63, value)
	}, rowID(r.From), rowID(r.To), limit)
}
