package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/redis/rueidis"

	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload"
)

// redisStore is a Redis in memory, on a unix socket. A transaction of SmallBank is one script on
// the server. Others read what they need, and one script writes if that is unchanged. Commands of
// concurrent workers share a connection, and one write.
type redisStore struct {
	keySpace
	server *server
	client rueidis.Client
}

func openRedis(ctx context.Context, _ *options) (_ workload.Store, err error) {
	path, err := find("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	s := &redisStore{keySpace: newKeySpace()}
	if s.server, _, err = newServer("redis-server", ""); err != nil {
		return nil, err
	}
	socket := filepath.Join(s.server.dir, "socket")
	o := rueidis.MustParseURL("unix://" + socket)
	o.DisableCache, o.PipelineMultiplex = true, 0 // one processor of the server
	c := s.server.command(nil, path, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
		"--dir", s.server.dir)
	err = s.server.start(ctx, c, func(ctx context.Context) error {
		if _, err := os.Stat(socket); err != nil {
			return err
		}
		s.client, err = rueidis.NewClient(o)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.server.close())
	}
	return s, nil
}

// Name implements workload.Store.
func (s *redisStore) Name() string { return "redis" }

// Run implements workload.Store.
func (s *redisStore) Run(ctx context.Context, threads, coroutines int, fn func(ctx context.Context, id int,
	w workload.Worker) error) error {
	return runWorkers(ctx, threads*coroutines, func() workload.Worker {
		w := &redisWorker{client: s.client}
		w.fetch = w.fetchRows
		return w
	}, fn)
}

// Close implements workload.Store.
func (s *redisStore) Close(context.Context) error {
	s.client.Close()
	return s.server.close()
}

// redisWorker is a worker and its transaction.
type redisWorker struct {
	counters workload.Counters
	buffered
	client     rueidis.Client
	keys, args []string
}

// Counters implements workload.Worker.
func (w *redisWorker) Counters() workload.Counters { return w.counters }

// Prepare implements workload.Worker.
func (*redisWorker) Prepare(uses []workload.Use) workload.Plan { return workload.PlanEach(uses) }

// The scripts of transactions of any kind. Of each key an argument is what it was: "=" and a
// value, or "-" for none.
var (
	// redisRead returns the values of keys, or nil if one for which there is an argument
	// is not what it was.
	redisRead = rueidis.NewLuaScript(redisCompare + `return redis.call('MGET', unpack(KEYS))`)
	// redisCommit writes what the second half of the arguments says, if keys are what they were:
	// "" for what stays.
	redisCommit = rueidis.NewLuaScript(redisCompare + `
for i, key in ipairs(KEYS) do
	local v = ARGV[#KEYS + i]
	if v == '-' then redis.call('DEL', key) elseif v ~= '' then redis.call('SET', key, string.sub(v, 2)) end;
end
return 1`)
)

const redisCompare = `
for i, key in ipairs(KEYS) do
	if not ARGV[i] then break end
	local v = redis.call('GET', key)
	if (v and '=' .. v or '-') ~= ARGV[i] then return false end;
end
`

// value is a value as scripts have it.
func value(p []byte) string {
	if p == nil {
		return "-"
	}
	return "=" + string(p)
}

// state sets keys to those of the transaction, and args to what was fetched of them.
func (w *redisWorker) state() {
	w.keys, w.args = w.keys[:0], w.args[:0]
	for i := range w.rows {
		r := &w.rows[i]
		w.keys = append(w.keys, string(appendKey(nil, r.table, r.key)))
		if i < w.fetched {
			w.args = append(w.args, value(r.was))
		}
	}
}

// fetchRows is buffered.fetch.
func (w *redisWorker) fetchRows(ctx context.Context) error {
	w.state()
	all, err := redisRead.Exec(ctx, w.client, w.keys, w.args).ToArray()
	switch {
	case rueidis.IsRedisNil(err):
		return errAgain
	case err != nil:
		return err
	}
	for i := w.fetched; i < len(w.rows); i++ {
		switch p, err := all[i].AsBytes(); {
		case rueidis.IsRedisNil(err):
			w.rows[i].was = nil
		case err != nil:
			return err
		default:
			w.rows[i].was = append([]byte{}, p...)
		}
	}
	return nil
}

// Update implements workload.Worker.
func (w *redisWorker) Update(ctx context.Context, fn func(workload.Tx) error) error {
	for {
		w.begin(ctx)
		err := fn(&w.buffered)
		if err == nil {
			err = w.commit(ctx)
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

// View implements workload.Worker. What was fetched at once needs no validation.
func (w *redisWorker) View(ctx context.Context, fn func(workload.Tx) error) error {
	return w.Update(ctx, fn)
}

// commit writes what the transaction has changed, if nothing that it has fetched has changed.
func (w *redisWorker) commit(ctx context.Context) error {
	w.rows = w.rows[:w.fetched] // what is staged only does not matter
	w.state()
	writes := false
	for i := range w.rows {
		text := ""
		if w.rows[i].dirty {
			text, writes = value(w.rows[i].now), true
		}
		w.args = append(w.args, text)
	}
	if writes { // each fetch has found what was fetched before it unchanged
		switch _, err := redisCommit.Exec(ctx, w.client, w.keys, w.args).AsInt64(); {
		case rueidis.IsRedisNil(err):
			return errAgain
		case err != nil:
			return err
		}
	}
	w.counters.Committed++
	return nil
}

// The transactions of SmallBank. They return 1, 0 for lack of funds, or 2 for a check
// that was not covered.
const redisBank = `
local function get(i) return (struct.unpack('<i8', redis.call('GET', KEYS[i]))) end
local function set(i, v) redis.call('SET', KEYS[i], struct.pack('<i8', v)) end
local amount, penalty = tonumber(ARGV[1]), tonumber(ARGV[2])
`

var redisBanks = [smallbank.NumTypes]*rueidis.Lua{
	smallbank.Amalgamate: rueidis.NewLuaScript(redisBank + `
local sum = get(1) + get(2) + get(3)
set(1, 0)
set(2, 0)
set(3, sum)
return 1`),
	smallbank.Balance: rueidis.NewLuaScript(redisBank + `
local sum = get(1) + get(2)
return 1`),
	smallbank.DepositChecking: rueidis.NewLuaScript(redisBank + `
set(1, get(1) + amount)
return 1`),
	smallbank.SendPayment: rueidis.NewLuaScript(redisBank + `
local from = get(1)
if from < amount then return 0 end
local to = get(2)
set(1, from - amount)
set(2, to + amount)
return 1`),
	smallbank.TransactSaving: rueidis.NewLuaScript(redisBank + `
local v = get(1) + amount
if v < 0 then return 0 end
set(1, v)
return 1`),
	smallbank.WriteCheck: rueidis.NewLuaScript(redisBank + `
local savings, checking = get(1), get(2)
if savings + checking < amount then
	set(2, checking - amount - penalty)
	return 2
end
set(2, checking - amount)
return 1`),
}

// Transact implements smallbank.Teller.
func (w *redisWorker) Transact(ctx context.Context, t smallbank.Transaction, a *smallbank.Amounts) (overdrawn bool,
	err error) {
	w.keys, w.args = w.keys[:0], w.args[:0]
	for _, u := range smallbank.Uses(t.Type) {
		w.keys = append(w.keys, string(appendKey(nil, u.Table, t.Customer(u))))
	}
	amount := [smallbank.NumTypes]smallbank.Money{
		smallbank.DepositChecking: a.Deposit, smallbank.SendPayment: a.Payment, smallbank.TransactSaving: a.Savings,
		smallbank.WriteCheck: a.Check,
	}[t.Type]
	w.args = append(w.args, strconv.FormatInt(int64(amount), 10), strconv.FormatInt(int64(a.Penalty), 10))
	n, err := redisBanks[t.Type].Exec(ctx, w.client, w.keys, w.args).AsInt64()
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, smallbank.ErrInsufficientFunds
	}
	w.counters.Committed++
	return n == 2, nil
}

var _ smallbank.Teller = (*redisWorker)(nil)
