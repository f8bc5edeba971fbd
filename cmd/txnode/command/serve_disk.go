package command

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// leastRoom is how many bytes a disk has free that is not called full: less than a segment
// of most databases.
const leastRoom = 16 << 20

// diskEvery is how often a daemon looks at its disks for the log.
const diskEvery = 5 * time.Second

// diskRoom is roomOf, but in tests.
var diskRoom = roomOf

// diskLook is the room on a disk of a daemon.
type diskLook struct {
	Of, Dir    string // what it is for, as a label, and its directory
	Size, Free uint64 // bytes
}

// disks are those of blades and catalog. One that cannot be asked is left out: what uses it says
// so.
func (d *daemon) disks() (out []diskLook) {
	add := func(of, dir string) {
		if size, free, err := diskRoom(dir); err == nil {
			out = append(out, diskLook{of, dir, size, free})
		}
	}
	if d.dir != nil {
		add("blades", d.o.Dir)
	}
	if d.catalog != nil && d.o.Catalog != catalogInMemory {
		add("catalog", d.o.Catalog)
	}
	return out
}

// fullDisks says which disks are full, what goes on without them, and what to do.
func fullDisks(disks []diskLook) (faults []string) {
	for _, k := range disks {
		if k.Free >= leastRoom {
			continue
		}
		goesOn := "what needs more memory goes to other blades"
		if k.Of == "catalog" {
			goesOn = "what changes the catalog may fail"
		}
		faults = append(faults, fmt.Sprintf("the disk of the %s in %s is full: %s are free of %s, and %s: make room",
			k.Of, k.Dir, bytesText(k.Free), bytesText(k.Size), goesOn))
	}
	return faults
}

// watchDisks logs that disks become full, and have room again, until ctx ends.
func (d *daemon) watchDisks(ctx context.Context) {
	ticks := time.NewTicker(diskEvery)
	defer ticks.Stop()
	for full := 0; ; {
		faults := fullDisks(d.disks())
		switch {
		case len(faults) > full:
			d.log.Warn("a disk is full", zap.Strings("disks", faults))
		case len(faults) == 0 && full > 0:
			d.log.Info("all disks have room again")
		}
		full = len(faults)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}
