package simbench_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
	"txnode/rdma/sim"
)

var (
	shareCoordinators = flag.Int("share.coordinators", 3,
		"coordinators of the process that dies, for TestShareRecovery")
	shareLog = flag.Int("share.log", 256<<10,
		"bytes of the log of each that its transaction fills, a power of two of at least 64 KiB")
	shareValue = flag.Int("share.value", 900, "bytes of a value")
	shareRows  = flag.Int("share.rows", 0,
		"rows of a transaction, so that most of a log is at rest; 0: as many as fill a log")
	shareAt = flag.Float64("share.at", 2.5,
		"when the process dies, in the time that it takes to send all that is under way once")
	shareProfile = flag.String("share.profile", "connectx-6", "machine")
)

// TestShareRecovery: a process dies whose coordinators have each a transaction under way that fills
// their log, or small ones have filled it before. One other process decides all of them, or two or
// three do, each a part of the coordinators, in one epoch that was begun before: to share the work
// cannot cost less. It logs how long it takes, in all and until the last verdicts are in the
// catalog, which is the part that another process could look through logs for. That all is decided
// is what it checks.
func TestShareRecovery(t *testing.T) {
	p, err := sim.ProfileByName(*shareProfile)
	must(t, err)
	for _, survivors := range []int{1, 2, 3} {
		x := shareRecovery(t, p, survivors)
		t.Logf("%s, %d coordinators, %d rows of %d bytes each, %d survivors: %d transactions to finish, %v on the "+
			"network, verdicts after %v, %v of all processors here, %d round trips at least to read logs",
			p.Name, *shareCoordinators, x.rows, *shareValue, survivors, x.finished, x.took, x.decided, x.cpu, x.trips)
	}
}

type shared struct {
	rows     int
	finished int           // transactions
	took     time.Duration // virtual time
	decided  time.Duration // of it, until the last verdicts were written
	cpu      time.Duration // of this machine's processors, with the simulation, for all survivors together
	trips    uint64        // for the reading of logs, of one of the survivors
}

// processors is the time that this program has used of processors.
func processors(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// verdicts is a catalog that notes when verdicts were written.
type verdicts struct {
	*catalog.Mem
	now func() int64
	at  int64
}

// Apply makes the changes.
func (v *verdicts) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	if slices.ContainsFunc(changes, func(e layout.Entry) bool { return strings.HasPrefix(e.Key, "verdict/") }) {
		v.at = v.now()
	}
	return v.Mem.Apply(rev, changes)
}

