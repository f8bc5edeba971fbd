package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"txnode/cluster"
	_ "txnode/cluster/etcd" // addresses etcd://
	"txnode/memory/layout"
	"txnode/rdma/ibverbs"
	"txnode/txn"
)

func newCluster(w *World) *cobra.Command {
	return choose("cluster", "Say which servers have the blades of a database, and change them",
		`A cluster is a catalog that a process serves (txnode serve --catalog) or that is in an
etcd, and servers of blades. The catalog knows the servers. Programs connect to all of them by the address
of the catalog, with cluster.Connect of the package txnode/cluster.`,
		newClusterInit(w), newClusterStatus(w), newClusterHeal(w), newClusterAddBlade(w), newClusterDrainBlade(w),
		newClusterRebalance(w),
		newClusterRestartCheck(w), newClusterEvict(w), newClusterForget(w), newClusterRecover(w))
}

// clusterInitOptions are the flags of txnode cluster init.
type clusterInitOptions struct {
	Catalog  string
	Blades   []string
	Replicas int
	Places   int
	Joined   int // blades of servers that announce themselves
	Wait     time.Duration
	access   accessOptions

	segment, log byteSize
}

// AddFlags registers the flags.
func (o *clusterInitOptions) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.Catalog, "catalog", "",
		"`address` of the catalog: unix:PATH, tcp:HOST:PORT or etcd://HOST:PORT,HOST:PORT/PREFIX\n"+
			"(default: none; it is needed)")
	fs.StringArrayVar(&o.Blades, "blade", nil,
		"`address` of a server of blades: unix:PATH, tcp:HOST:PORT, rdma:HOST:PORT or shm:DIRECTORY/NAME;\n"+
			"several, in the order of the blades' ids (default: none; one is needed)")
	fs.IntVar(&o.Joined, "blades", 0,
		"instead of --blade: wait until servers with so `many` blades have announced themselves (txnode serve "+
			"--join)\n(default: none)")
	fs.DurationVar(&o.Wait, "wait", 0, "how long --blades waits at most; 0, the default: for ever")
	fs.IntVar(&o.Replicas, "replicas", 1,
		"number of backups of each record: 0, 1 or 2; with one blade the default is 0")
	fs.IntVar(&o.Places, "places", 0,
		"how many blades there can be, with those that are added later, at most 64; 0, the default: as many as there "+
			"are,\nand with --blades twice as many")
	fs.Var(&o.segment, "segment-size",
		"unit in which blades hand out memory, a power of two from 256KiB to 64MiB;\n"+
			"0, the default: 64MiB, less if the blades are small")
	fs.Var(&o.log, "log-area",
		"log space of a worker on each blade, a power of two of at least 4KiB, which bounds what a transaction\n"+
			"can write; 0, the default: 4MiB, or a segment if that is smaller")
	o.access.addFlags(cmd)
}

// geometry is how the database is laid out; replicas: their number was asked for.
func (o *clusterInitOptions) geometry(replicas bool) cluster.Geometry {
	g := cluster.Geometry{SegmentSize: uint32(o.segment), LogArea: uint32(o.log), Places: o.Places}
	if o.Places == 0 {
		g.Places = min(2*o.Joined, layout.MaxBlades) // others can join later
	}
	if replicas {
		g.Backups = &o.Replicas
	}
	return g
}

// accessOptions are the flags by which a client proves to servers that it may connect, and that say
// how long it waits for them.
type accessOptions struct {
	SecretFile string
	ServerUser string
	RDMA       string // the device of this host
	TLS        tlsOptions

	Lease               time.Duration // from which the others follow that are 0
	Connect, Call, Verb time.Duration
}

// given reports whether there are flags for a cluster alone.
func (o accessOptions) given() bool {
	o.Lease = 0
	return o != accessOptions{}
}

// minLease is the least --lease: processes renew theirs three times in it.
const minLease = 100 * time.Millisecond

// deadlines finds faults of deadlines.
func (o *accessOptions) deadlines() (faults []string) {
	if o.Lease < minLease {
		faults = append(faults, fmt.Sprintf("--lease is %v; it must be at least %v", o.Lease, minLease))
	}
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"connect-timeout", o.Connect}, {"call-timeout", o.Call}, {"verb-timeout", o.Verb}} {
		if x.d < 0 {
			faults = append(faults, fmt.Sprintf("--%s is %v; it must not be negative", x.name, x.d))
		}
	}
	return faults
}

