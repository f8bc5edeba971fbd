package command

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"txnode/cluster"
	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// examined is what the catalog says.
type examined struct {
	servers []cluster.Server
	layout  *layout.Layout // nil: there is no database yet
	blades  int
}

// sharedDir is the directory of blades in shared memory; "": they are on sockets.
func (c *examined) sharedDir() string {
	if path, ok := strings.CutPrefix(string(c.servers[0].Address), "shm:"); ok {
		return filepath.Dir(strings.TrimPrefix(path, "//"))
	}
	return ""
}

// checkCatalog asks the catalog; nil: there is nothing to go on with. An error is of wrong usage.
func (e *exam) checkCatalog(ctx context.Context) (*examined, error) {
	var cert *x509.Certificate
	o := e.remembering(&cert)
	began := time.Now()
	cat, err := cluster.DialCatalog(ctx, e.address, o)
	if errors.Is(err, cluster.ErrOptions) || errors.Is(err, tcp.ErrOptions) {
		return nil, &usageError{cause: err}
	}
	if err != nil {
		e.failed("catalog", e.address, err)
		return nil, nil //nolint:nilnil // there is a finding
	}
	defer func() { _ = cat.Close() }() // it was asked only
	entries, _, err := cat.Load()
	if err != nil {
		e.failed("catalog", cat.Name(), err)
		return nil, nil //nolint:nilnil // there is a finding
	}
	took := time.Since(began)
	c := &examined{}
	if c.servers, err = cluster.Servers(cat); err != nil {
		advice := bringCatalog
		if errors.Is(err, cluster.ErrNone) {
			advice = "txnode cluster init --catalog " + cat.Name() + " --blade ADDRESS ...; or name the right catalog"
		}
		e.bad(healthFail, advice, "catalog", cat.Name(), "%s", oneLine(err))
		return nil, nil //nolint:nilnil // there is a finding
	}
	if c.layout, err = layout.LoadLayout(cat); err != nil {
		e.bad(healthFail, bringCatalog, "catalog", cat.Name(), "%s", oneLine(err))
		return nil, nil //nolint:nilnil // there is a finding
	}
	for _, s := range c.servers {
		c.blades += len(s.Blades)
	}
	e.ok("catalog", cat.Name(), "it answers in %v with %d entries", took.Round(time.Microsecond), len(entries))
	if cert != nil {
		e.expiry("certificate", cat.Name(), cert)
	}
	if _, _, err := tcp.ParseAddress(cat.Name()); err == nil { // a daemon has it
		e.checkReport(ctx, cat.Name(), o)
	}
	return c, nil
}

// Clocks of processes are not compared by the database. They decide on certificates, and
// logs are read by them.
const (
	clockWarn = 2 * time.Second
	clockFail = 5 * time.Minute
)

// checkReport asks a daemon for its release and its clock.
func (e *exam) checkReport(ctx context.Context, address string, o cluster.Options) {
	before := time.Now()
	r, err := cluster.AskReport(ctx, address, o)
	after := time.Now()
	switch {
	case errors.Is(err, tcp.ErrRefused) && strings.Contains(err.Error(), "no such service"):
		e.bad(healthWarn, "install the same release of txnode on both sides: txnode version",
			"release", address, "the program tells nothing of itself: it is no txnode serve, or an older one")
		return
	case err != nil:
		e.failed("release", address, err)
		return
	}
	mine := e.w.Environment()
	if name := releaseOf(r.Version, r.Revision); r.Version != mine.Version || r.Revision != mine.Revision {
		e.bad(healthWarn, "install one release on all hosts, one daemon after the other",
			"release", address, "it is txnode %s, and this is %s; they understand each other",
			shown(name), releaseOf(mine.Version, mine.Revision))
	} else {
		e.ok("release", address, "txnode %s on %s, process %d, %d of %d connections", shown(name), shown(r.Host), r.PID,
			r.Connections, r.Limit)
	}
	for _, full := range r.Full {
		e.bad(healthFail, "delete other files on that disk; or end the daemon, copy its directory to a larger disk "+
			"(cp -a --sparse=always), and start it there", "disk", address, "%s", shown(full))
	}
	if 10*r.Connections > 9*r.Limit {
		e.bad(healthWarn, "start the daemon with a larger --connections", "connections", address, "%d of %d are taken",
			r.Connections, r.Limit)
	}
	if files := r.OpenFiles; files > 0 && files < uint64(max(r.Limit, 0)+filesOfProcess) {
		e.bad(healthWarn,
			fmt.Sprintf("start the daemon with a smaller --connections, or: ulimit -n %d; of a systemd unit: "+
				"LimitNOFILE=%d", r.Limit+filesOfProcess, r.Limit+filesOfProcess),
			"open files", address, "the daemon can have %d at a time, and --connections is %d", files, r.Limit)
	}
	// The daemon has looked at its clock between before and after.
	off := time.Duration(0)
	if r.Time.After(after) {
		off = r.Time.Sub(after)
	} else if r.Time.Before(before) {
		off = r.Time.Sub(before)
	}
	e.checkClock(address, off)
	for i := range r.Processes {
		p := &r.Processes[i]
		if e.told[p.Life] {
			continue
		}
		if e.told == nil {
			e.told = map[uint64]bool{}
		}
		e.told[p.Life] = true
		e.checkClock(fmt.Sprintf("process %d (%s, process %d of %s)", p.Process, p.Program, p.PID, p.Host), p.Ahead+off)
	}
}

