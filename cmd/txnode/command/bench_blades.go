package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"txnode/cluster"
	"txnode/memory/embedded"
)

// The fabrics of --fabric: what the verbs of a benchmark go over.
const (
	fabricInproc = "inproc" // blades are memory of this process
	fabricShm    = "shm"
	fabricUnix   = "unix"
	fabricTCP    = "tcp"
)

var fabrics = []string{fabricInproc, fabricShm, fabricUnix, fabricTCP}

// fabricWords say it in a result, for blades that the benchmark has started.
var fabricWords = map[string]string{
	fabricShm:  "shared memory of blades in processes of their own",
	fabricUnix: "unix sockets to blades in processes of their own",
	fabricTCP:  "TCP on loopback to blades in processes of their own",
}

// clusterWords say it of blades of --cluster, by the name of the fabric.
var clusterWords = map[string]string{
	"shm":     "shared memory of the blades of a cluster",
	"tcp":     "sockets to the blades of a cluster",
	"ibverbs": "an RDMA device of this host, and those of the blades of a cluster",
}

// ownFabric is the default of --fabric for so many processes.
func ownFabric(processes int, goos string) string {
	switch {
	case processes < 2:
		return fabricInproc
	case goos == "linux":
		return fabricShm
	}
	return fabricUnix
}

// fabricFaults completes --fabric, and finds faults. Blades in other processes are as many as
// --blades says, and so on.
func (o *benchOptions) fabricFaults(cmd *cobra.Command) (faults []string) {
	given := cmd.Flags().Changed
	switch {
	case o.Store.Cluster != "":
		if given("fabric") {
			faults = append(faults, "--fabric is for blades of the benchmark, and not for those of --cluster")
		}
		return faults
	case !given("fabric"):
		o.Store.Fabric = ownFabric(o.Run.Processes, runtime.GOOS)
	case !slices.Contains(fabrics, o.Store.Fabric):
		return []string{fmt.Sprintf("--fabric is %q; it must be one of %s",
			o.Store.Fabric, strings.Join(fabrics, ", "))}
	}
	if o.Store.Fabric == fabricInproc {
		if o.Run.Processes > 1 {
			faults = append(faults, "--fabric inproc is for one process: leave it out, or --processes")
		}
		return faults
	}
	why := "--fabric " + o.Store.Fabric
	if !given("fabric") {
		why = "--processes"
	}
	if given("dir") {
		faults = append(faults, "--dir keeps blades of this process, and with "+why+
			" they are in others: leave one out, or serve them (txnode serve --dir) and name --cluster")
	}
	if o.Store.HugePages && o.Store.Fabric == fabricShm {
		faults = append(faults,
			"--huge-pages is not for shared memory, which is on transparent ones: leave it out, or choose "+
				"--fabric unix")
	}
	if o.Kill.Kill != 0 {
		faults = append(faults, "--kill-blade stops a blade of this process, and with "+why+" they are in others")
	}
	if o.Run.Verify && o.Run.Processes == 1 {
		faults = append(faults, "--verify records what one process does on blades of its own: leave "+why+" out")
	}
	return faults
}

// ownBlades are processes of txnode serve that a benchmark has started: a catalog, and blades.
type ownBlades struct {
	catalog string   // its address
	dirs    []string // to be removed
	unlock  []func() error
	servers []*ownServer
}

// ownServer is one of them. It ends when its standard input does: also when the
// benchmark is killed.
type ownServer struct {
	cmd   *exec.Cmd
	input io.Closer
	what  string // of the benchmark
	says  string // its first line
}

// StartBlades starts two blades and a catalog, as processes that w.Self makes, and creates a
// database with one backup. The fabric is shm, unix or tcp. It returns the address of the catalog.
// The processes end when end is called, or with this process. For benchmarks/peers.
func StartBlades(ctx context.Context, w World, fabric string) (catalog string, end func() error, err error) {
	b, err := startBlades(ctx, &w, &StoreOptions{Fabric: fabric, Blades: 2, Replicas: 1})
	if err != nil {
		return "", nil, err
	}
	return b.catalog, b.end, nil
}

