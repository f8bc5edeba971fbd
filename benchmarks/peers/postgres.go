package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"txnode/benchmarks/workload"
)

// postgresStore is a PostgreSQL on a unix socket, with a connection for each worker. Transactions
// are SERIALIZABLE, and do not wait for the log. Statements are prepared. A transaction of the
// workload has two round trips: it begins and reads, then writes and commits.
type postgresStore struct {
	clock
	server *server
	config *pgx.ConnConfig
	admin  *pgx.Conn
	tables int
	free   []*pgx.Conn // of workers, between runs
}

// postgresOptions are those of the server. Its data is in a temporary directory, and may be lost.
var postgresOptions = []string{
	"listen_addresses=", "unix_socket_directories=.", "synchronous_commit=off", "fsync=off", "full_page_writes=off",
	"shared_buffers=512MB", "max_wal_size=4GB", "max_connections=300", "jit=off", "deadlock_timeout=10ms",
}

func openPostgres(ctx context.Context, _ *options) (_ workload.Store, err error) {
	initdb, err := find("initdb", "postgresql")
	if err != nil {
		return nil, err
	}
	path, err := find("postgres", "postgresql")
	if err != nil {
		return nil, err
	}
	s := &postgresStore{clock: newClock()}
	var as *syscall.Credential
	if s.server, as, err = newServer("postgres", "postgres"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.server.close())
		}
	}()
	data := s.server.dir + "/data"
	if out, err := s.server.command(as, initdb, "-D", data, "-U", "peers", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	args := []string{"-D", data}
	for _, o := range postgresOptions {
		if o == "unix_socket_directories=." {
			o = "unix_socket_directories=" + s.server.dir
		}
		args = append(args, "-c", o)
	}
	if s.config, err = pgx.ParseConfig("user=peers dbname=postgres host=" + s.server.dir); err != nil {
		return nil, err
	}
	err = s.server.start(ctx, s.server.command(as, path, args...), func(ctx context.Context) (err error) {
		if _, err := os.Stat(data); err != nil {
			return err
		}
		s.admin, err = pgx.ConnectConfig(ctx, s.config)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Name implements workload.Store.
func (s *postgresStore) Name() string { return "postgres" }

// Tables implements workload.Store.
func (s *postgresStore) Tables(ctx context.Context, tables []workload.Table) (bool, error) {
	if s.tables > 0 {
		return true, nil
	}
	for i := range tables {
		// Room in each page lets an update stay in it, so that the index does not change.
		_, err := s.admin.Exec(ctx,
			fmt.Sprintf("CREATE TABLE t%d (k bigint PRIMARY KEY, v bytea NOT NULL) WITH (fillfactor = 50)", i))
		if err != nil {
			return false, err
		}
	}
	s.tables = len(tables)
	return false, nil
}

// Run implements workload.Store.
func (s *postgresStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	for len(s.free) < threads*coroutines {
		c, err := pgx.ConnectConfig(ctx, s.config)
		if err != nil {
			return err
		}
		s.free = append(s.free, c)
		for i := range s.tables {
			for name, sql := range map[string]string{
				"get":    "SELECT v FROM t%d WHERE k = $1",
				"lock":   "SELECT v FROM t%d WHERE k = $1 FOR NO KEY UPDATE",
				"update": "UPDATE t%d SET v = $2 WHERE k = $1",
				"insert": "INSERT INTO t%d VALUES ($1, $2)",
				"delete": "DELETE FROM t%d WHERE k = $1",
			} {
				if _, err := c.Prepare(ctx, fmt.Sprint(name, i), fmt.Sprintf(sql, i)); err != nil {
					return err
				}
			}
		}
	}
	conns := make(chan *pgx.Conn, len(s.free))
	for _, c := range s.free {
		conns <- c
	}
	return runWorkers(ctx, threads*coroutines, func() workload.Worker {
		w := &postgresWorker{conn: <-conns}
		for i := range s.tables {
			w.names = append(w.names, statements{
				fmt.Sprint("get", i), fmt.Sprint("lock", i), fmt.Sprint("update", i),
				fmt.Sprint("insert", i), fmt.Sprint("delete", i),
			})
		}
		w.fetch = w.fetchRows
		return w
	}, fn)
}

// Close implements workload.Store.
func (s *postgresStore) Close(ctx context.Context) error {
	var errs []error
	for _, c := range append(s.free, s.admin) {
		errs = append(errs, c.Close(ctx))
	}
	return errors.Join(append(errs, s.server.close())...)
}

// statements are the names of the statements of a table.
type statements struct{ get, lock, update, insert, remove string }

// postgresWorker is a worker and its transaction.
type postgresWorker struct {
	counters workload.Counters
	buffered
	conn     *pgx.Conn
	names    []statements
	readOnly bool
	open     bool // the server has a transaction
	batch    pgx.Batch
	order    []int // in which rows are fetched
}

// Counters implements workload.Worker.
func (w *postgresWorker) Counters() workload.Counters { return w.counters }

// Prepare implements workload.Worker.
func (*postgresWorker) Prepare(uses []workload.Use) workload.Plan { return workload.PlanEach(uses) }

// again turns the server's refusal of a transaction that conflicts into errAgain.
func again(err error) error {
	var e *pgconn.PgError
	// serialization, deadlock, two inserts
	if errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01" || e.Code == "23505") {
		return errAgain
	}
	return err
}

// fetchRows is buffered.fetch.
func (w *postgresWorker) fetchRows(ctx context.Context) (err error) {
	w.batch = pgx.Batch{}
	skip := 0
	if !w.open {
		begin := "BEGIN ISOLATION LEVEL SERIALIZABLE"
		if w.readOnly {
			begin += " READ ONLY"
		}
		w.batch.Queue(begin)
		w.open, skip = true, 1
	}
	w.order = w.order[:0]
	for i := w.fetched; i < len(w.rows); i++ {
		w.order = append(w.order, i)
	}
	slices.SortFunc(w.order, func(i, j int) int { // so that two do not wait for each other
		return cmp.Or(cmp.Compare(w.rows[i].table, w.rows[j].table), cmp.Compare(w.rows[i].key, w.rows[j].key))
	})
	for _, i := range w.order {
		r := &w.rows[i]
		name := w.names[r.table].get
		if r.update && !w.readOnly {
			name = w.names[r.table].lock
		}
		w.batch.Queue(name, int64(r.key)) // the same bits
	}
	results := w.conn.SendBatch(ctx, &w.batch)
	defer func() {
		if e := results.Close(); err == nil {
			err = again(e)
		}
	}()
	if skip > 0 {
		if _, err := results.Exec(); err != nil {
			return again(err)
		}
	}
	for _, i := range w.order {
		r := &w.rows[i]
		r.was = nil
		if err := results.QueryRow().Scan(&r.was); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return again(err)
		}
	}
	return nil
}

// Update implements workload.Worker.
func (w *postgresWorker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	return w.transact(ctx, false, fn)
}

// View implements workload.Worker.
func (w *postgresWorker) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.transact(ctx, true, fn)
}

