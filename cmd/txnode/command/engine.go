package command

import (
	"context"
	"errors"
	"fmt"
	"math"

	"txnode/benchmarks/engine"
	"txnode/benchmarks/workload"
	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/txn"
)

// openEngine opens the embedded engine.
func openEngine(ctx context.Context, o StoreOptions) (workload.Store, error) {
	options := txn.Options{
		Dir:         o.Dir,
		Durability:  o.Durability,
		ReadBackups: o.ReadBackups,
		Arena:       o.Arena,
		LeaseTerm:   o.Access.Lease,
		Policy:      occ.PolicyDefault,
		LeafIndex:   o.Index == "leaves",
		Techniques:  &o.Techniques,
		Seed:        o.Seed,
		// A benchmark's worker tries until it commits: when a lock's holder is not
		// running for a while, any number of attempts is too few.
		Retries: math.MaxInt32,
	}
	if o.Policy == "ford" {
		options.Policy = occ.PolicyFORD
	}
	if o.Cluster != "" {
		co, err := o.Access.options()
		if err != nil {
			return nil, err
		}
		db, err := cluster.Open(ctx, o.Cluster, options, co)
		if err != nil {
			return nil, clusterFailed(err)
		}
		return engine.New(db, options.Policy), nil
	}
	options.HugePages, options.BladeSize, options.SegmentSize = o.HugePages, uint64(o.BladeSize), uint32(o.SegmentSize)
	if o.Geometry {
		options.Blades, options.Backups = o.Blades, &o.Replicas
	}
	s, err := engine.Open(ctx, options)
	if errors.Is(err, layout.ErrGeometry) && o.Dir != "" && o.sized {
		err = fmt.Errorf("%w; --blades, --replicas, --blade-size and --segment-size may be left out: then what is "+
			"there is taken", err)
	}
	if err != nil {
		return nil, err // and no *engine.Store that is nil
	}
	return s, nil
}

// geometry is what a database is laid out over.
type geometry struct {
	blades, backups int
	bladeBytes      int64
	fabric          string
}

// geometryOf asks the engine; other stores have none.
func geometryOf(s workload.Store) (geometry, bool) {
	e, ok := s.(*engine.Store)
	if !ok {
		return geometry{}, false
	}
	space := e.DB().Space()
	blades := space.Fabric().Blades()
	g := geometry{blades: len(blades), backups: space.Backups(), fabric: space.Fabric().Name()}
	if len(blades) > 0 {
		g.bladeBytes = int64(blades[0].Size)
	}
	return g, true
}