// checkClock checks how far a clock is ahead of this host's.
func (e *exam) checkClock(subject string, ahead time.Duration) {
	const check = "clock"
	how := "ahead of"
	if ahead < 0 {
		how = "behind"
	}
	switch off := ahead.Abs(); {
	case off < 10*time.Millisecond:
		e.ok(check, subject, "that of this host")
	case off <= clockWarn:
		e.ok(check, subject, "%v %s that of this host", off.Round(time.Millisecond), how)
	default:
		state := healthWarn
		if off > clockFail {
			state = healthFail
		}
		e.bad(state, "set the clocks of both hosts: timedatectl set-ntp true; then timedatectl timesync-status, or "+
			"chronyc tracking", check, subject,
			"%v %s that of this host", off.Round(time.Millisecond), how)
	}
}

func releaseOf(version, revision string) string {
	if revision == "" {
		return version
	}
	return version + ", revision " + revision
}

// checkServer checks a server and its blades.
func (e *exam) checkServer(ctx context.Context, c *examined, i int) {
	s := &c.servers[i]
	if s.Vacant() {
		return
	}
	first := 0
	for _, before := range c.servers[:i] {
		first += len(before.Blades)
	}
	address := string(s.Address)
	var cert *x509.Certificate
	o := e.remembering(&cert)
	began := time.Now()
	f, err := cluster.DialServer(ctx, s.Address, o)
	if err != nil {
		advice := remedyOf(err, address)
		if advice == startOf(address) {
			advice = startServer(s)
			if l := c.layout; l != nil && first < len(l.Blades) && len(s.Blades) == 1 &&
				l.Blades[first].State == layout.BladeDown {
				advice += "; or if it is gone for good: " + e.command("cluster forget", strconv.Itoa(first)) +
					"; then another one: " + e.command("cluster add-blade", "ADDRESS")
			}
		}
		e.bad(healthFail, advice, "server", address, "%s", oneLine(err))
		return
	}
	defer func() { _ = f.Close() }() // it was asked only
	e.ok("server", address, "it answers in %v", time.Since(began).Round(time.Microsecond))
	if cert != nil {
		e.expiry("certificate", address, cert)
	}
	e.checkReport(ctx, address, o)
	blades := f.Blades()
	if len(blades) != len(s.Blades) {
		e.bad(healthFail, "start there the server that had the blades when the cluster was made: its --dir, or its "+
			"--blade sizes", "blades", address, "it has %d, and the catalog says %d", len(blades), len(s.Blades))
		return
	}
	t, err := rdma.NewThread(f, rdma.ThreadOptions{Arena: proofArena})
	if err != nil {
		e.failed("verbs", address, err)
		return
	}
	defer func() { _ = t.Close() }() // nothing is under way
	for b := range blades {
		name := fmt.Sprintf("blade %d", first+b)
		if blades[b].Size < s.Blades[b] {
			e.bad(healthFail, "start it with --blade "+exactBytes(s.Blades[b])+", or the --dir that it had",
				"size", name, "%s, and the catalog says %s", bytesText(blades[b].Size), bytesText(s.Blades[b]))
			continue
		}
		p := &proof{t: t, blade: rdma.BladeID(b)}
		if err := p.run(); err != nil {
			e.failed("verbs", name, fmt.Errorf("%s: %w", address, err))
			continue
		}
		e.checkBlade(c, first+b, name, address, p)
		for _, v := range p.verbs {
			m, most := v.median(), v.longest()
			e.found = append(e.found, finding{
				State: healthOK, Check: v.op.String(), Subject: name,
				Text:     fmt.Sprintf("%v, at most %v", m.Round(100*time.Nanosecond), most.Round(100*time.Nanosecond)),
				MedianNs: int64(m), MaxNs: int64(most),
			})
		}
	}
}

