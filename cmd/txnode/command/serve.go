package command

import (
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"txnode/cluster"
	"txnode/memory/catalog"
	"txnode/memory/layout"
	"txnode/rdma/ibverbs"
	"txnode/rdma/shm"
	"txnode/rdma/tcp"
)

// serveOptions are the flags of txnode serve.
type serveOptions struct {
	Listen      []string
	Shm         string
	Name        string
	Patience    time.Duration
	Memory      byteSize
	Blades      sizeList
	Dir         string
	HugePages   bool
	Catalog     string
	SecretFile  string
	SocketMode  fileMode
	Connections int
	RDMA        string // the device of blades at rdma: addresses
	TLS         tlsOptions
	HTTP        string
	Cluster     string // of whose database the daemon knows
	Join        string // the catalog that the server announces itself in
	Advertise   string
	Domain      string
	LogFormat   string
	LogLevel    string
	Config      string
	// UntilInput has it end when its standard input does: with a process that has started it,
	// however that ends.
	UntilInput bool

	memoryGiven bool // and not the default
}

// sizeList is a flag that can be given several times, each time with a size.
type sizeList []byteSize

// String implements pflag.Value.
func (l *sizeList) String() string {
	var sizes []string
	for i := range *l {
		sizes = append(sizes, (*l)[i].String())
	}
	return strings.Join(sizes, ",")
}

// Type implements pflag.Value.
func (l *sizeList) Type() string { return "size" }

// Set implements pflag.Value.
func (l *sizeList) Set(s string) error {
	var size byteSize
	err := size.Set(s)
	*l = append(*l, size)
	return err
}

// fileMode is a flag with the rights of a file, in octal digits. 0: it was not given.
type fileMode fs.FileMode

// String implements pflag.Value.
func (m *fileMode) String() string {
	if *m == 0 {
		return ""
	}
	return fmt.Sprintf("%o", uint32(*m))
}

// Type implements pflag.Value.
func (*fileMode) Type() string { return "mode" }

// Set implements pflag.Value.
func (m *fileMode) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 || n&0o600 != 0o600 {
		return fmt.Errorf("it must be octal digits, from 600 to 777, and its own user reads and writes")
	}
	*m = fileMode(n)
	return nil
}

// socketMode is that of unix sockets: the system lets in who could prove to the daemon
// that it may connect.
func (o *serveOptions) socketMode() fs.FileMode {
	switch {
	case o.SocketMode != 0:
		return fs.FileMode(o.SocketMode)
	case o.SecretFile != "":
		return 0o666
	}
	return 0o600
}

// sizes are those of the blades that were asked for, in the order of their ids; none: a catalog
// alone.
func (o *serveOptions) sizes() []byteSize {
	switch {
	case len(o.Blades) > 0:
		return o.Blades
	case o.Memory == 0:
		return nil
	}
	return []byteSize{o.Memory}
}