// rdmaHelp is the help of --rdma.
const rdmaHelp = "`device` of this host for blades at rdma:HOST:PORT: DEVICE, DEVICE/PORT or DEVICE/PORT/GID, such " +
	"as mlx5_0/1/3\n(default: the first with an active port)"

func (o *accessOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.SecretFile, "secret-file", "",
		"`file` with the secret that the servers share (default: none)")
	cmd.Flags().StringVar(&o.ServerUser, "server-user", "",
		"`user`, by name or number, whose daemons on this host are trusted, and not only this one's and root's "+
			"(default: none)")
	cmd.Flags().StringVar(&o.RDMA, "rdma", "", rdmaHelp)
	o.TLS.addFlags(cmd, "servers")
	o.TLS.addName(cmd)
	cmd.Flags().DurationVar(&o.Lease, "lease", txn.DefaultLeaseTerm,
		"`time` without a sign of life after which a process counts as gone")
	cmd.Flags().DurationVar(&o.Connect, "connect-timeout", 0,
		"`time` that a connection may take; 0, the default: half of --lease")
	cmd.Flags().DurationVar(&o.Call, "call-timeout", 0,
		"`time` that a call of a catalog or of a blade may take; 0, the default: --lease")
	cmd.Flags().DurationVar(&o.Verb, "verb-timeout", 0, "`time` that a verb may take; 0, the default: half of --lease")
}

// options are the options of connections with what the files have.
func (o *accessOptions) options() (c cluster.Options, err error) {
	if faults := append(o.TLS.faults(), o.deadlines()...); faults != nil {
		return c, usagef("%s", strings.Join(faults, "; "))
	}
	if c.RDMA, err = ibverbs.ParseDevice(o.RDMA); err != nil {
		return c, usagef("--rdma: %w", err)
	}
	c.Term, c.TCP.Connect, c.TCP.Control, c.TCP.Verb = o.Lease, o.Connect, o.Call, o.Verb
	if o.ServerUser != "" {
		id, err := userID(o.ServerUser)
		if err != nil {
			return c, usagef("--server-user: %w", err)
		}
		c.TCP.Users = []uint32{id, uint32(os.Geteuid()), 0}
	}
	if o.SecretFile == "" && !o.TLS.given() {
		return c, nil
	}
	files, err := o.TLS.files(o.SecretFile)
	if err != nil {
		return c, err
	}
	c.TCP.Credentials = files.Client
	return c, nil
}

// userID is the number of a user that is named, or is one.
func userID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// Validate finds faults.
func (o *clusterInitOptions) Validate() error {
	var faults []string
	if o.Catalog == "" {
		faults = append(faults, "--catalog is missing: the address of the catalog, such as unix:/run/user/1000/catalog")
	} else if err := cluster.CheckCatalog(o.Catalog); err != nil {
		faults = append(faults, "--catalog: "+err.Error())
	}
	switch {
	case o.Joined < 0 || o.Joined > layout.MaxBlades:
		faults = append(faults, fmt.Sprintf("--blades is %d; 1 to %d are possible", o.Joined, layout.MaxBlades))
	case o.Joined > 0 && len(o.Blades) > 0:
		faults = append(faults, "--blade and --blades are both given; servers are named, or announce themselves")
	case o.Joined == 0 && len(o.Blades) == 0:
		faults = append(faults,
			"--blade is missing: the address of a server of blades, such as unix:/run/user/1000/blade; or --blades, "+
				"how many to wait for")
	}
	if o.Wait < 0 || o.Wait > 0 && o.Joined == 0 {
		faults = append(faults, fmt.Sprintf("--wait is %v; it is how long --blades waits at most", o.Wait))
	}
	if o.Places < 0 || o.Places > layout.MaxBlades {
		faults = append(faults, fmt.Sprintf("--places is %d; 0 to %d are possible", o.Places, layout.MaxBlades))
	}
	for _, x := range []struct {
		name string
		size byteSize
	}{{"segment-size", o.segment}, {"log-area", o.log}} {
		if x.size > layout.MaxSegmentSize {
			faults = append(faults, fmt.Sprintf("--%s is %v; 64MiB are possible", x.name, &x.size))
		}
	}
	if faults != nil {
		return usagef("%s", strings.Join(faults, "; "))
	}
	return nil
}

