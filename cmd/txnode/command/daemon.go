package command

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"txnode/benchmarks/report"
	"txnode/cluster"
	"txnode/internal/logsink"
	"txnode/internal/owndir"
	"txnode/internal/unixsocket"
	"txnode/memory/catalog/remote"
	"txnode/memory/layout"
	"txnode/rdma/ibverbs"
	"txnode/rdma/region"
	"txnode/rdma/shm"
	"txnode/rdma/tcp"
)

// daemon is a process of txnode serve: what it serves, and by what.
type daemon struct {
	w *World
	o *serveOptions

	sizes   []byteSize      // of the blades
	files   *tcp.Files      // certificates and the secret
	dir     *bladeDir       // that keeps them; nil: memory
	catalog layout.Catalog  // nil: none
	set     *region.Set     // of blades on sockets; nil: none
	device  *ibverbs.Server // of blades behind an RDMA device; nil: none
	server  *tcp.Server     // nil: --shm alone
	shared  *shm.Server     // of blades that are mapped; nil: none

	reporter *cluster.Reporter

	began  time.Time
	ending atomic.Bool // it waits for clients to take their replies

	alone <-chan struct{} // closed when the process has ended that the daemon is for; nil: it is for none

	log    *zap.Logger
	sink   *logsink.Sink // behind log
	notify notifier
}

func runServe(ctx context.Context, w *World, o *serveOptions) error {
	signal.Ignore(unix.SIGPIPE) // an output that was closed is an error of a write, and no end
	d := &daemon{w: w, o: o, sizes: o.sizes(), began: time.Now(), notify: newNotifier(w.Getenv)}
	d.log, d.sink = logsink.New(o.logger(w.Stderr))
	defer d.sink.Flush(logFlush)
	if o.UntilInput {
		alone := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, w.Stdin) // an error is an end, too
			close(alone)
		}()
		d.alone = alone
	}
	err := d.open()
	if err == nil {
		err = d.serve(ctx)
	}
	return errors.Join(err, d.close())
}

// logFlush is how long the end of a daemon waits at most for its lines of the log to be written.
const logFlush = time.Second

// report tells of a connection that was refused or has failed.
func (d *daemon) report(client string, err error) {
	d.log.Warn("a connection was refused, or has failed", zap.String("client", client),
		zap.String("error", oneLine(err)))
}

// reportShared tells what a server of blades that are mapped has to report.
func (d *daemon) reportShared(err error) {
	var ended *shm.KilledError
	switch {
	case errors.As(err, &ended):
		d.log.Error("a client was killed", zap.Int("process", ended.Process), zap.Uint32("user", ended.User),
			zap.Duration("silent", ended.Silent), zap.String("error", oneLine(err)))
	case errors.Is(err, shm.ErrStuck):
		d.log.Warn("a key fence waits for a client", zap.String("error", oneLine(err)))
	default:
		d.report(d.o.Shm, err)
	}
}

// reportDevice tells what has happened to the RDMA device.
func (d *daemon) reportDevice(err error) {
	d.log.Warn("the RDMA device", zap.String("event", oneLine(err)))
}

// told logs that systemd could not be told something.
func (d *daemon) told(err error) {
	if err != nil {
		d.log.Warn("systemd does not listen", zap.Error(err))
	}
}

// reload reads certificates and the secret again.
func (d *daemon) reload() { d.reloaded(d.files.Load()) }

// reloaded logs that certificates or the secret were replaced, or that what is there cannot be
// used.
func (d *daemon) reloaded(err error) {
	if err != nil {
		d.log.Error("certificates or the secret cannot be used as they are now: connections have those of before",
			zap.String("error", oneLine(err)))
		return
	}
	fields := []zap.Field{}
	if c := d.files.Certificate(); c != nil {
		fields = append(fields, zap.Time("certificate until", c.NotAfter))
	}
	d.log.Info("certificates and the secret were read again", fields...)
}

