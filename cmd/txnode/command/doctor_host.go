package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"txnode/cluster"
	"txnode/internal/eintr"
	"txnode/memory"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// hostFacts are what a host says of itself.
type hostFacts struct {
	CPUs      int
	OpenFiles uint64 // limit of files of a process
	Memlock   uint64 // limit of bytes that a process may pin
	// Transparent huge pages of memory, and of shared memory: the word that is chosen, "" if
	// that is not known.
	Pages, SharedPages string
	Reserved           int // explicit huge pages that are free; -1: not known
	// Clock is whether something keeps the clock right, and whether the system tells that.
	Clock func() (kept, known bool)
	// Room is how many bytes a file system has, and how many are free, for files in a directory.
	Room func(dir string) (size, free uint64, err error)
}

// readHost finds the facts; a test has others.
var readHost = func() hostFacts {
	h := hostFacts{
		CPUs: runtime.NumCPU(), OpenFiles: limitOf(unix.RLIMIT_NOFILE),
		Memlock: limitOf(unix.RLIMIT_MEMLOCK), Room: roomOf, Clock: clockKept, Reserved: -1,
	}
	const pages = "/sys/kernel/mm/transparent_hugepage/"
	h.Pages, h.SharedPages = chosen(pages+"enabled"), chosen(pages+"shmem_enabled")
	if p, err := os.ReadFile("/proc/meminfo"); err == nil {
		for l := range strings.Lines(string(p)) {
			if n, ok := strings.CutPrefix(l, "HugePages_Free:"); ok {
				if h.Reserved, err = strconv.Atoi(strings.TrimSpace(n)); err != nil {
					h.Reserved = -1
				}
			}
		}
	}
	return h
}

// limitOf is a limit of this process; one that is not known is none.
func limitOf(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return math.MaxUint64
	}
	return uint64(l.Cur) //nolint:unconvert // FreeBSD has an int64
}

