package command

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"txnode/memory"
	"txnode/memory/catalog"
	"txnode/memory/catalog/remote"
	"txnode/rdma/region"
	"txnode/rdma/shm"
	"txnode/rdma/tcp"
)

// serveOptions are the flags of txnode serve.
type serveOptions struct {
	Listen      []string
	Shm         string
	Name        string
	Memory      byteSize
	Catalog     string
	SecretFile  string
	Connections int
	TLS         tlsOptions
}

// AddFlags registers the flags.
func (o *serveOptions) AddFlags(cmd *cobra.Command) {
	o.Memory = 1 << 30
	fs := cmd.Flags()
	fs.StringArrayVar(&o.Listen, "listen", nil, "`address` to serve: unix:PATH or tcp:HOST:PORT, on loopback unless there is TLS;\nseveral are possible (default: none; this or --shm is needed)")
	fs.StringVar(&o.Shm, "shm", "", "`directory`, best on a tmpfs, by which processes of this host map the blade (default: none)")
	fs.StringVar(&o.Name, "name", "a", "with --shm, the name of the blade in the directory: letters, digits, '-' and '_'")
	fs.Var(&o.Memory, "memory", "size of the blade, a multiple of 64KiB, used as data comes; 0, with --catalog: no blade")
	fs.StringVar(&o.Catalog, "catalog", "", "`directory` with the catalog to serve, made if there is none; memory: one that ends with the process (default: none)")
	fs.StringVar(&o.SecretFile, "secret-file", "", "`file` with a secret of at least 16 bytes that clients must share, without the end of its last line;\nby default none, and a unix socket is for this user and root")
	fs.IntVar(&o.Connections, "connections", 1024, "number of connections at a time, each with 512KiB of buffers")
	o.TLS.addFlags(cmd, "clients")
}

// Validate finds faults.
func (o *serveOptions) Validate() error {
	var faults []string
	switch {
	case len(o.Listen) == 0 && o.Catalog != "":
		faults = append(faults, "--listen is missing: where to serve the catalog, such as unix:/run/user/1000/catalog")
	case len(o.Listen) == 0 && o.Shm == "":
		faults = append(faults, "--listen is missing: where to serve, such as unix:/run/user/1000/blade; or --shm, a directory")
	case len(o.Listen) > 0 && o.Shm != "" && o.Catalog == "":
		faults = append(faults, "--listen and --shm are both given; a blade is reached in one way")
	case o.Shm != "" && o.SecretFile != "" && o.Catalog == "":
		faults = append(faults, "--secret-file is for --listen; with --shm, only this user and root can connect")
	}
	for _, a := range o.Listen {
		if _, _, err := tcp.ParseAddress(a); err != nil {
			faults = append(faults, fmt.Sprintf("--listen is %q; it must be unix:PATH or tcp:HOST:PORT", a))
		}
	}
	switch {
	case o.Memory == 0 && o.Catalog != "" && o.Shm == "":
	case o.Memory <= 0 || o.Memory%(64<<10) != 0:
		faults = append(faults, fmt.Sprintf("--memory is %v; it must be a positive multiple of 64KiB", &o.Memory))
	}
	faults = append(faults, o.TLS.faults()...)
	if o.TLS.given() && !slices.ContainsFunc(o.Listen, func(a string) bool { network, _, err := tcp.ParseAddress(a); return err != nil || network == "tcp" }) {
		faults = append(faults, "--tls-cert is for TCP, and no --listen is tcp:HOST:PORT")
	}
	if o.Connections < 1 || o.Connections > 1<<20 {
		faults = append(faults, fmt.Sprintf("--connections is %d; it must be from 1 to %d", o.Connections, 1<<20))
	}
	if faults != nil {
		return usagef("%s", strings.Join(faults, "; "))
	}
	return nil
}

func newServe(w *World) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a memory blade, or a catalog, to transactions of other processes",
		Long: `Serves a memory blade, whose memory is this process's, until it is interrupted or
ended (SIGINT, SIGTERM). Then connections execute what they have received, and the
memory is gone. A database counts the blade as lost then, and has copies elsewhere.
Write with txnode cluster init which servers have the blades of a database; programs
open it with cluster.Open of the package txnode/cluster.

With --shm, processes of this host map the blade's memory instead, and access it
themselves. Programs connect with shm.Dial of the package txnode/rdma/shm. A process
that stops in the middle of an access while keys change is killed. Linux only.

With --catalog, it serves a catalog, too: what is where, which all processes of a
database share. It is a file, catalog.db, in a directory, and stays when the process
ends. Programs connect with remote.Dial of the package txnode/memory/catalog/remote.
With --shm, --listen is where the catalog is served.

A unix socket is for the user that runs the command and root, or, with
--secret-file, for all that have the secret. Other hosts are served with TLS only:
--tls-cert, --tls-key and --tls-ca. Then a client on TCP must have a certificate of
that authority, too. TLS 1.3 is the oldest version.

When all addresses are served a line says so. Clients that were refused, or that
broke the protocol, are told of on standard error.`,
		Example: `  txnode serve --listen unix:/tmp/blade0 --memory 4GiB
  txnode serve --listen tcp:127.0.0.1:7000 --secret-file secret
  txnode serve --shm /dev/shm/txnode --name blade0 --memory 4GiB
  txnode serve --listen unix:/tmp/catalog --catalog /var/lib/txnode --memory 0
  txnode serve --listen tcp:0.0.0.0:7000 --tls-cert server.crt --tls-key server.key --tls-ca ca.crt`,
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return runServe(cmd.Context(), w, o)
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// graceTime is how long the end of a blade waits for its clients to take replies.
const graceTime = 10 * time.Second