// AddFlags registers the flags.
func (o *serveOptions) AddFlags(cmd *cobra.Command) {
	o.Memory = 1 << 30
	fs := cmd.Flags()
	fs.StringArrayVar(&o.Listen, "listen", nil,
		"`address` to serve: unix:PATH or tcp:HOST:PORT, on loopback unless there is TLS;\n"+
			"several are possible (default: none; this or --shm is needed). rdma:HOST:PORT: blades are reached\n"+
			"through an RDMA device, and introduced at the address")
	fs.StringVar(&o.RDMA, "rdma", "", rdmaHelp)
	fs.StringVar(&o.Shm, "shm", "",
		"`directory`, best on a tmpfs, by which processes of this host map the blades (default: none)")
	fs.StringVar(&o.Name, "name", "a",
		"with --shm, the name of this server in the directory: letters, digits, '-' and '_'")
	fs.DurationVar(&o.Patience, "patience", shm.DefaultPatience,
		"with --shm, for how long a process that stands still in the middle of an access may give no sign of life "+
			"while\nkeys change, before it is killed; at least the longest lease of a program")
	fs.Var(&o.Memory, "memory",
		"size of the blade, a multiple of 64KiB, used as data comes; 0, with --catalog: no blade")
	fs.Var(&o.Blades, "blade",
		"instead of --memory: `size` of one of several blades, in the order of their ids; several times "+
			"(default: one blade)")
	fs.StringVar(&o.Dir, "dir", "",
		"`directory` that keeps each blade in a file, made if there is none; sizes may be left out if there is one\n"+
			"(default: none, the blades end with the process)")
	fs.BoolVar(&o.HugePages, "huge-pages", false,
		"put blades in memory on explicit huge pages, which must be reserved; sizes are multiples of 2MiB then")
	fs.StringVar(&o.Catalog, "catalog", "",
		"`directory` with the catalog to serve, made if there is none; memory: one that ends with the process "+
			"(default: none)")
	fs.StringVar(&o.Join, "join", "",
		"`address` of a catalog: the server announces itself there, and takes part in its cluster (default: none)")
	fs.StringVar(&o.Advertise, "advertise", "",
		"with --join, `address` HOST:PORT by which others reach the first --listen (default: as it is there)")
	fs.StringVar(&o.Domain, "domain", "",
		"with --join, `name` of what fails together with others, such as a rack: no two copies are in one domain\n"+
			"while there is room elsewhere (default: the server is one of its own)")
	fs.StringVar(&o.SecretFile, "secret-file", "",
		"`file` with a secret of at least 16 bytes that clients must share, without the end of its last line;\n"+
			"by default none, and a unix socket is for this user and root")
	fs.Var(&o.SocketMode, "socket-mode",
		"`mode` of unix sockets, such as 660 (default: 600, or with --secret-file 666)")
	fs.IntVar(&o.Connections, "connections", 1024, "number of connections at a time, each with 512KiB of buffers")
	o.TLS.addFlags(cmd, "clients")
	fs.StringVar(&o.Cluster, "cluster", "",
		"`address` of a catalog elsewhere, of whose database --http tells, too, and which is asked at the end "+
			"whether data\nis lost by it (default: that of --catalog, if any)")
	fs.StringVar(&o.HTTP, "http", "",
		"`address` HOST:PORT of a status page, /metrics for Prometheus and /healthz; on loopback, or with TLS by "+
			"HTTPS\nwith certificates of clients (default: none)")
	fs.StringVar(&o.LogFormat, "log-format", "text", "`format` of the log on standard error: text or json")
	fs.StringVar(&o.LogLevel, "log-level", "info",
		"`level` from which on the log has lines: debug, info, warn or error")
	fs.StringVar(&o.Config, "config", "",
		"YAML `file` with lines of NAME: VALUE for flags that are not given (default: none)")
	fs.BoolVar(&o.UntilInput, untilInput, false, "end when standard input ends")
	_ = fs.MarkHidden(untilInput) // it is there
}

// untilInput is a flag that no setting gives.
const untilInput = "until-input-ends"