// chosen is the word in brackets of a file of the system.
func chosen(path string) string {
	p, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(p), "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

func roomOf(dir string) (size, free uint64, err error) {
	var st unix.Statfs_t
	if err := eintr.Repeat(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, 0, err
	}
	unit := uint64(st.Bsize)
	return st.Blocks * unit, uint64(st.Bavail) * unit, nil //nolint:unconvert // FreeBSD has an int64
}

func limitText(n uint64) string {
	if n > math.MaxInt64 {
		return "unlimited"
	}
	return bytesText(n)
}

// pinned is what a thread registers with a network card.
const pinned = rdma.DefaultArena

func (e *exam) checkLimits(h *hostFacts) {
	if h.Memlock < pinned {
		e.bad(healthWarn, "ulimit -l unlimited; of a systemd unit: LimitMEMLOCK=infinity", "memlock", "",
			"%s may be pinned, and a thread on an RDMA network card registers %s; sockets and shared "+
				"memory pin nothing", limitText(h.Memlock), bytesText(pinned))
		return
	}
	e.ok("memlock", "", "%s may be pinned", limitText(h.Memlock))
}

// filesOfProcess are files that a process has beside its connections to blades.
const filesOfProcess = 64

// checkFilesLimit: a process has a connection for each worker and blade. There are up to 4 workers
// for each processor.
func (e *exam) checkFilesLimit(h *hostFacts, c *examined) {
	least, usual := uint64(filesOfProcess+c.blades), uint64(filesOfProcess+4*h.CPUs*c.blades)
	advice := fmt.Sprintf("ulimit -n %d; of a systemd unit: LimitNOFILE=%d", usual, usual)
	switch {
	case h.OpenFiles < least:
		e.bad(healthFail, advice, "open files", "",
			"%d at a time are possible, and a process of one worker needs %d with %d blades",
			h.OpenFiles, least, c.blades)
	case h.OpenFiles < usual:
		e.bad(healthWarn, advice, "open files", "",
			"%d at a time are possible, and a process of %d workers needs %d with %d blades",
			h.OpenFiles, 4*h.CPUs, usual, c.blades)
	case h.OpenFiles > math.MaxInt64:
		e.ok("open files", "", "any number is possible")
	default:
		e.ok("open files", "", "%d at a time are possible", h.OpenFiles)
	}
}

func (e *exam) checkPages(h *hostFacts) {
	reserved := ""
	if h.Reserved > 0 {
		reserved = fmt.Sprintf("; explicit ones that are free: %d", h.Reserved)
	}
	switch h.Pages {
	case "never":
		e.bad(healthWarn, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
			"huge pages", "", "transparent ones are switched off, so blades in memory of this host are slower%s",
			reserved)
	case "":
		e.ok("huge pages", "", "this system does not tell")
	default:
		e.ok("huge pages", "", "transparent ones: %s%s", h.Pages, reserved)
	}
}

// usualBlades are as many as a database has by default.
const usualBlades = 2

func (e *exam) checkClockKept(h *hostFacts) {
	switch kept, known := h.Clock(); {
	case !known:
		e.ok("clock", "", "this system does not tell whether it is kept right")
	case !kept:
		e.bad(healthWarn, "timedatectl set-ntp true; then timedatectl timesync-status, or chronyc tracking",
			"clock", "", "nothing keeps it right; certificates and logs are read by it")
	default:
		e.ok("clock", "", "it is kept right")
	}
}

// sharedRoom is how many bytes a server of shared memory needs in its directory, for the lines of
// processes and keys. The blades' memory is not there.
const sharedRoom = 1 << 20

// checkDirectory checks the directory of blades in shared memory.
func (e *exam) checkDirectory(h *hostFacts, dir string) {
	switch size, free, err := h.Room(dir); {
	case err != nil:
		state, advice := healthFail, "start the servers on this host: txnode serve --shm "+dir
		if e.address == "" { // blades of sockets need no such directory
			state, advice = healthWarn, "mount -t tmpfs none "+dir
		}
		e.bad(state, advice, "directory", dir, "%s", oneLine(err))
	case free < sharedRoom:
		e.bad(healthFail, "remove files there, or mount -o remount,size=64M "+dir+"; of a container: --shm-size=64m",
			"directory", dir,
			"%s are free of %s, and a server and its processes need %s", bytesText(free), bytesText(size),
			bytesText(sharedRoom))
	default:
		e.ok("directory", dir, "%s are free of %s", bytesText(free), bytesText(size))
	}
	if h.SharedPages == "never" {
		e.bad(healthWarn, "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
			"huge pages", "", "those of shared memory are switched off, so blades are slower")
	}
}

// soon is how long before its end a certificate is warned of.
const soon = 14 * 24 * time.Hour

const day = "2006-01-02 15:04:05Z07:00"

// checkFiles checks the TLS files; false: there is no use in connecting.
func (e *exam) checkFiles() bool {
	o := &e.access.TLS
	if !o.given() {
		return true
	}
	files, err := o.files("")
	if err != nil {
		e.bad(healthFail, "issue a certificate for both uses, as docs/daemons.md has it; what there is: openssl x509 "+
			"-noout -subject -dates -in "+o.Cert, "TLS files", "", "%s", oneLine(err))
		return false
	}
	c := files.Certificate()
	if !authenticates(c, x509.ExtKeyUsageClientAuth) {
		e.bad(healthFail, "issue it with extendedKeyUsage=serverAuth,clientAuth",
			"TLS files", "", "--tls-cert %s: the certificate is not for clients", o.Cert)
		return false
	}
	if st, err := os.Stat(o.Key); err == nil && st.Mode().Perm()&0o007 != 0 {
		e.bad(healthWarn, "chmod 600 "+o.Key, "TLS files", "",
			"--tls-key %s: all users of this host can read the private key", o.Key)
	}
	e.expiry("TLS files", "", c)
	return true
}

func authenticates(c *x509.Certificate, use x509.ExtKeyUsage) bool {
	return len(c.ExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, use) ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// expiry checks when a certificate ends that is good today.
func (e *exam) expiry(check, subject string, c *x509.Certificate) {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	of := "no name"
	if names != nil {
		of = strings.Join(names, ", ")
	}
	if time.Until(c.NotAfter) < soon {
		e.bad(healthWarn, "issue a new certificate, and replace the files before that",
			check, subject, "the certificate of %s ends on %s", shown(of), c.NotAfter.Format(day))
		return
	}
	e.ok(check, subject, "the certificate of %s is good until %s", shown(of), c.NotAfter.Format(day))
}

// remembering are options of connections to one server, which note its certificate.
func (e *exam) remembering(seen **x509.Certificate) cluster.Options {
	o := e.options
	current := o.TCP.Credentials
	if current == nil {
		return o
	}
	o.TCP.Credentials = func() tcp.Credentials {
		c := current()
		if c.TLS == nil {
			return c
		}
		c.TLS = c.TLS.Clone()
		c.TLS.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) > 0 {
				*seen = s.PeerCertificates[0]
			}
			return nil
		}
		return c
	}
	return o
}