func shareRecovery(t *testing.T, p sim.Profile, survivors int) (x shared) {
	t.Helper()
	const blades, most = 3, 3
	n, logBytes := *shareCoordinators, *shareLog
	x.rows = (logBytes - logBytes/16) / (*shareValue + 80)
	data := uint64(n*x.rows) * uint64(2**shareValue+256)
	o := sim.Options{Profile: p, Seed: 7, ThreadsPerBlade: n}
	for range blades {
		o.Blades = append(o.Blades, sim.BladeOptions{Size: data + uint64(n*logBytes)*2 + 1<<30, Key: 1})
	}
	f, err := sim.New(o)
	must(t, err)
	var all []*rdma.Thread
	defer func() {
		for _, th := range all {
			_ = th.Close() // some have stopped
		}
		_ = f.Close()
	}()
	thread := func(compute, i, arena int) *rdma.Thread {
		th, err := rdma.NewThread(f, rdma.ThreadOptions{
			Index: compute*n + i, Techniques: rdma.Techniques{Doorbells: true}, Arena: arena,
		})
		must(t, err)
		all = append(all, th)
		return th
	}
	cat := &verdicts{Mem: &catalog.Mem{}, now: f.Now}
	open := func(compute int, mo memory.Options) (*memory.Space, *occ.Engine, *rdma.Thread) {
		th := thread(compute, 0, 8<<20)
		space, err := memory.Open(th.Plain(), f, cat, mo)
		must(t, err)
		must(t, space.EndAlone())
		return space, occ.NewEngine(space, occ.Options{CacheBytes: 64 << 20}), th
	}
	mo := memory.Options{Backups: 1, SegmentSize: 16 << 20, LogArea: uint32(logBytes), Shared: true} // a flag
	space, eng, ctl := open(most+1, mo)
	meta, err := space.CreateTable("t", []byte(`{"key":"bytes","value":"bytes","index":"race"}`))
	must(t, err)
	root, ix, err := race.Create(ctl.Plain(), space, meta.ID, race.Options{Groups: 1023})
	must(t, err)
	if !space.AcquireRight(uint32(meta.ID)) {
		t.Fatal("no right")
	}
	must(t, space.SetTableRoot(meta.ID, root))
	space.ReleaseRight(uint32(meta.ID))
	table := &occ.Table{ID: meta.ID, Name: "t", Index: ix}
	var procs []*memory.Space
	var engines []*occ.Engine
	var threads []*rdma.Thread
	for i := range survivors {
		s, e, th := open(i+1, mo)
		procs, engines, threads = append(procs, s), append(engines, e), append(threads, th)
	}

	ready, bytesPerNs := 0, p.BytesPerNs
	if p.WireBytesPerNs > 0 {
		bytesPerNs = min(bytesPerNs, p.WireBytesPerNs)
	}
	ids := make([]uint32, n)
	write := func(tx *occ.Tx, from, rows, put int, v byte) error {
		must(t, tx.Begin())
		at := make([]int, rows)
		for k := range at {
			var err error
			// not negative
			if at[k], err = tx.Stage(table, binary.LittleEndian.AppendUint64(nil, uint64(from+k)), true); err != nil {
				return err
			}
		}
		if err := tx.Execute(); err != nil {
			return err
		}
		value := make([]byte, put)
		for i := range value {
			value[i] = v
		}
		for k := range at {
			if err := tx.Put(at[k], value); err != nil {
				return err
			}
		}
		return nil
	}
	f.Run(n, func(i int) {
		th := thread(0, i, 16*logBytes+4<<20)
		se, err := eng.NewSession(th)
		must(t, err)
		tx, err := se.NewTx(th.Plain())
		must(t, err)
		sure := func(from, rows int, v byte) {
			var err error
			for range 100 {
				if err = write(tx, from, rows, *shareValue, v); err == nil {
					err = tx.Commit()
				} else {
					_ = tx.Rollback()
				}
				th.Plain().Sleep(1_000_000)
				must(t, se.Maintain(th.Plain()))
				if err == nil {
					return
				}
			}
			must(t, err)
		}
		for k := 0; k < x.rows; k += 50 {
			sure(i*x.rows+k, min(50, x.rows-k), 1)
		}
		ids[i] = se.Coordinator()
		sure(i*x.rows, x.rows, 2) // its log areas grow
		rows := x.rows
		if *shareRows > 0 {
			rows = *shareRows
			for k := 0; k < x.rows; k += rows {
				sure(i*x.rows+k, min(rows, x.rows-k), 2)
			}
		}
		for try := 0; ; try++ {
			if err = write(tx, i*x.rows, rows, *shareValue, 3); err == nil {
				break
			}
			_ = tx.Rollback()
			if th.Plain().Sleep(1_000_000); try == 100 {
				t.Fatal(err)
			}
		}
		for ready++; ready < n; {
			th.Plain().Sleep(1000)
		}
		if i == 0 { // in the middle of the images of backups, behind two logs
			sent := float64(n*logBytes*rows/x.rows) * *shareAt / bytesPerNs
			must(t, f.Inject(sim.Fault{Kind: sim.FaultKill, Compute: 1, At: time.Duration(sent)}))
		}
		_ = tx.Commit() // some may have come to its end
		th.Plain().Sleep(1_000_000_000)
	})
	if t.Failed() || len(f.Stopped()) != n {
		t.Fatalf("%d of %d have stopped", len(f.Stopped()), n)
	}
	must(t, procs[0].AdvanceEpoch(nil))
	for _, s := range procs {
		must(t, s.Follow())
	}
	began, virtual := processors(t), f.Now()
	reps := make([]recovery.Report, survivors)
	f.Run(survivors, func(i int) {
		o := engines[i].Recovery()
		o.Steal, o.Fenced = true, true
		var mine []uint32
		for k := i; k < n; k += survivors {
			mine = append(mine, ids[k])
		}
		must(t, recovery.Reconnect(threads[i].Plain(), procs[i]))
		var err error
		if reps[i], err = recovery.Recover(threads[i].Plain(), o, mine...); err != nil {
			t.Error(fmt.Errorf("survivor %d: %w", i, err))
		}
	})
	x.took, x.cpu = time.Duration(f.Now()-virtual), processors(t)-began
	if x.decided = time.Duration(cat.at - virtual); x.decided <= 0 || x.decided > x.took {
		t.Errorf("verdicts were written after %v of %v", x.decided, x.took)
	}
	x.trips = math.MaxUint64
	for i := range reps {
		x.finished += reps[i].Finished
		x.trips = min(x.trips, reps[i].ScanTrips)
	}
	if x.finished < n/3 {
		t.Errorf("%d of %d transactions were finished: %+v", x.finished, n, reps)
	}
	return x
}