func runServe(ctx context.Context, w *World, o *serveOptions) (err error) {
	so := tcp.ServerOptions{Connections: o.Connections}
	var mu sync.Mutex // connections report at the same time
	so.Report = func(client string, err error) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w.Stderr, "%s: %s\n", client, oneLine(err))
	}
	if so.TLS, err = o.TLS.server(); err != nil {
		return err
	}
	if o.SecretFile != "" {
		if so.Secret, err = readSecret(o.SecretFile); err != nil {
			return err
		}
	}
	if o.Catalog != "" {
		cat, err := openCatalog(o.Catalog)
		if err != nil {
			return failf("--catalog %s: %w", o.Catalog, err)
		}
		// It is closed when nothing asks it any more: clients must not take the end of the process for its end.
		defer func() { err = errors.Join(err, cat.Close()) }()
		so.Services = map[string]tcp.Service{remote.ServiceName: remote.NewService(cat)}
	}
	if o.Shm != "" {
		return serveShared(ctx, w, o, so)
	}
	if o.Memory == 0 {
		server, err := tcp.NewServer(nil, so)
		if err != nil {
			return err
		}
		return serveAll(ctx, w, o, server, o.catalogName()+" serves ")
	}
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	set, err := region.New(region.Config{Regions: []region.Options{{Size: uint64(o.Memory)}}, Seed: binary.LittleEndian.Uint64(seed[:])})
	if err != nil {
		return err
	}
	server, err := tcp.NewServer(set, so)
	if err != nil {
		return errors.Join(err, set.Close())
	}
	what := fmt.Sprintf("a blade of %v serves ", &o.Memory)
	if o.Catalog != "" {
		what = fmt.Sprintf("a blade of %v and %s serve ", &o.Memory, o.catalogName())
	}
	return errors.Join(serveAll(ctx, w, o, server, what), set.Close())
}

// readSecret reads the secret of a file, without the end of its last line.
func readSecret(file string) ([]byte, error) {
	p, err := os.ReadFile(file)
	if err != nil {
		return nil, failf("the secret: %w", err)
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(p, []byte("\n")), []byte("\r")), nil
}

// catalogInMemory is the --catalog that no file keeps.
const catalogInMemory = "memory"

// openCatalog opens the catalog in a directory, which is made if there is none.
func openCatalog(dir string) (memory.Catalog, error) {
	if dir == catalogInMemory {
		return &catalog.Mem{}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return catalog.OpenBolt(filepath.Join(dir, "catalog.db"), false)
}

// catalogName names the catalog in what the command says.
func (o *serveOptions) catalogName() string {
	if o.Catalog == catalogInMemory {
		return "a catalog in memory"
	}
	return "the catalog in " + o.Catalog
}

// serveShared serves a blade that processes of this host map, and the catalog if there is one, until ctx ends.
func serveShared(ctx context.Context, w *World, o *serveOptions, so tcp.ServerOptions) error {
	report := so.Report
	server, err := shm.NewServer(o.Shm, shm.ServerOptions{
		Name: o.Name, Blades: []region.Options{{Size: uint64(o.Memory)}}, Connections: o.Connections,
		Report: func(err error) { report(o.Shm, err) },
	})
	if err != nil {
		return failf("--shm %s: %w", o.Shm, err)
	}
	ctx, cancel := context.WithCancel(ctx) // one that fails ends the other
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- server.Serve()
		cancel()
	}()
	what := fmt.Sprintf("a blade of %v is in %s as %s", &o.Memory, o.Shm, o.Name)
	if so.Services == nil {
		if _, err = fmt.Fprintln(w.Stdout, what); err == nil {
			<-ctx.Done()
		}
	} else {
		var catalogs *tcp.Server
		if catalogs, err = tcp.NewServer(nil, so); err == nil {
			err = serveAll(ctx, w, o, catalogs, what+"; "+o.catalogName()+" serves ")
		}
	}
	return errors.Join(err, server.Close(), <-served)
}

// serveAll serves all addresses until ctx ends, or one of them cannot be served any more. When it has begun it
// says what, and which addresses.
func serveAll(ctx context.Context, w *World, o *serveOptions, server *tcp.Server, what string) (err error) {
	failed := make(chan error, len(o.Listen))
	var serving sync.WaitGroup
	defer func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
		defer cancel()
		if e := server.Shutdown(grace); e != nil {
			err = errors.Join(err, failf("clients have not taken their replies within %v: %w", graceTime, e))
		}
		serving.Wait()
	}()
	var names []string
	for _, a := range o.Listen {
		l, err := listenOn(a)
		if err == nil {
			if err = server.Admissible(l.Addr()); err != nil {
				err = errors.Join(err, l.Close())
			}
		}
		if err != nil {
			return failf("--listen %s: %w", a, err)
		}
		network, _, _ := tcp.ParseAddress(a) // Validate has
		names = append(names, network+":"+l.Addr().String())
		serving.Go(func() { failed <- server.Serve(l) })
	}
	if _, err := fmt.Fprintf(w.Stdout, "%s%s\n", what, strings.Join(names, ", ")); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// listenOn listens on an address. A socket that a process that is gone has left behind is replaced.
func listenOn(a string) (net.Listener, error) {
	network, address, err := tcp.ParseAddress(a)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	if network != "unix" || !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	st, e := os.Lstat(address)
	if e != nil || st.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%w: something that is no socket is there", err)
	}
	c, e := net.Dial(network, address)
	if e == nil {
		_ = c.Close() // it was a question only
		return nil, fmt.Errorf("%w: another process serves it", err)
	}
	if !errors.Is(e, unix.ECONNREFUSED) {
		return nil, errors.Join(err, e)
	}
	if e := os.Remove(address); e != nil {
		return nil, errors.Join(err, e)
	}
	return net.Listen(network, address)
}
