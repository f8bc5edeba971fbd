package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/verify"
)

// ofCluster reports whether an argument is the address of a catalog, and not a directory
// that has such a name.
func ofCluster(arg string) bool {
	if cluster.CheckCatalog(arg) != nil {
		return false
	}
	st, err := os.Stat(arg)
	return err != nil || !st.IsDir()
}

// checkCluster checks a database that processes may have open.
func checkCluster(ctx context.Context, w *World, o *checkOptions, address string) error {
	if o.Repair || o.ReplaceLost {
		return usagef("--repair and --replace-lost are for a directory: in a cluster damage is mended from another " +
			"copy when it is met, and what a lost blade had is copied by the processes that have the database open")
	}
	o.cluster = true
	co, err := o.access.options()
	if err != nil {
		return err
	}
	attach := func(ctx context.Context) (*verify.Database, func() error, error) {
		if err := missed(ctx, address, co); err != nil {
			return nil, nil, err
		}
		h, err := cluster.Connect(ctx, address, co)
		if err != nil {
			return nil, nil, clusterFailed(err)
		}
		l, err := layout.LoadLayout(h.Catalog)
		if err == nil && l == nil {
			err = failf("no database in %s: create it with txnode cluster init", address)
		}
		var d *verify.Database
		if err == nil {
			d, err = verify.Attach(h.Fabric, l)
		}
		if err != nil {
			return nil, nil, errors.Join(err, h.Close())
		}
		return d, func() error { return errors.Join(d.Close(), h.Close()) }, nil
	}
	return o.report(w, address, func(x verify.Options) (verify.Summary, error) {
		return verify.CheckRunning(ctx, attach, x)
	})
}

// missed is why a cluster cannot be checked whole: its catalog is an old copy, or a server does not
// answer, and its blades do not count as lost yet.
func missed(ctx context.Context, address string, co cluster.Options) error {
	st, err := cluster.Ask(ctx, address, co)
	if err != nil {
		return clusterFailed(err)
	}
	if st.Behind != nil {
		return clusterFailed(st.Behind)
	}
	b := 0
	for i := range st.Servers {
		s := &st.Servers[i]
		for range s.Blades {
			if s.Err != nil && st.Layout != nil && b < len(st.Layout.Blades) &&
				st.Layout.Blades[b].State == layout.BladeUp {
				return fmt.Errorf("blade %d is not there, and does not count as lost: serve it again, or open the "+
					"database, which does without it: %w", b, clusterFailed(s.Err))
			}
			b++
		}
	}
	return nil
}
