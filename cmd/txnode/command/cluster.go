package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"txnode/cluster"
	_ "txnode/cluster/etcd" // addresses etcd://
	"txnode/memory"
	"txnode/rdma"
)

func newCluster(w *World) *cobra.Command {
	return choose("cluster", "Say which servers have the blades of a database, and change them",
		`A cluster is a catalog that a process serves (txnode serve --catalog) or that is in an
etcd, and servers of blades. The catalog knows the servers. Programs connect to all of them by the address
of the catalog, with cluster.Connect of the package txnode/cluster.`,
		newClusterInit(w), newClusterStatus(w), newClusterAddBlade(w), newClusterDrainBlade(w), newClusterRebalance(w))
}

// clusterInitOptions are the flags of txnode cluster init.
type clusterInitOptions struct {
	Catalog  string
	Blades   []string
	Replicas int
	Places   int
	access   accessOptions

	segment, log byteSize
}

// AddFlags registers the flags.
func (o *clusterInitOptions) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.Catalog, "catalog", "", "`address` of the catalog: unix:PATH, tcp:HOST:PORT or etcd://HOST:PORT,HOST:PORT/PREFIX\n(default: none; it is needed)")
	fs.StringArrayVar(&o.Blades, "blade", nil, "`address` of a server of blades: unix:PATH, tcp:HOST:PORT or shm:DIRECTORY/NAME; several, in the order\nof the blades' ids (default: none; one is needed)")
	fs.IntVar(&o.Replicas, "replicas", 1, "number of backups of each record: 0, 1 or 2; with one blade the default is 0")
	fs.IntVar(&o.Places, "places", 0, "how many blades there can be, with those that are added later, at most 64; 0, the default: as many as there are")
	fs.Var(&o.segment, "segment-size", "unit in which blades hand out memory, a power of two from 256KiB to 64MiB;\n0, the default: 64MiB, less if the blades are small")
	fs.Var(&o.log, "log-area", "log space of a worker on each blade, a power of two of at least 4KiB, which bounds what a transaction\ncan write; 0, the default: 4MiB, or a segment if that is smaller")
	o.access.addFlags(cmd)
}

// geometry is how the database is laid out; replicas: their number was asked for.
func (o *clusterInitOptions) geometry(replicas bool) cluster.Geometry {
	g := cluster.Geometry{SegmentSize: uint32(o.segment), LogArea: uint32(o.log), Places: o.Places}
	if replicas {
		g.Backups = &o.Replicas
	}
	return g
}

// accessOptions are the flags by which a client proves to servers that it may connect.
type accessOptions struct {
	SecretFile string
	ServerUser string
	TLS        tlsOptions
}

func (o *accessOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.SecretFile, "secret-file", "", "`file` with the secret that the servers share (default: none)")
	cmd.Flags().StringVar(&o.ServerUser, "server-user", "", "`user`, by name or number, whose daemons on this host are trusted, and not only this one's and root's (default: none)")
	o.TLS.addFlags(cmd, "servers")
	o.TLS.addName(cmd)
}