// clusterFailed is the error of a command about a cluster: wrong addresses are wrong usage.
func clusterFailed(err error) error {
	if errors.Is(err, cluster.ErrOptions) {
		return &usageError{cause: err}
	}
	return explainTLS(err)
}

func newClusterInit(w *World) *cobra.Command {
	o := &clusterInitOptions{}
	cmd := &cobra.Command{
		Use: "init", Short: "Write into an empty catalog which servers have the blades, and create the database",
		Long: `Writes into the catalog which servers have the blades of the database, and creates it on
them, without tables. All servers must answer: they tell how many blades they have, and
of which sizes. The catalog must be empty. After an interruption, call it again with the
same servers: it goes on, after some 20 s if a process has begun. If the catalog has that
cluster already, with the same servers in the same order and the same layout, the command
says so, changes nothing, and succeeds; another cluster is an error with the difference.

With --blades it waits for servers that announce themselves in the catalog (txnode serve
--join), and takes them, of different domains first. Those that come later join by
themselves, as long as there are places.`,
		Example: "  txnode cluster init --catalog unix:/tmp/catalog --blades 3 --replicas 1\n" +
			"  txnode cluster init --catalog unix:/tmp/catalog --blade unix:/tmp/blade0 --blade unix:/tmp/blade1\n" +
			"  txnode cluster init --catalog tcp:cat:7000 --blade tcp:b0:7000 --tls-cert c.crt --tls-key c.key " +
			"--tls-ca ca.crt\n" +
			"  txnode cluster init --catalog etcd://e0:2379,e1:2379,e2:2379/bank --blade tcp:b0:7000 " +
			"--blade tcp:b1:7000",
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return runClusterInit(cmd.Context(), w, o, o.geometry(cmd.Flags().Changed("replicas")))
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// awaitServers waits for servers that announce themselves.
func awaitServers(ctx context.Context, w *World, cat layout.Catalog, o *clusterInitOptions) ([]cluster.BladeAddress,
	error) {
	limit := ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	addresses, err := cluster.AwaitServers(limit, cat, o.Joined, func(have int) {
		_, _ = fmt.Fprintf(w.Stderr, "blades that have joined: %d of %d\n", have, o.Joined)
	})
	if err != nil {
		return nil, interruptedOr(ctx, clusterFailed(err))
	}
	return addresses, nil
}

func runClusterInit(ctx context.Context, w *World, o *clusterInitOptions, g cluster.Geometry) (err error) {
	co, err := o.access.options()
	if err != nil {
		return err
	}
	cat, err := cluster.DialCatalog(ctx, o.Catalog, co)
	if err != nil {
		return clusterFailed(err)
	}
	defer func() { err = errors.Join(err, cat.Close()) }()
	var addresses []cluster.BladeAddress
	for _, b := range o.Blades {
		addresses = append(addresses, cluster.BladeAddress(b))
	}
	if o.Joined > 0 {
		if addresses, err = awaitServers(ctx, w, cat, o); err != nil {
			return err
		}
	}
	has := "has"
	switch err := cluster.Init(ctx, cat, addresses, g, co); {
	case errors.Is(err, cluster.ErrSame):
		has = "was there already, as it is asked for, and has"
	case err != nil:
		return interruptedOr(ctx, clusterFailed(err))
	}
	servers, err := cluster.Servers(cat)
	if err != nil {
		return err
	}
	blades, size := 0, byteSize(0)
	vacant := 0
	for i := range servers {
		s := &servers[i]
		if s.Vacant() {
			vacant++
			continue
		}
		blades += len(s.Blades)
		for _, n := range s.Blades {
			size += byteSize(n)
		}
	}
	text := ""
	if vacant > 0 {
		text = ", and " + count(vacant, "vacant place")
	}
	_, err = fmt.Fprintf(w.Stdout, "the cluster at %s %s %s of %s, %v together%s\n",
		o.Catalog, has, count(blades, "blade"), count(len(servers)-vacant, "server"), &size, text)
	return err
}
