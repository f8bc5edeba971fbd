package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"txnode/cluster"
	"txnode/memory"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// Bounds of what a daemon asks before it ends: each server and the catalog, all of it, and how
// often while it waits.
const (
	endAsk   = 2 * time.Second
	endAsks  = 6 * time.Second
	endEvery = time.Second
)

// farewell is what the end of a daemon means.
type farewell struct {
	err  error  // it is not known; what follows is empty then
	lost string // what is lost; "": nothing
	away string // what is unavailable until the daemon is back; "": nothing
	do   string // what to do about it
}

// farewell asks the catalog and all servers, as far as the daemon knows of them, what its end
// means. The answer comes within endAsks, also if nothing answers; a question that goes on
// behind that is let go.
func (d *daemon) farewell(ctx context.Context, address string) <-chan farewell {
	answer, asked := make(chan farewell, 1), make(chan farewell, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endAsks)
	go func() { asked <- d.askFarewell(ctx, address) }()
	go func() {
		defer cancel()
		select {
		case f := <-asked:
			answer <- f
		case <-ctx.Done():
			answer <- farewell{err: fmt.Errorf("no answer within %v: %w", endAsks, memory.ErrAway)}
		}
	}()
	return answer
}

func (d *daemon) askFarewell(ctx context.Context, address string) (f farewell) {
	o := cluster.Options{TCP: tcp.Options{Credentials: d.files.Client, Connect: endAsk, Control: endAsk}}
	var st *cluster.Status
	var err error
	switch {
	case d.catalog != nil:
		st, err = cluster.AskOf(ctx, d.catalog, o)
	case d.o.Cluster != "":
		address = d.o.Cluster
		st, err = cluster.Ask(ctx, address, o)
	default:
		return f
	}
	if errors.Is(err, cluster.ErrNone) {
		return f
	}
	if err != nil || st.Layout == nil {
		return farewell{err: err}
	}
	s := st.StopOwn(d.blades())
	why := strings.Join(s.Why, "; ")
	// programs that have the database open do it by themselves
	f.do = fmt.Sprintf("have copies built: txnode cluster heal %s", shown(address))
	if st.Layout.Backups == 0 {
		f.do = fmt.Sprintf("back it up: txnode backup %s FILE", shown(address))
	}
	switch {
	case d.catalog != nil && d.o.Catalog == catalogInMemory && st.Copies.Segments > 0:
		f.lost = "the catalog is in memory, and without it nothing of the database can be read"
		f.do = fmt.Sprintf("back it up: txnode backup %s FILE", shown(address))
	case s.Last > 0 && d.dir == nil:
		f.lost = why + ", and the blades of this daemon are in memory"
	case s.Last > 0:
		f.away = why
	}
	return f
}

// blades are those of the daemon.
func (d *daemon) blades() []rdma.BladeInfo {
	switch {
	case d.shared != nil:
		return d.shared.Set().Blades()
	case d.set != nil:
		return d.set.Blades()
	case d.device != nil:
		return d.device.Blades()
	}
	return nil
}

// mayEnd says in the log what the end of the daemon means, and whether it goes on serving because
// data would be lost. first: it has not said so yet.
func (d *daemon) mayEnd(f *farewell, first bool) bool {
	switch {
	case f.err != nil && !first: // it was known, and no answer is no news
		return false
	case f.err != nil:
		d.log.Warn("it is not known whether other blades have copies of all that this daemon has: ending all the same",
			zap.String("error", oneLine(f.err)))
	case f.lost != "" && d.w.Again != nil:
		if first {
			d.log.Error("not ending yet: data would be lost by it; the daemon ends when that is no longer so, or at "+
				"a second signal", zap.String("lost", f.lost), zap.String("do", f.do))
			d.told(d.notify.tell("STATUS=not ending yet: data would be lost: " + f.lost))
		}
		return false
	case f.lost != "":
		d.log.Error("data is lost by the end of this daemon", zap.String("lost", f.lost))
	case f.away != "":
		d.log.Warn("data is unavailable until this daemon is back", zap.String("unavailable", f.away),
			zap.String("do", "start it again; and before the next end, "+f.do))
	}
	return true
}