// Validate finds faults.
func (o *serveOptions) Validate() error {
	var faults []string
	switch {
	case len(o.Listen) == 0 && o.Catalog != "":
		faults = append(faults, "--listen is missing: where to serve the catalog, such as unix:/run/user/1000/catalog")
	case len(o.Listen) == 0 && o.Shm == "":
		faults = append(faults,
			"--listen is missing: where to serve, such as unix:/run/user/1000/blade; or --shm, a directory")
	case len(o.Listen) > 0 && o.Shm != "" && o.Catalog == "":
		faults = append(faults, "--listen and --shm are both given; a blade is reached in one way")
	case o.Shm != "" && o.SecretFile != "" && o.Catalog == "":
		faults = append(faults, "--secret-file is for --listen; with --shm, only this user and root can connect")
	}
	if o.Patience <= 0 || o.Patience > shm.MaxPatience {
		faults = append(faults, fmt.Sprintf("--patience is %v; it must be more than 0s, and at most %v",
			o.Patience, shm.MaxPatience))
	}
	for _, a := range o.Listen {
		if _, _, err := parseListen(a); err != nil {
			what := "it must be unix:PATH, tcp:HOST:PORT or rdma:HOST:PORT"
			if path, ok := strings.CutPrefix(a, "unix:"); ok && path != "" {
				what = fmt.Sprintf("the path has %d bytes, which is too long for a socket: at most %d are possible",
					len(strings.TrimPrefix(path, "//")), tcp.MaxUnixPath)
			}
			faults = append(faults, fmt.Sprintf("--listen is %q; %s", a, what))
		}
	}
	faults = append(faults, o.bladeFaults()...)
	faults = append(faults, o.rdmaFaults()...)
	faults = append(faults, o.joinFaults()...)
	faults = append(faults, o.TLS.faults()...)
	if o.TLS.given() &&
		!slices.ContainsFunc(o.Listen, func(a string) bool {
			network, _, err := parseListen(a)
			return err != nil || network == "tcp"
		}) && o.HTTP == "" {
		faults = append(faults, "--tls-cert is for TCP, and no --listen is tcp:HOST:PORT")
	}
	if o.LogFormat != "text" && o.LogFormat != "json" {
		faults = append(faults, fmt.Sprintf("--log-format is %q; it must be text or json", o.LogFormat))
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, o.LogLevel) {
		faults = append(faults, fmt.Sprintf("--log-level is %q; it must be debug, info, warn or error", o.LogLevel))
	}
	switch {
	case o.Cluster == "":
	case o.Catalog != "":
		faults = append(faults, "--cluster is for a daemon without --catalog")
	default:
		if err := cluster.CheckCatalog(o.Cluster); err != nil {
			faults = append(faults, "--cluster: "+err.Error())
		}
	}
	if o.HTTP != "" {
		if _, port, err := net.SplitHostPort(o.HTTP); err != nil || port == "" {
			faults = append(faults, fmt.Sprintf("--http is %q; it must be HOST:PORT, such as 127.0.0.1:9100", o.HTTP))
		}
	}
	if o.Connections < 1 || o.Connections > 1<<20 {
		faults = append(faults, fmt.Sprintf("--connections is %d; it must be from 1 to %d", o.Connections, 1<<20))
	}
	if faults != nil {
		return usagef("%s", strings.Join(faults, "; "))
	}
	return nil
}

// parseListen takes an address of --listen apart, for net.Listen. Of rdma:HOST:PORT it is that of
// the control path.
func parseListen(a string) (network, address string, err error) {
	if c, ok := ibverbs.ControlAddress(a); ok {
		a = c
	}
	return tcp.ParseAddress(a)
}

// device reports whether an address of --listen is for blades behind an RDMA device.
func (o *serveOptions) device(a string) bool {
	_, ok := ibverbs.ControlAddress(a)
	return ok
}

// devices reports whether the blades are behind an RDMA device.
func (o *serveOptions) devices() bool { return slices.ContainsFunc(o.Listen, o.device) }

// rdmaFaults finds faults in what was asked of an RDMA device. Atomics of a device do not know of
// those of the processor, so a blade is not also served by sockets, or mapped.
func (o *serveOptions) rdmaFaults() (faults []string) {
	if !o.devices() {
		return nil // --rdma may be from an environment of several daemons
	}
	if _, err := ibverbs.ParseDevice(o.RDMA); err != nil {
		faults = append(faults, "--rdma: "+err.Error())
	}
	other := slices.IndexFunc(o.Listen, func(a string) bool { return !o.device(a) })
	switch {
	case o.sizes() == nil:
		faults = append(faults, "--listen rdma:HOST:PORT is for blades, and --memory 0 asks for none")
	case other >= 0 && o.Catalog == "":
		faults = append(faults, fmt.Sprintf("--listen is rdma:HOST:PORT, and %s, too; a blade is reached in one way",
			o.Listen[other]))
	case o.Shm != "":
		faults = append(faults, "--listen rdma:HOST:PORT and --shm are both given; a blade is reached in one way")
	}
	if o.Dir != "" {
		faults = append(faults, "--dir keeps blades in files, whose memory no RDMA device may pin: leave it out")
	}
	return faults
}