// options are the options of connections with what the files have.
func (o *accessOptions) options() (c cluster.Options, err error) {
	if faults := o.TLS.faults(); faults != nil {
		return c, usagef("%s", strings.Join(faults, "; "))
	}
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
	if len(o.Blades) == 0 {
		faults = append(faults, "--blade is missing: the address of a server of blades, such as unix:/run/user/1000/blade")
	}
	if o.Places < 0 || o.Places > memory.MaxBlades {
		faults = append(faults, fmt.Sprintf("--places is %d; 0 to %d are possible", o.Places, memory.MaxBlades))
	}
	for _, x := range []struct {
		name string
		size byteSize
	}{{"segment-size", o.segment}, {"log-area", o.log}} {
		if x.size > memory.MaxSegmentSize {
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
says so, changes nothing, and succeeds; another cluster is an error with the difference.`,
		Example: "  txnode cluster init --catalog unix:/tmp/catalog --blade unix:/tmp/blade0 --blade unix:/tmp/blade1\n" +
			"  txnode cluster init --catalog tcp:cat:7000 --blade tcp:b0:7000 --tls-cert c.crt --tls-key c.key --tls-ca ca.crt\n" +
			"  txnode cluster init --catalog etcd://e0:2379,e1:2379,e2:2379/bank --blade tcp:b0:7000 --blade tcp:b1:7000",
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
	_, err = fmt.Fprintf(w.Stdout, "the cluster at %s %s %s of %s, %v together%s\n", o.Catalog, has, count(blades, "blade"), count(len(servers)-vacant, "server"), &size, text)
	return err
}

func newClusterStatus(w *World) *cobra.Command {
	var o textOrJSON
	var access accessOptions
	cmd := &cobra.Command{
		Use: "status address", Short: "Ask the catalog of a cluster, and all servers of blades",
		Long: `Lists the blades of the cluster whose catalog is at an address, and whether their
servers answer; and what the catalog says of the database: its epoch, the processes
that have joined it, the workers that are registered, and tables with their indexes.
Several addresses with commas between them are tried one after the other; a catalog in
an etcd is at etcd://HOST:PORT,HOST:PORT/PREFIX, members of one etcd. Exit code 1
if a server does not answer, or has other blades than the catalog says.`,
		Example: "  txnode cluster status unix:/tmp/catalog",
		Args:    exactly(1, "name the address of a catalog"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			co, err := access.options()
			if err != nil {
				return err
			}
			st, err := cluster.Ask(cmd.Context(), args[0], co)
			if err != nil {
				return clusterFailed(err)
			}
			return printStatus(w, st, o == "json")
		},
	}
	o.addFlag(cmd)
	access.addFlags(cmd)
	return cmd
}

type clusterLine struct {
	Catalog  string        `json:"catalog"`
	Servers  []serverLine  `json:"servers"`
	Database *databaseLine `json:"database"` // null: there is none yet
}

type serverLine struct {
	Address string      `json:"address"`
	Answers bool        `json:"answers"`
	Vacant  bool        `json:"vacant,omitempty"` // there is no server: its place can be taken
	Error   string      `json:"error,omitempty"`
	Full    []string    `json:"full,omitempty"` // disks of the server that are full
	Blades  []bladeLine `json:"blades"`
}

type bladeLine struct {
	ID    int    `json:"id"`
	Bytes uint64 `json:"bytes"`
	// State is "leaving" while the blade is being drained, and "drained" then; Left is how many copies it has still.
	State string `json:"state,omitempty"`
	Left  int    `json:"left,omitempty"`
}

type databaseLine struct {
	Epoch     uint32 `json:"epoch"`
	Processes int    `json:"processes"`
	Workers   int    `json:"workers"`
	Tables    int    `json:"tables"`
}

// statusLine is what is printed of a status.
func statusLine(st *cluster.Status) clusterLine {
	l := clusterLine{Catalog: st.Catalog}
	id := 0
	for _, s := range st.Servers {
		sl := serverLine{Address: string(s.Address), Answers: s.Err == nil && !s.Vacant(), Vacant: s.Vacant(), Full: s.Full}
		if s.Err != nil {
			sl.Error = oneLine(explainTLS(s.Err))
		}
		for _, n := range s.Blades {
			b := bladeLine{ID: id, Bytes: n}
			if db := st.Layout; db != nil && id < len(db.Blades) && db.Blades[id].Leaving && !s.Vacant() {
				if b.State, b.Left = "leaving", db.Held(rdma.BladeID(id)); db.Vacant(rdma.BladeID(id)) {
					b.State = "drained"
				}
			}
			sl.Blades = append(sl.Blades, b)
			id++
		}
		l.Servers = append(l.Servers, sl)
	}
	if db := st.Layout; db != nil {
		l.Database = &databaseLine{Epoch: uint32(db.Epoch), Workers: len(db.Coordinators)}
		for i := range db.Processes {
			if !db.Processes[i].Resigned() {
				l.Database.Processes++
			}
		}
		for _, t := range db.Tables {
			if t.State == memory.TableLive && t.Root != 0 { // it is whole
				l.Database.Tables++
			}
		}
	}
	return l
}

func printStatus(w *World, st *cluster.Status, asJSON bool) error {
	l := statusLine(st)
	silent := 0
	for _, s := range l.Servers {
		if !s.Answers && !s.Vacant {
			silent++
		}
	}
	var err error
	if asJSON {
		err = line(w.Stdout, l)
	} else {
		err = printStatusText(w, &l)
	}
	if err == nil && silent > 0 {
		return failf("%d of %d servers of blades are of no use", silent, len(l.Servers))
	}
	return err
}

func printStatusText(w *World, l *clusterLine) error {
	t := tabwriter.NewWriter(w.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "blade\tsize\tserver\tstate") // Flush says what has failed
	for _, s := range l.Servers {
		for _, b := range s.Blades {
			size := byteSize(b.Bytes)
			state := "answers"
			switch {
			case s.Vacant:
				state = "vacant"
			case !s.Answers:
				state = s.Error
			case b.State == "leaving":
				state = fmt.Sprintf("answers, leaving: %d copies are left", b.Left)
			case b.State != "":
				state = "answers, " + b.State
			}
			if len(s.Full) > 0 {
				state += "; " + shown(strings.Join(s.Full, "; "))
			}
			if s.Vacant {
				_, _ = fmt.Fprintf(t, "%d\t-\t-\t%s\n", b.ID, state)
				continue
			}
			_, _ = fmt.Fprintf(t, "%d\t%v\t%s\t%s\n", b.ID, &size, shown(s.Address), state)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var err error
	if d := l.Database; d == nil {
		_, err = fmt.Fprintf(w.Stdout, "catalog %s: no database yet\n", l.Catalog)
	} else {
		_, err = fmt.Fprintf(w.Stdout, "catalog %s: epoch %d, processes %d, workers %d, tables %d\n", l.Catalog, d.Epoch, d.Processes, d.Workers, d.Tables)
	}
	return err
}