// logger writes to standard error, in the format and from the level on that were asked for.
func (o *serveOptions) logger(w io.Writer) *zap.Logger {
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.ISO8601TimeEncoder
	encoder := zapcore.NewConsoleEncoder(c)
	if o.LogFormat == "json" {
		encoder = zapcore.NewJSONEncoder(c)
	}
	level, _ := zapcore.ParseLevel(o.LogLevel) // Validate has
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}

// open makes what is served. What there is after an error is given up by close.
func (d *daemon) open() (err error) {
	o := d.o
	so := tcp.ServerOptions{Connections: o.Connections, Report: d.report}
	if d.files, err = o.TLS.files(o.SecretFile); err != nil {
		return err
	}
	d.files.Changed = d.reloaded
	so.Credentials = d.files.Server
	d.reporter = cluster.NewReporter(d.reportOf(o))
	so.Services = map[string]tcp.Service{cluster.ReportService: d.reporter.Answer}
	if o.Catalog != "" {
		if o.Catalog != catalogInMemory {
			if err := d.own("--catalog", o.Catalog, "catalog.db*"); err != nil {
				return err
			}
		}
		if d.catalog, err = openCatalog(o.Catalog); err != nil {
			return failf("--catalog %s: %w", o.Catalog, err)
		}
		so.Services[remote.ServiceName] = remote.NewService(d.catalog)
	}
	regions, err := d.regions()
	if err != nil {
		return err
	}
	switch {
	case o.Shm != "":
		if err := d.own("--shm", o.Shm, shm.Names...); err != nil {
			return err
		}
		if d.shared, err = shm.NewServer(o.Shm, shm.ServerOptions{
			Name: o.Name, Blades: regions, Connections: o.Connections, Patience: o.Patience,
			Describe: d.reporter.Describe,
			Report:   d.reportShared,
		}); err != nil {
			if errors.Is(err, unix.ENOSPC) {
				err = fmt.Errorf("%w; make room there, or mount -o remount,size=64M its file system", err)
			}
			return failf("--shm %s: %w", o.Shm, err)
		}
	case o.devices():
		dev, _ := ibverbs.ParseDevice(o.RDMA) // Validate has
		io := ibverbs.ServerOptions{HugePages: o.HugePages, Device: dev, Report: d.reportDevice}
		for _, n := range d.sizes {
			io.Blades = append(io.Blades, uint64(n))
		}
		if d.device, err = ibverbs.NewServer(io); err != nil {
			return failf("--listen rdma: %w", err)
		}
		so.Elsewhere, so.Services[ibverbs.ServiceName] = d.device, d.device.Answer
	case len(regions) > 0:
		var seed [8]byte
		_, _ = rand.Read(seed[:]) // never fails
		if d.set, err = region.New(region.Config{
			Regions: regions, Seed: binary.LittleEndian.Uint64(seed[:]),
		}); err != nil {
			return err
		}
	}
	if len(o.Listen) > 0 {
		d.server, err = tcp.NewServer(d.set, so)
	}
	return err
}

// own makes the directory of a flag this user's alone.
func (d *daemon) own(flag, dir string, patterns ...string) error {
	tightened, err := owndir.Dir(dir, patterns...)
	if err != nil {
		return failf("%s %s: %w", flag, dir, err)
	}
	if tightened {
		d.log.Warn("other users had rights to a directory, or to files in it, and have none any more",
			zap.String("flag", flag), zap.String("directory", dir))
	}
	return nil
}

// regions are what the blades are made of.
func (d *daemon) regions() (regions []region.Options, err error) {
	if d.o.Dir != "" {
		asked := d.sizes
		if !d.o.memoryGiven && len(d.o.Blades) == 0 {
			asked = nil
		}
		if err := d.own("--dir", d.o.Dir, "LOCK", bladesFile+"*", bootFile+"*", "blade-*.region"); err != nil {
			return nil, err
		}
		if d.dir, err = openBladeDir(d.o.Dir, asked, d.sizes); err != nil {
			return nil, failf("--dir %s: %w", d.o.Dir, err)
		}
		d.sizes = d.dir.sizes
	}
	for i, n := range d.sizes {
		r := region.Options{Size: uint64(n), HugePages: d.o.HugePages}
		if d.dir != nil {
			r.Path = d.dir.path(i)
		}
		regions = append(regions, r)
	}
	return regions, nil
}