// joinFaults finds faults in how the server is to announce itself.
func (o *serveOptions) joinFaults() (faults []string) {
	if o.Join == "" {
		if o.Advertise != "" || o.Domain != "" {
			faults = append(faults, "--advertise and --domain are for --join")
		}
		return faults
	}
	if err := cluster.CheckCatalog(o.Join); err != nil {
		faults = append(faults, "--join: "+err.Error())
	}
	if o.Shm != "" || o.sizes() == nil {
		faults = append(faults,
			"--join is for blades of --listen; those of --shm are all there from the beginning: txnode cluster "+
				"init --blade")
	}
	if len(o.Domain) > layout.MaxDomain || strings.ContainsFunc(o.Domain, unicode.IsControl) {
		faults = append(faults,
			fmt.Sprintf("--domain has %d bytes; at most %d are possible, without control characters",
				len(o.Domain), layout.MaxDomain))
	}
	if len(o.Listen) == 0 {
		return faults // of which another fault tells
	}
	network, address, _ := parseListen(o.Listen[0])
	if network != "tcp" {
		if o.Advertise != "" {
			faults = append(faults, fmt.Sprintf("--advertise is for TCP, and the first --listen is %s", o.Listen[0]))
		}
		return faults
	}
	what := "--listen"
	if o.Advertise != "" {
		what, address = "--advertise", o.Advertise
	}
	host, port, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if err != nil || host == "" || ip != nil && ip.IsUnspecified() || o.Advertise != "" && (port == "" || port == "0") {
		faults = append(faults,
			fmt.Sprintf("%s is %q, which --join tells others, and they cannot connect to it: give --advertise "+
				"HOST:PORT, by which they reach this server", what, address))
	}
	return faults
}

// advertised is by which address others reach the first of the listeners.
func (o *serveOptions) advertised(l net.Listener) cluster.BladeAddress {
	network, address, _ := parseListen(o.Listen[0]) // Validate has
	switch {
	case o.Advertise != "":
		address = o.Advertise
	case network == "tcp":
		host, port, _ := net.SplitHostPort(address)
		if a, ok := l.Addr().(*net.TCPAddr); ok && a.Port > 0 {
			port = strconv.Itoa(a.Port)
		}
		address = net.JoinHostPort(host, port)
	}
	if o.device(o.Listen[0]) {
		network = "rdma"
	}
	return cluster.BladeAddress(network + ":" + address)
}

// maxBlades is how many blades a server can have.
const maxBlades = 1 << 12

// bladeFaults finds faults in what was asked of blades.
func (o *serveOptions) bladeFaults() (faults []string) {
	flag := "memory"
	if len(o.Blades) > 0 {
		flag = "blade"
	}
	unit, in := byteSize(64<<10), ""
	if o.HugePages {
		unit, in = 2<<20, " with --huge-pages"
	}
	sizes := o.sizes()
	if sizes == nil && (o.Catalog == "" || o.Shm != "") { // there are to be blades
		sizes = []byteSize{0}
	}
	for _, n := range sizes {
		if n <= 0 || n%unit != 0 {
			faults = append(faults, fmt.Sprintf("--%s is %v; it must be a positive multiple of %v%s",
				flag, &n, &unit, in))
		}
	}
	if o.memoryGiven && len(o.Blades) > 0 {
		faults = append(faults, "--memory and --blade are both given; several blades are several --blade")
	}
	if len(sizes) > maxBlades {
		faults = append(faults, fmt.Sprintf("%d times --blade; %d are possible", len(sizes), maxBlades))
	}
	if o.Dir != "" && sizes == nil {
		faults = append(faults, "--dir is for blades, and --memory 0 asks for none")
	}
	switch {
	case o.HugePages && o.Dir != "":
		faults = append(faults, "--huge-pages is for memory, and --dir keeps blades in files")
	case o.HugePages && o.Shm != "":
		faults = append(faults, "--huge-pages is for --listen; blades of --shm are on transparent huge pages")
	case o.HugePages && sizes == nil:
		faults = append(faults, "--huge-pages is for blades, and --memory 0 asks for none")
	}
	return faults
}

