package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"txnode/rdma/tcp"
	"txnode/txn"
)

// DefaultPost is the default of Options.Post.
const DefaultPost = time.Second

// maxFailures bounds how many failures count.
const maxFailures = 60

// postWait bounds how long a daemon may take for a report.
const postWait = 2 * time.Second

// publisher tells a daemon of the cluster what a database does. It reads counters that are there
// anyway, and a daemon that does not answer is no error: the next one is tried next time.
type publisher struct {
	db        *txn.DB
	o         Options
	addresses []string // of daemons with sockets: the catalog's before those of blades
	at        int      // in addresses: that which has answered last
	daemon    *tcp.Caller
	failures  int // since a daemon has answered
	rest      int // how many reports are left out, so that daemons that refuse are not asked each time
	said      ProcessReport
	began     time.Time

	end  context.CancelFunc
	done sync.WaitGroup
}

// publish begins to report, until stop.
func (h *Host) publish(db *txn.DB, o Options) {
	every := cmp.Or(o.Post, DefaultPost)
	p := &publisher{db: db, o: o, began: time.Now()}
	for _, a := range append([]string{h.Catalog.Name()}, addressesOf(h.Servers)...) {
		if onSockets(a) && !slices.Contains(p.addresses, a) {
			p.addresses = append(p.addresses, a)
		}
	}
	if every < 0 || p.addresses == nil {
		return
	}
	host, _ := os.Hostname() // "" then
	p.said = ProcessReport{Life: rand.Uint64(), Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0])}
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	p.done.Go(func() { p.run(ctx, every) })
	h.publisher = p
}

func addressesOf(servers []Server) (out []string) {
	for _, s := range servers {
		out = append(out, string(s.Address))
	}
	return out
}

// stop ends the reports. nil: there are none.
func (p *publisher) stop() {
	if p != nil {
		p.end()
		p.done.Wait()
	}
}

func (p *publisher) run(ctx context.Context, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		p.post(ctx)
		select {
		case <-ctx.Done():
			p.leave()
			return
		case <-ticks.C:
		}
	}
}

// post sends a report to the daemon that has answered last, or to the next one, until the
// publisher is to end.
func (p *publisher) post(life context.Context) {
	if p.rest > 0 {
		p.rest--
		return
	}
	ctx, cancel := context.WithTimeout(life, postWait)
	defer cancel()
	if p.daemon == nil {
		c, err := tcp.DialService(ctx, controlOf(p.addresses[p.at]), ReportService, p.o.tcp())
		if err != nil {
			p.next()
			return
		}
		p.daemon = c
	}
	p.said.Process, p.said.At, p.said.Metrics = p.db.Space().Process(), int64(time.Since(p.began)), p.db.Metrics()
	p.said.Time, p.said.Epoch = time.Now(), uint32(p.db.Space().View().Epoch)
	p.said.Metrics.Tables = busiest(p.said.Metrics.Tables)
	switch err := p.send(ctx); {
	case err == nil:
		p.failures = 0
	case life.Err() == nil:
		p.next()
	}
}

func (p *publisher) send(ctx context.Context) error {
	text, err := json.Marshal(&p.said)
	if err == nil {
		_, err = p.daemon.Call(ctx, text)
	}
	return err
}

// next gives the daemon up.
func (p *publisher) next() {
	if p.daemon != nil {
		_ = p.daemon.Close() // it does not answer
		p.daemon = nil
	}
	p.at = (p.at + 1) % len(p.addresses)
	p.failures = min(p.failures+1, maxFailures)
	p.rest = p.failures / len(p.addresses)
}

// leave has the daemon forget the process, to which a report may be on its way yet.
func (p *publisher) leave() {
	if p.daemon == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), postWait)
	defer cancel()
	p.said.Closed, p.said.Metrics = true, txn.Metrics{}
	_ = p.send(ctx)      // it forgets by itself
	_ = p.daemon.Close() // nothing is under way
}

// busiest are the tables with the most records read and written, by name.
func busiest(tables []txn.TableMetrics) []txn.TableMetrics {
	if len(tables) <= ReportedTables {
		return tables
	}
	work := func(t *txn.TableMetrics) uint64 { return t.Reads + t.Updates + t.Inserts + t.Deletes }
	slices.SortFunc(tables, func(a, b txn.TableMetrics) int { return cmp.Compare(work(&b), work(&a)) })
	tables = tables[:ReportedTables]
	slices.SortFunc(tables, func(a, b txn.TableMetrics) int { return cmp.Compare(a.Table, b.Table) })
	return tables
}
