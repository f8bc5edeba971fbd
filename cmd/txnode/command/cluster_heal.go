package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/txn"
)

// clusterHealOptions are the flags of txnode cluster heal.
type clusterHealOptions struct {
	Wait    bool
	Timeout time.Duration
	output  textOrJSON
	access  accessOptions
}

func newClusterHeal(w *World) *cobra.Command {
	o := &clusterHealOptions{}
	cmd := &cobra.Command{
		Use:   "heal address",
		Short: "Take blades in, decide transactions, sweep and build copies, until a cluster is whole",
		Long: `Opens the database of the cluster whose catalog is at an address, beside the programs that
use it, and does what each of them does beside its transactions: blades that have
restarted or are back are taken in, transactions of dead processes are decided, what they
left is swept, and copies that are missing are built. It is for clusters whose programs
never stay long enough for that, and for those that none has open.

It ends when there is nothing left that it can do, and prints what txnode cluster status
does: what is wrong still, with exit code 1, or 0 if the cluster is whole. With --wait it
goes on until the cluster is whole, as when a server is started later, and waits, too, for
a catalog or servers that do not answer yet; if data is lost, it ends when all else is done.
After an interruption, call it again.`,
		Example: "  txnode cluster heal unix:/tmp/catalog\n  txnode cluster heal unix:/tmp/catalog --wait " +
			"--timeout 10m",
		Args: exactly(1, "name the address of a catalog"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Timeout < 0 {
				return usagef("--timeout is %v; 0 is none", o.Timeout)
			}
			return runClusterHeal(cmd.Context(), w, args[0], o)
		},
	}
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "go on until the cluster is whole")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 0, "how long to go on at most; 0, the default: no limit")
	o.output.addFlag(cmd)
	o.access.addFlags(cmd)
	return cmd
}

// Bounds of txnode cluster heal.
const (
	healEvery = 200 * time.Millisecond
	// healPatience is how long nothing may come of what is to be done: longer than processes take
	// to renew what they have by default, and a blade to be declared dead.
	healPatience = 15 * time.Second
)

// askCluster is cluster.Ask, but in tests.
var askCluster = cluster.Ask

func runClusterHeal(ctx context.Context, w *World, address string, o *clusterHealOptions) error {
	co, err := o.access.options()
	if err != nil {
		return err
	}
	limit := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	for {
		st, why, err := healOpen(ctx, limit, w, address, o, co)
		if err != nil {
			return err
		}
		all := st.Troubles()
		// It was whole for a moment: a server has come since, or has gone.
		if o.Wait && why == nil && limit.Err() == nil && len(all) > 0 && all[0].Kind > cluster.TroubleLost {
			continue
		}
		if err = printStatus(w, st, o.output == "json"); err != nil && why != nil {
			err = fmt.Errorf("%w; %s", err, oneLine(why))
		}
		return err
	}
}

// healOpen opens the database, heals it, and closes it. It returns how the cluster is then, and why
// it is not whole, if
// that is known.
func healOpen(
	ctx, limit context.Context, w *World, address string, o *clusterHealOptions, co cluster.Options,
) (st *cluster.Status, why, err error) {
	db, err := openCluster(limit, address, &o.access, txn.Options{})
	for said := (waitLine{w: w}); o.Wait && comes(err) && limit.Err() == nil; { // which it says on a terminal
		said.say("waiting: " + oneLine(err))
		pause := time.NewTimer(healEvery)
		select {
		case <-limit.Done():
		case <-pause.C:
			var again error
			if db, again = openCluster(limit, address, &o.access, txn.Options{}); limit.Err() == nil || again == nil {
				err = again // else that of before says what was waited for
			}
		}
		pause.Stop()
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, nil, errInterrupted
	case limit.Err() != nil:
		return nil, nil, fmt.Errorf("after %v: %w", o.Timeout, err)
	default:
		return nil, nil, interruptedOr(ctx, err)
	}
	why = heal(limit, w, db, address, co, o.Wait)
	if err := db.Close(context.WithoutCancel(ctx)); err != nil {
		return nil, nil, clusterFailed(err)
	}
	if ctx.Err() != nil {
		return nil, nil, errInterrupted
	}
	if st, err = askCluster(ctx, address, co); err != nil {
		return nil, nil, interruptedOr(ctx, clusterFailed(err))
	}
	return st, why, nil
}