func newServe(w *World) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve memory blades, or a catalog, to transactions of other processes",
		Long: `Serves memory blades, whose memory is this process's, until it is interrupted or
ended (SIGINT, SIGTERM). Then connections execute what they have received, and the
memory is given up. With --cluster, or --catalog, it does not end yet if data would be
lost by that: it logs what and what to do, and ends when other blades have copies, or
at a second signal. Write with txnode cluster init which servers have the blades of a
database; programs open it with cluster.Open of the package txnode/cluster.

With --dir, blades are files, one each, beside a file with their identity. What was
written is there after the end of the process, by SIGKILL, too. For a database a blade
that has restarted counts as lost all the same, as it may have missed writes: its
copies on other blades go on, and it gets new ones. So a database needs --replicas.

With --shm, processes of this host map the blades' memory instead, and access it
themselves. Programs connect with shm.Dial of the package txnode/rdma/shm. A process
that stands still in the middle of an access while keys change is waited for, and
killed if it gives no sign of life for --patience. Linux only.

With --catalog, it serves a catalog, too: what is where, which all processes of a
database share. It is a file, catalog.db, in a directory, and stays when the process
ends. Programs connect with remote.Dial of the package txnode/memory/catalog/remote.
With --shm, --listen is where the catalog is served.

A unix socket is for the user that runs the command and root, or, with
--secret-file, for all that have the secret. Clients without a secret connect to
sockets of their own user and root, or of --server-user. Other hosts are served with TLS only:
--tls-cert, --tls-key and --tls-ca. Then a client on TCP must have a certificate of
that authority, too. TLS 1.3 is the oldest version. Files of certificates and secrets
that are replaced count for the next connection; SIGHUP reads them at once.

With --listen rdma:HOST:PORT, clients reach the blades through an RDMA device (--rdma), without
this process; the address is where they are introduced to it. It needs a program that was built with the
tag ibverbs. A blade that is served so is not served in another way.

With --join, the server announces itself in the catalog at an address, which another
daemon serves, or an etcd, and says there that it is alive. Before there is a database it
waits for txnode cluster init --blades. In a cluster the server takes a vacant place, and
gets its share, as by txnode cluster add-blade and rebalance; one that was there before,
at this address or with these files, has its place again. --join stands for --cluster, too.

With --http, a browser shows blades, rates and, with --catalog, where the copies of
the database are; Prometheus reads /metrics. /healthz answers 200, or 503 and why.

Each flag can also come from the environment, --tls-cert from TXNODE_TLS_CERT and so
on, or from a file (--config) with lines such as "memory: 4GiB"; what can be given
several times is a list there, and has commas in the environment. Flags go before
the environment, that before the file, and that before defaults.

When all addresses are served a line says so, and systemd is told (Type=notify; a
watchdog is answered). The log is on standard error: clients that were refused, or
that broke the protocol. It holds nothing up: lines that cannot be written, or of
which there are more than 10 of a kind in a second, are left out and counted.`,
		Example: `  txnode serve --listen unix:/tmp/blade0 --memory 4GiB
  txnode serve --listen tcp:127.0.0.1:7000 --secret-file secret
  txnode serve --shm /dev/shm/txnode --name blade0 --memory 4GiB
  txnode serve --listen unix:/tmp/blades --blade 4GiB --blade 4GiB --dir /var/lib/txnode/blades --http 127.0.0.1:9100
  txnode serve --listen unix:/tmp/catalog --catalog /var/lib/txnode --memory 0
  txnode serve --listen unix:/tmp/blade1 --memory 4GiB --join unix:/tmp/catalog
  txnode serve --listen tcp:0.0.0.0:7000 --tls-cert server.crt --tls-key server.key --tls-ca ca.crt`,
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := applySettings(cmd, w, o.Config); err != nil {
				return err
			}
			o.memoryGiven = cmd.Flags().Changed("memory")
			if err := o.Validate(); err != nil {
				return err
			}
			if o.Cluster == "" && o.Catalog == "" {
				o.Cluster = o.Join
			}
			return runServe(cmd.Context(), w, o)
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// catalogInMemory is the --catalog that no file keeps.
const catalogInMemory = "memory"

// openCatalog opens the catalog in a directory, which is made if there is none.
func openCatalog(dir string) (layout.Catalog, error) {
	if dir == catalogInMemory {
		return &catalog.Mem{}, nil
	}
	c, err := catalog.OpenBolt(filepath.Join(dir, "catalog.db"), false)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// catalogName names the catalog in what the command says.
func (o *serveOptions) catalogName() string {
	if o.Catalog == catalogInMemory {
		return "a catalog in memory"
	}
	return "the catalog in " + o.Catalog
}
