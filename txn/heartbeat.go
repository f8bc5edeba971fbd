package txn

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"txnode/memory/heartbeat"
	"txnode/rdma"
)

// beating is the heartbeat of a process, beside its lease: see package heartbeat.
type beating struct {
	stop context.CancelFunc // nil: there is none; never changed after Open
	done sync.WaitGroup

	mu    sync.Mutex
	stats heartbeat.Stats
}

// heartbeatThread is the index of the thread that beats.
const heartbeatThread = keeperThread + 1

// startHeartbeat starts a goroutine that beats, and looks for processes that are silent. Without one leases count.
func (db *DB) startHeartbeat() error {
	if db.opts.Heartbeat == 0 || !db.space.Shared() || !db.fabric.Caps().RealTime {
		return nil
	}
	t, err := rdma.NewThread(db.fabric, rdma.ThreadOptions{Index: heartbeatThread, Arena: heartbeat.Arena})
	if err != nil {
		return err
	}
	b := &db.beating
	m := heartbeat.New(db.space, heartbeat.Options{Term: int64(db.opts.Heartbeat), Longest: int64(db.opts.LeaseTerm)})
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.done.Go(func() {
		db.beat(ctx, m, t.Plain())
		if err := t.Close(); err != nil {
			db.opts.Logger.Warn("the thread of the heartbeat cannot be closed", errField(err))
		}
	})
	return nil
}

// beat beats until ctx ends.
func (db *DB) beat(ctx context.Context, m *heartbeat.Monitor, c *rdma.Coro) {
	b := &db.beating
	tick := time.NewTicker(time.Duration(m.Every()))
	defer tick.Stop()
	for failed := false; ; {
		changed, err := m.Turn(ctx, c)
		stats := m.Stats()
		b.mu.Lock()
		ended := stats.Ended > b.stats.Ended
		b.stats = stats
		b.mu.Unlock()
		if ctx.Err() != nil {
			break
		}
		if ended {
			db.opts.Logger.Warn("others have taken this process for dead", zap.Duration("heartbeat", time.Duration(stats.Term)))
		}
		if err != nil && !failed {
			db.opts.Logger.Warn("the heartbeat of this process has failed, and will be tried again; until then its lease counts alone, and reads ask the catalog", errField(err))
		}
		failed = err != nil
		if changed {
			db.hurry()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			continue
		}
		break
	}
	if err := m.Leave(c); err != nil {
		db.opts.Logger.Warn("the heartbeat of this process cannot be ended: others find it silent", errField(err))
	}
}

// stopHeartbeat ends the goroutine.
func (db *DB) stopHeartbeat() {
	if db.beating.stop != nil {
		db.beating.stop()
		db.beating.done.Wait()
	}
}

// Heartbeats are counts of Options.Heartbeat since the database was opened. They are zero without it.
func (db *DB) Heartbeats() heartbeat.Stats {
	db.beating.mu.Lock()
	defer db.beating.mu.Unlock()
	return db.beating.stats
}
