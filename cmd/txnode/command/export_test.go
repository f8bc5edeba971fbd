package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/vbauerster/mpb/v8/decor"

	"txnode/benchmarks/report"
	"txnode/benchmarks/workload"
	"txnode/cluster"
	"txnode/rdma"
	"txnode/rdma/ibverbs"
	"txnode/rdma/region"
	"txnode/rdma/tcp"
	"txnode/txn"
)

// ReplaceLost is what check --replace-lost does before the check, with another patience.
func ReplaceLost(ctx context.Context, w World, dir string, patience time.Duration) (code int, err error) {
	if err = rebuildLost(ctx, &w, dir, patience); err != nil {
		code = exitCode(err)
	}
	return code, err
}

// AwaitLooks is whether who waits for copies with a patience gives up, who looks every so often and
// sees one after the other of what there is to be seen.
func AwaitLooks(patience, every time.Duration, seen ...txn.Redundancy) error {
	now := time.Now()
	wait := newCopyWait(seen[0], patience, now)
	for i := range seen {
		if err := wait.look(seen[i], now.Add(time.Duration(i)*every)); err != nil {
			return err
		}
	}
	return nil
}

// SetOpenDatabase replaces what opens the database that is copied until the function that it
// returns is called.
func SetOpenDatabase(fn func(context.Context, txn.Options) (*txn.DB, error)) (restore func()) {
	was := openDatabase
	openDatabase = fn
	return func() { openDatabase = was }
}

// SetAsk replaces what heal asks how a cluster is, until the function that it returns is called.
func SetAsk(fn func(context.Context, string, cluster.Options) (*cluster.Status, error)) (restore func()) {
	was := askCluster
	askCluster = fn
	return func() { askCluster = was }
}

// RemedyOf is what doctor says to do about an error of a connection to an address.
var RemedyOf = remedyOf

// WriteFile writes a file by a function.
var WriteFile = writeFile

// StatusPage writes the status page of a daemon with a blade of 1 GiB for each of provisioned, in
// bytes. The first one has executed verbs[i] READs at second i.
func StatusPage(w io.Writer, provisioned, verbs []uint64, faults ...string) error {
	var all []look
	began := time.Unix(1e9, 0)
	for i, n := range verbs {
		s := look{At: began.Add(time.Duration(i) * time.Second), Began: began, Limit: 10, Sockets: true, Counted: true}
		for b, p := range provisioned {
			x := bladeLook{ID: "0123456789abcdef0123456789abcdef", Region: region.Stats{Size: 1 << 30, Provisioned: p}}
			if b == 0 {
				x.Data = tcp.BladeStats{Verbs: [rdma.NumOps]uint64{rdma.OpRead: n}, BytesRead: 64 * n}
			}
			s.Blades = append(s.Blades, x)
		}
		all = append(all, s)
	}
	last := len(all) - 1
	return newStatusPage(&all[last], all[:last], faults).write(w)
}

// SetHost changes what txnode doctor finds out of the host until the function that it
// returns is called.
func SetHost(change func(openFiles, memlock *uint64, pages *string,
	room *func(string) (size, free uint64, err error))) (restore func()) {
	was := readHost
	readHost = func() hostFacts {
		h := was()
		change(&h.OpenFiles, &h.Memlock, &h.Pages, &h.Room)
		return h
	}
	return func() { readHost = was }
}

// SetDevice has txnode doctor find an RDMA device, or none, until the function that it returns is
// called.
func SetDevice(i *ibverbs.Info, err error) (restore func()) {
	was := lookAt
	lookAt = func(ibverbs.Device) (*ibverbs.Info, error) { return i, err }
	return func() { lookAt = was }
}

// Routes returns what txnode doctor finds of the way to servers of blades, if packets to them leave
// from an address; "": no way leads there.
func Routes(i *ibverbs.Info, from string, servers ...string) (found []string) {
	was := sourceTo
	defer func() { sourceTo = was }()
	sourceTo = func(string) (netip.Addr, error) { return netip.ParseAddr(from) }
	var all []cluster.Server
	for _, a := range servers {
		all = append(all, cluster.Server{Address: cluster.BladeAddress(a)})
	}
	var e exam
	e.checkRoutes(i, all)
	for _, f := range e.found {
		found = append(found, fmt.Sprintf("%v %s %s: %s", f.State, f.Check, f.Subject, f.Text))
	}
	return found
}

// SetClock has kept say whether something keeps the clock of this host right, until the function
// that it returns is called.
func SetClock(kept func() bool) (restore func()) {
	was := readHost
	readHost = func() hostFacts {
		h := was()
		h.Clock = func() (bool, bool) { return kept(), true }
		return h
	}
	return func() { readHost = was }
}

// Prove tests the verbs of a blade, as txnode doctor does.
func Prove(f rdma.Fabric, b rdma.BladeID) (err error) {
	t, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: proofArena})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return (&proof{t: t, blade: b}).run()
}

// CreateDir makes a directory for blades of a benchmark.
var CreateDir = createDir

// BladesDir makes a directory for the daemons of a benchmark, until end is called.
func BladesDir(in string) (dir string, end func() error, err error) {
	b := &ownBlades{}
	dir, err = b.makeDir(in)
	return dir, b.end, err
}

// ReportShared has a daemon with a log on w tell what a server of shared memory reports.
func ReportShared(w io.Writer, err error) {
	o := &serveOptions{Shm: "/dev/shm/blades", LogFormat: "json", LogLevel: "info"}
	(&daemon{o: o, log: o.logger(w)}).reportShared(err)
}

// Plain and OneLine are what others' words go through.
var (
	Plain   = plain
	OneLine = oneLine
)

// BesideBar is a text beside a bar as a terminal gets it.
func BesideBar(text string) string {
	s, _ := besideBar(func() string { return text }).Decor(decor.Statistics{})
	return s
}

// MaxHTTP is how many connections --http has at a time.
const MaxHTTP = maxHTTP

// SetDiskRoom has disks of daemons have so many bytes free until the function that it
// returns is called.
func SetDiskRoom(free func(dir string) uint64) (restore func()) {
	was := diskRoom
	diskRoom = func(dir string) (uint64, uint64, error) { return 1 << 40, free(dir), nil }
	return func() { diskRoom = was }
}

// LostBlades notes what a benchmark without --kill-blade has lost.
func LostBlades(r *report.Result, s workload.Store) { (&killOptions{}).lostBlades(r, s) }