func (w *postgresWorker) transact(ctx context.Context, readOnly bool, fn func(workload.Tx) error) error {
	for {
		w.begin(ctx)
		w.readOnly, w.open = readOnly, false
		err := fn(&w.buffered)
		if err == nil {
			err = w.commit(ctx)
		} else if w.open {
			if _, e := w.conn.Exec(context.WithoutCancel(ctx), "ROLLBACK"); e != nil {
				return errors.Join(err, e)
			}
		}
		if !errors.Is(err, errAgain) {
			return err
		}
		w.counters.Aborts[workload.AbortValidation]++
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// commit writes what the transaction has changed, and commits.
func (w *postgresWorker) commit(ctx context.Context) error {
	if w.open {
		w.batch = pgx.Batch{}
		for i := range w.rows[:w.fetched] {
			r := &w.rows[i]
			names := &w.names[r.table]
			switch key := int64(r.key); { // the same bits
			case !r.dirty || r.was == nil && r.now == nil:
			case r.now == nil:
				w.batch.Queue(names.remove, key)
			case r.was == nil:
				w.batch.Queue(names.insert, key, r.now)
			default:
				w.batch.Queue(names.update, key, r.now)
			}
		}
		w.batch.Queue("COMMIT")
		if err := again(w.conn.SendBatch(ctx, &w.batch).Close()); err != nil {
			_, e := w.conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
			return errors.Join(err, e)
		}
	}
	w.counters.Committed++
	return nil
}