// startBlades starts blades and their catalog, and creates a database. After an error there is
// nothing.
func startBlades(ctx context.Context, w *World, o *StoreOptions) (b *ownBlades, err error) {
	b = &ownBlades{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.end())
			b = nil
		}
	}()
	dir, err := b.makeDir("")
	if err != nil {
		return b, err
	}
	shm := dir
	if st, e := os.Stat("/dev/shm"); o.Fabric == fabricShm && e == nil && st.IsDir() { // a tmpfs
		if shm, err = b.makeDir("/dev/shm"); err != nil {
			return b, err
		}
	}
	b.catalog = "unix:" + filepath.Join(dir, "catalog")
	if _, err := b.serve(ctx, w, "the catalog", "--listen="+b.catalog, "--catalog="+catalogInMemory,
		"--memory=0"); err != nil {
		return b, err
	}
	size := o.size
	if size == 0 {
		size = embedded.DefaultBladeSize
	}
	var blades []cluster.BladeAddress
	for i := range o.Blades {
		name := fmt.Sprint("blade", i)
		args := []string{"--memory=" + size.String()}
		if o.HugePages {
			args = append(args, "--huge-pages")
		}
		var address string
		switch o.Fabric {
		case fabricShm:
			address = "shm:" + filepath.Join(shm, name)
			args = append(args, "--shm="+shm, "--name="+name)
		case fabricUnix:
			address = "unix:" + filepath.Join(dir, name)
			args = append(args, "--listen="+address)
		default:
			args = append(args, "--listen=tcp:127.0.0.1:0")
		}
		s, err := b.serve(ctx, w, fmt.Sprint("blade ", i), args...)
		if err != nil {
			return b, err
		}
		if address == "" {
			_, address, _ = strings.Cut(s.says, " serves ")
		}
		blades = append(blades, cluster.BladeAddress(address))
	}
	cat, err := cluster.DialCatalog(ctx, b.catalog, cluster.Options{})
	if err == nil {
		g := cluster.Geometry{Backups: &o.Replicas, SegmentSize: uint32(o.SegmentSize)}
		err = errors.Join(cluster.Init(ctx, cat, blades, g, cluster.Options{}), cat.Close())
	}
	if err != nil {
		return b, clusterFailed(err)
	}
	return b, nil
}

// makeDir makes a directory for daemons, which is removed at the end. It lies in the one that
// is locked as long as this process is there: daemons lock the directories of their sockets
// for a moment, too.
func (b *ownBlades) makeDir(in string) (string, error) {
	dir, unlock, err := createDir(in)
	if err != nil {
		return "", err
	}
	b.dirs, b.unlock = append(b.dirs, dir), append(b.unlock, unlock)
	dir = filepath.Join(dir, "d")
	return dir, os.Mkdir(dir, 0o700)
}

// serve starts a process of txnode serve, and waits until it serves.
func (b *ownBlades) serve(ctx context.Context, w *World, what string, args ...string) (*ownServer, error) {
	c := w.Self(append([]string{"serve", "--log-level=warn", "--until-input-ends"}, args...)...)
	c.Env = serveEnvironment(w, c.Environ())
	c.Stderr = w.errScreen
	// an interrupt of the terminal is not for it: the books are still to be checked
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, failf("starting %s of the benchmark: %w", what, err)
	}
	s := &ownServer{cmd: c, input: in, what: what}
	b.servers = append(b.servers, s)
	stop := context.AfterFunc(ctx, func() { _ = in.Close() }) // it ends, and so does its output
	defer stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, failf("%s of the benchmark does not serve: what it said is on standard error", what)
	}
	s.says = strings.TrimSpace(line)
	return s, nil
}

// serveEnvironment is an environment without settings of txnode serve, which are for other daemons.
func serveEnvironment(w *World, env []string) []string {
	settings := map[string]bool{settingVariable("config"): true}
	newServe(w).Flags().VisitAll(func(f *pflag.Flag) { settings[settingVariable(f.Name)] = true })
	return slices.DeleteFunc(env, func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return settings[name]
	})
}

// end ends all processes, the catalog last, and removes what is left of them.
func (b *ownBlades) end() error {
	var errs []error
	for _, s := range slices.Backward(b.servers) {
		if err := s.input.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
		if err := s.cmd.Wait(); err != nil {
			errs = append(errs,
				failf("the process of %s has ended before the benchmark, which says what came of that: %w",
					s.what, err))
		}
	}
	for _, d := range b.dirs {
		errs = append(errs, os.RemoveAll(d))
	}
	for _, unlock := range b.unlock {
		errs = append(errs, unlock())
	}
	return errors.Join(errs...)
}