// comes reports whether an opening has failed by what may come by and by: a server that does not
// answer, or is not known to be gone.
func comes(err error) bool {
	for _, e := range []error{memory.ErrAway, memory.ErrShared, rdma.ErrBladeDown, txn.ErrCutOff} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// heal waits until a database that is open has nothing left to be done, or until the cluster is
// whole. It returns why that is not so, if that is known.
func heal(ctx context.Context, w *World, db *txn.DB, address string, co cluster.Options, whole bool) error {
	h := healing{db: db, self: db.Space().Process(), first: map[uint32]time.Time{}}
	said := waitLine{w: w}
	ticks := time.NewTicker(healEvery)
	defer ticks.Stop()
	for {
		st, err := askCluster(ctx, address, co)
		switch {
		case err == nil && st.Layout == nil:
			return failf("the database is gone from the catalog %s", st.Catalog)
		case err == nil:
			if left := h.look(st, time.Now()); left == "" && (!whole || len(st.Troubles()) == 0 ||
				st.Troubles()[0].Kind <= cluster.TroubleLost) {
				return db.Redundancy().Failure
			} else if left != "" {
				said.say(left)
			} else {
				said.say(waitingFor(st))
			}
		case ctx.Err() == nil && !errors.Is(err, memory.ErrAway):
			return err
		}
		if r := db.Redundancy(); !whole && time.Since(h.moved) > healPatience && !h.moved.IsZero() {
			return errors.Join(fmt.Errorf("nothing has come of it for %v", healPatience), r.Failure)
		}
		select {
		case <-ctx.Done():
			return db.Redundancy().Failure
		case <-ticks.C:
		}
	}
}

// healing is what was seen of a cluster that is being healed.
type healing struct {
	db     *txn.DB
	self   uint32
	leases leases
	first  map[uint32]time.Time // when processes were seen first
	was    string               // how far it was
	moved  time.Time            // since when it is that far
}

// look says what there is to be done that a process can do; "": nothing.
func (h *healing) look(st *cluster.Status, now time.Time) string {
	r := h.db.Redundancy()
	c := &st.Copies
	if far := fmt.Sprint(st.Layout.Epoch, c.Redundancy, c.Undecided, r.Dirty, r.BuildDone, c.Build.Done,
		len(st.Processes), st.Layout.Unswept, len(st.Troubles())); far != h.was {
		h.was, h.moved = far, now
	}
	awaited := slices.ContainsFunc(st.Blades, func(b cluster.BladeStatus) bool {
		up := b.ID < len(st.Layout.Blades) && st.Layout.Blades[b.ID].State == layout.BladeUp
		answers := slices.ContainsFunc(st.Servers, func(s cluster.ServerStatus) bool {
			return s.Address == b.Server && s.Err == nil && !s.Vacant()
		})
		return b.Away() && up && b.State != cluster.BladeForeign && b.State != cluster.BladeMisplaced ||
			b.State == cluster.BladeDown && answers || b.State == cluster.BladeUnused && answers
	})
	switch {
	case c.Undecided > 0:
		return "transactions of dead processes are being decided"
	case awaited:
		return "blades are being taken in, or declared dead"
	case !h.db.Space().Tidy():
		return "what dead processes have left is being swept"
	case h.db.Space().CopiesDue():
		text := fmt.Sprintf("copies are being built, or moved: missing %d, being built %d, to be moved %d",
			c.Missing, c.Building, c.Moving)
		if b := buildOf(h.db.Metrics().Copies); b != nil {
			text += "; copied: " + b.String()
		}
		return text
	case h.others(st, now):
		return "it is not known yet whether other processes are alive"
	}
	return ""
}

// others reports whether another process that is registered may be dead, and have left something:
// it tells nothing of itself, has not said that it is alive since it was seen first, and not for so
// long that the registration has ended, if it can.
func (h *healing) others(st *cluster.Status, now time.Time) bool {
	seen := h.leases.look(st.Layout.Processes, st.Beats, now)
	return slices.ContainsFunc(st.Processes, func(p cluster.ProcessStatus) bool {
		i := slices.IndexFunc(seen, func(s processLook) bool { return s.ID == p.ID })
		if p.ID == h.self || p.Report != nil && p.Report.Age < reportLasts || i < 0 || seen[i].Term == 0 {
			return false
		}
		if h.first[p.ID].IsZero() {
			h.first[p.ID] = now
		}
		known := now.Sub(h.first[p.ID])
		return seen[i].Since >= known && known < seen[i].Term*3/2
	})
}

// reportLasts is how old a report may be by which a process is alive.
const reportLasts = 3 * time.Second