// untrusted is in the error of a connection to the socket of a user that is not trusted.
var untrusted = regexp.MustCompile(`user (\d+) serves`)

// remedyOf is what to do about an error of a connection.
func remedyOf(err error, address string) string {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	if strings.HasPrefix(address, "etcd://") && errors.Is(err, memory.ErrAway) {
		return startOf(address)
	}
	text := err.Error()
	has := func(s string) bool { return strings.Contains(text, s) }
	if m := untrusted.FindStringSubmatch(text); m != nil {
		return "run the command as user " + m[1] +
			", or, if daemons of that user are to be trusted, with --server-user " + m[1]
	}
	switch {
	case errors.As(err, &name):
		return "connect to a name that the certificate has, or give it with --tls-name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "on that host, compare its clock with this one (date), and issue a new certificate: docs/daemons.md"
	case errors.As(err, &unknown):
		return "give in --tls-ca the authority that has issued the server's certificate"
	case has("remote error: tls"):
		return "give in --tls-cert a certificate of an authority that the server trusts: its --tls-ca"
	case has("another version"):
		return "install the same release of txnode on both sides: txnode version"
	case has("secret"):
		return "give in --secret-file the file that the server has"
	case has("this user may not connect"), has("only the user that runs"):
		return "run the command as the user of the daemon, or as root"
	case has("as many connections"):
		return "give the daemon a larger --connections, or end processes"
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, os.ErrNotExist), has("no such file"),
		has("connection refused"):
		return startOf(address)
	case has("no such host"):
		return "correct the name, or have the host know it: getent hosts " + hostOf(address)
	case errors.Is(err, os.ErrDeadlineExceeded), has("deadline exceeded"), has("timeout"):
		return "see whether the host is up, and whether a firewall lets the port through: nc -vz " +
			strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(address, "tcp:"), "//"), ":", " ")
	case has("EOF"), has("wants TLS"), has("TLS: ") && errors.Is(err, unix.ECONNRESET):
		return "give --tls-cert, --tls-key and --tls-ca if the server uses TLS, and leave them out if it does not"
	case has("first record does not look like a TLS handshake"):
		return "leave --tls-cert, --tls-key and --tls-ca out: the server uses no TLS"
	case has("other host"):
		return "give --tls-cert, --tls-key and --tls-ca: other hosts are connected to with TLS only"
	}
	return "see the log of the daemon at " + address
}

func hostOf(address string) string {
	address = strings.TrimPrefix(strings.TrimPrefix(address, "tcp:"), "//")
	if i := strings.LastIndex(address, ":"); i >= 0 {
		return address[:i]
	}
	return address
}

// startOf is the command that starts the daemon of a catalog at an address.
func startOf(address string) string {
	if members, ok := strings.CutPrefix(address, "etcd://"); ok {
		members, _, _ = strings.Cut(members, "/")
		return "start the etcd, or correct its addresses: etcdctl --endpoints=" + members + " endpoint health"
	}
	return "start it with the flags that it had, such as: txnode serve --listen " + address +
		" --catalog DIRECTORY --memory 0"
}

// startServer is the command that starts a server of blades.
func startServer(s *cluster.Server) string {
	how := "--listen " + string(s.Address)
	if shm, ok := strings.CutPrefix(string(s.Address), "shm:"); ok {
		i := strings.LastIndex(shm, "/")
		how = fmt.Sprintf("--shm %s --name %s", strings.TrimPrefix(shm[:max(i, 0)], "//"), shm[i+1:])
	}
	for _, size := range s.Blades {
		how += " --blade " + exactBytes(size)
	}
	return "start it, and with its --dir if it had one: txnode serve " + how
}