// close gives everything up. The catalog is closed when nothing asks it any more: clients must not
// take the end of the process for its end.
func (d *daemon) close() error {
	var errs []error
	if d.shared != nil {
		errs = append(errs, d.shared.Close())
	}
	if d.set != nil {
		errs = append(errs, d.set.Close())
	}
	if d.device != nil {
		errs = append(errs, d.device.Close())
	}
	if d.catalog != nil {
		errs = append(errs, d.catalog.Close())
	}
	switch {
	case d.dir == nil:
	case errors.Join(errs...) == nil:
		errs = append(errs, d.dir.close())
	default: // the files may be mapped yet
		errs = append(errs, d.dir.unlock())
	}
	return errors.Join(errs...)
}

// graceTime is how long the end of a blade waits for its clients to take replies.
const graceTime = 10 * time.Second

// serve serves until ctx ends, or something cannot be served any more. When it has begun it says
// what is served, and where.
func (d *daemon) serve(ctx context.Context) (err error) {
	failed := make(chan error, len(d.o.Listen)+2)
	var serving sync.WaitGroup
	var status *httpServer
	announced := func() {} // waits for the end of the announcement
	defer func() {
		d.ending.Store(true)
		d.told(d.notify.tell("STOPPING=1"))
		announced() // before, since the catalog may be served here
		if d.server != nil {
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
			defer cancel()
			if e := d.server.Shutdown(grace); e != nil {
				err = errors.Join(err, failf("clients have not taken their replies within %v: %w", graceTime, e))
			}
		}
		if d.shared != nil {
			err = errors.Join(err, d.shared.Close())
		}
		if status != nil {
			err = errors.Join(err, status.close())
		}
		serving.Wait()
	}()
	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // the end that ctx asks for may be put off
	defer stop()
	if d.shared != nil {
		serving.Go(func() { failed <- d.shared.Serve() })
	}
	var names []string
	var at cluster.BladeAddress
	for i, a := range d.o.Listen {
		l, err := d.o.listenOn(a)
		if err == nil {
			if err = d.server.Admissible(l.Addr()); err != nil {
				err = errors.Join(err, l.Close())
			}
		}
		if err != nil {
			return failf("--listen %s: %w", a, err)
		}
		network, _, _ := parseListen(a) // Validate has
		if d.o.device(a) {
			network = "rdma"
		}
		names = append(names, network+":"+l.Addr().String())
		if i == 0 {
			at = d.o.advertised(l)
		}
		serving.Go(func() { failed <- d.server.Serve(l) })
	}
	what := d.what(names)
	if d.o.HTTP != "" {
		h, l, err := d.listenHTTP(d.o.HTTP)
		if err != nil {
			return err
		}
		status = h
		what += "; status: " + h.at
		serving.Go(func() { failed <- h.serve(watching, l) })
	}
	if err := say(d.w.Stdout, "%s\n", what); err != nil {
		d.log.Warn("standard output is of no use", zap.Error(err))
	}
	d.log.Info("serving", zap.String("what", what))
	d.told(d.notify.tell("READY=1\nSTATUS=" + what))
	if d.o.Join != "" {
		announced = d.announce(watching, stop, at)
	}
	serving.Go(func() { d.watchDisks(watching) })
	serving.Go(func() { d.notify.watch(watching, func() { d.look(time.Now()) }) })
	if d.catalog != nil {
		serving.Go(func() {
			cluster.Witness(watching, d.catalog, cluster.WitnessOptions{
				TCP: tcp.Options{Credentials: d.files.Client},
				Report: func(err error) {
					if watching.Err() != nil { // it ends
						return
					}
					d.log.Warn("blades cannot be asked whether they answer", zap.String("error", oneLine(err)))
				},
			})
		})
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	defer signal.Stop(hangup)
	return d.until(ctx, hangup, failed, names)
}

// until waits for the end: that ctx ends, and no data is lost by that; or it is asked for again; or
// something cannot be served any more.
func (d *daemon) until(ctx context.Context, hangup <-chan os.Signal, failed <-chan error, names []string) error {
	asked := ctx.Done()
	var again <-chan os.Signal
	var means <-chan farewell
	var look <-chan time.Time
	address := strings.Join(names, ",")
	for first := true; ; {
		select {
		case <-asked:
			asked = nil
			if d.w.Again != nil {
				signals, stop := d.w.Again()
				defer stop()
				again = signals
			}
			means = d.farewell(ctx, address)
		case f := <-means:
			if d.mayEnd(&f, first) {
				return d.goodbye()
			}
			first, look = false, time.After(endEvery)
		case <-look:
			means = d.farewell(ctx, address)
		case <-again:
			return d.goodbye()
		case <-d.alone:
			return d.goodbye()
		case <-hangup:
			d.reload()
		case err := <-failed:
			return err
		}
	}
}

// goodbye logs that the daemon ends.
func (d *daemon) goodbye() error {
	d.log.Info("ending: connections execute what they have received")
	return nil
}

// announce has the server take part in a cluster. end ends that.
func (d *daemon) announce(ctx context.Context, stop func(), at cluster.BladeAddress) (end func()) {
	o := cluster.AnnounceOptions{
		Options: cluster.Options{TCP: tcp.Options{Credentials: d.files.Client}},
		Address: at,
		Release: report.FromEnvironment(d.w.Environment()).Version,
		Domain:  d.o.Domain,
		Report: func(err error) {
			if ctx.Err() == nil {
				d.log.Warn("the server serves, and could not join, which is tried again",
					zap.String("catalog", d.o.Join), zap.String("error", oneLine(err)))
			}
		},
		Joined: func(blades []int) {
			d.log.Info("the server has joined the cluster", zap.String("catalog", d.o.Join),
				zap.String("at", string(at)), zap.Ints("blades", blades))
		},
	}
	for _, b := range d.blades() {
		o.Incarnations = append(o.Incarnations, b.Incarnation)
	}
	if d.dir != nil {
		o.Stamps = d.dir.ids
	}
	done := make(chan error, 1)
	go func() { done <- cluster.Announce(ctx, d.o.Join, o) }()
	return func() {
		stop()
		if err := <-done; err != nil {
			d.log.Warn("the catalog was not told that the server ends", zap.String("catalog", d.o.Join),
				zap.String("error", oneLine(err)))
		}
	}
}

// what says what is served at addresses.
func (d *daemon) what(addresses []string) string {
	var blades string
	is, serves := "is", "serves"
	switch n := len(d.sizes); {
	case n == 1:
		blades = fmt.Sprintf("a blade of %v", &d.sizes[0])
	case n > 1:
		l := sizeList(d.sizes)
		blades = fmt.Sprintf("%d blades of %s", n, strings.ReplaceAll(l.String(), ",", ", "))
		is, serves = "are", "serve"
	}
	if d.dir != nil {
		blades += ", kept in " + d.o.Dir + ","
	}
	at := strings.Join(addresses, ", ")
	switch {
	case d.shared != nil && d.catalog == nil:
		return fmt.Sprintf("%s %s in %s as %s", blades, is, d.o.Shm, d.o.Name)
	case d.shared != nil:
		return fmt.Sprintf("%s %s in %s as %s; %s serves %s", blades, is, d.o.Shm, d.o.Name, d.o.catalogName(), at)
	case d.catalog == nil:
		return fmt.Sprintf("%s %s %s", blades, serves, at)
	case len(d.sizes) == 0:
		return fmt.Sprintf("%s serves %s", d.o.catalogName(), at)
	}
	return fmt.Sprintf("%s and %s serve %s", blades, d.o.catalogName(), at)
}

// listenOn listens on an address. A socket that a process that is gone has left behind is replaced.
func (o *serveOptions) listenOn(a string) (net.Listener, error) {
	network, address, err := parseListen(a)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		return unixsocket.Listen(network, address, o.socketMode())
	}
	return net.Listen(network, address)
}