func exactBytes(n uint64) string {
	b := byteSize(n)
	return b.String()
}

// checkBlade compares what a blade says of itself with the catalog.
func (e *exam) checkBlade(c *examined, id int, name, address string, p *proof) {
	const check = "database"
	h, err := layout.ParseRegionHeader(p.header)
	blank := errors.Is(err, layout.ErrNotFormatted)
	switch l := c.layout; {
	case l == nil && blank:
		e.ok(check, name, "none yet")
	case l == nil:
		e.bad(healthFail, "name the catalog of that database, or start the server with an empty --dir",
			check, name, "%s has a blade of another database, and the catalog has none", address)
	case id >= len(l.Blades):
		e.bad(healthWarn, e.command("cluster heal"), check, name, "the database does not use it yet")
	case l.Blades[id].State == layout.BladeDown && l.Blades[id].Leaving:
		e.ok(check, name, "it is drained, and empty")
	default:
		e.judge(l, id, name, address, &h, p)
	}
}

// bringCatalog is what helps if the catalog is not what it was.
const bringCatalog = "bring back the newest catalog.db: an earlier one is refused; if it is lost, txnode restore a " +
	"backup as a new database"

// judge compares the head of a blade's region with the catalog.
func (e *exam) judge(l *layout.Layout, id int, name, address string, h *layout.RegionHeader, p *proof) {
	const check = "database"
	b := rdma.BladeID(id)
	bring := "start the right server at " + address + ": the --dir that it had, or another address"
	down := l.Blades[id].State == layout.BladeDown
	restarted := l.Blades[id].Incarnation != 0 && !p.info.Unheard && l.Blades[id].Incarnation != p.info.Incarnation
	fault, err := l.Examine(b, name, p.header)
	fails, advice := healthWarn, e.command("cluster heal")+
		"; it has the blade built anew; if it does not open the database, start the newest --dir there, or: "+
		e.command("cluster recover")
	if !down && l.Last(b) > 0 {
		fails, advice = healthFail, "start the server with the newest --dir that it had; if there is none: "+
			e.command("cluster recover")
	}
	switch {
	case fault == layout.HeaderForeign:
		e.bad(healthFail, bring, check, name, "%s has a blade of database %v, and the catalog is of %v",
			address, h.UUID, l.UUID)
	case fault == layout.HeaderMisplaced:
		e.bad(healthFail, bring, check, name, "%s has blade %d of %d of the database, and the catalog says %d of %d",
			address, h.Blade, h.Blades, id, len(l.Blades))
	case down:
		e.bad(healthWarn, e.command("cluster heal"), check, name, "it was declared dead, and is not taken in again yet")
	case fault == layout.HeaderStale:
		stale, _ := errors.AsType[*layout.StaleError](err)
		if stale.Unflushed {
			e.bad(fails, advice, check, name,
				"%s: its host has restarted before what was written last was on the disk, and may be missing", address)
			return
		}
		e.bad(fails, advice, check, name,
			"%s has an old copy of the blade: it was told of revision %d of the catalog last, and the newest of "+
				"revision %d or later", address, stale.Has, stale.Knows)
	case fault == layout.HeaderBlank && l.Formatted:
		e.bad(fails, advice, check, name, "%s has a blank blade where the catalog says that data is", address)
	case fault == layout.HeaderDamaged && l.Formatted:
		e.bad(healthFail, "start the server with the --dir that it had", check, name, "%s: %s", address, oneLine(err))
	case fault == layout.HeaderBlank || fault == layout.HeaderDamaged:
		e.ok(check, name, "it is being made")
	case fault == layout.HeaderBehind:
		e.bad(healthFail, bring, check, name,
			"%s has an old copy of the blade: it is of epoch %d, and the database was opened in %d",
			address, h.Epoch, l.Opened)
	case fault == layout.HeaderGeometry:
		e.bad(healthFail, bring, check, name,
			"%s has a blade of another geometry: backups %d, segments of %s; the catalog says %d, %s",
			address, h.Backups, bytesText(uint64(h.SegmentSize)), l.Backups, bytesText(uint64(l.SegmentSize)))
	case fault == layout.HeaderAhead:
		e.bad(healthFail, bringCatalog, check, name,
			"%s has a blade of epoch %d, and the catalog is an old copy, of epoch %d", address, h.Epoch, l.Epoch)
	case restarted:
		e.bad(healthWarn, e.command("cluster heal"), check, name,
			"the server has restarted, and no process has taken the blade in since")
	default:
		e.ok(check, name, "%v, blade %d of %d, backups %d, segments of %s", h.UUID, h.Blade, h.Blades, h.Backups,
			bytesText(uint64(h.SegmentSize)))
	}
}
