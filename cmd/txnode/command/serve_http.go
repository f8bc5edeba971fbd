package command

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/rdma/tcp"
)

// httpServer tells over HTTP how the daemon is: /metrics for Prometheus, /healthz, and / for
// people. All of it is read-only.
type httpServer struct {
	d      *daemon
	watch  *watch
	server *http.Server
	at     string // URL of the page
}

// listenHTTP listens on an address, on loopback or, with TLS, on any: then clients must have a
// certificate, as those of blades must.
func (d *daemon) listenHTTP(address string) (*httpServer, net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, failf("--http %s: %w", address, err)
	}
	l = &boundedListener{Listener: l, most: maxHTTP}
	h := &httpServer{d: d, watch: newWatch(d), at: "http://" + l.Addr().String() + "/"}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		if !d.o.TLS.given() {
			_ = l.Close() // the other error says more
			return nil, nil, failf("--http %s: other hosts reach %v: give TLS files, or an address of "+
				"127.0.0.1 or [::1]", address, l.Addr())
		}
		h.at = "https://" + l.Addr().String() + "/"
		l = tls.NewListener(l,
			&tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
				error) {
				conf := d.files.Server().TLS.Clone() // of the moment
				conf.NextProtos = []string{"http/1.1"}
				return conf, nil
			}})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.metrics)
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /{$}", h.page)
	h.server = &http.Server{
		Handler: h.forHost(mux, address), ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(reportWriter{d}, "", 0),
	}
	return h, l, nil
}

// maxHTTP is how many connections there are at a time: people and Prometheus need few.
const maxHTTP = 128

// boundedListener closes connections beyond a number.
type boundedListener struct {
	net.Listener

	most int64
	open atomic.Int64
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &boundedConn{Conn: c, l: l}, nil
		}
		l.open.Add(-1)
		_ = c.Close() // others have to end first
	}
}

type boundedConn struct {
	net.Conn

	l    *boundedListener
	once sync.Once
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.once.Do(func() { c.l.open.Add(-1) })
	return c.Conn.Close()
}

// forHost answers requests for this daemon: a page of another site can have a browser of this host
// connect to loopback under the name of that site, and would read what is answered. A number of an
// address is no site's name.
func (h *httpServer) forHost(next http.Handler, address string) http.Handler {
	own, _, _ := net.SplitHostPort(address) // Validate has
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		ours := err == nil || strings.EqualFold(host, "localhost") || strings.EqualFold(host, own)
		if c := h.d.files.Certificate(); !ours && (c == nil || c.VerifyHostname(host) != nil) {
			http.Error(w,
				"this daemon is asked for by an address, localhost, the host of --http, or a name of its certificate",
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// reportWriter has the lines of net/http where the daemon's are.
type reportWriter struct{ d *daemon }

func (w reportWriter) Write(p []byte) (int, error) {
	w.d.report("http", fmt.Errorf("%s", bytes.TrimSpace(p)))
	return len(p), nil
}

// answer sends a page that no one keeps, and that loads nothing.
func answer(w http.ResponseWriter, kind string, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}

// health is 200 while everything that the daemon serves can be used.
func (h *httpServer) health(w http.ResponseWriter, _ *http.Request) {
	faults := h.d.faults()
	if len(faults) == 0 {
		answer(w, "text/plain; charset=utf-8", http.StatusOK, []byte("ok\n"))
		return
	}
	answer(w, "text/plain; charset=utf-8", http.StatusServiceUnavailable, []byte(strings.Join(faults, "\n")+"\n"))
}

// faults are what the daemon cannot serve as it should, a line each.
func (d *daemon) faults() (faults []string) {
	if d.ending.Load() {
		faults = append(faults, "the daemon ends")
	}
	for _, r := range d.regionStats() {
		if r.Err != nil {
			faults = append(faults, oneLine(r.Err))
		}
	}
	faults = append(faults, fullDisks(d.disks())...)
	if d.catalog != nil {
		if _, _, err := d.catalog.Load(); err != nil {
			faults = append(faults, oneLine(err))
		}
	}
	return faults
}

func (h *httpServer) metrics(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	s := h.watch.look(time.Now())
	writeMetrics(&b, &s)
	answer(w, "text/plain; version=0.0.4; charset=utf-8", http.StatusOK, b.Bytes())
}

// metric writes a metric in Prometheus' text format.
type metric struct{ w io.Writer }

func (m metric) head(name, kind, help string) {
	_, _ = fmt.Fprintf(m.w, "# HELP txnode_%s %s\n# TYPE txnode_%s %s\n", name, help, name, kind) // into memory
}

// value writes a value; labels are names and values in turn, which need no quoting.
func (m metric) value(name string, v float64, labels ...string) {
	var set []string
	for i := 0; i < len(labels); i += 2 {
		set = append(set, labels[i]+`="`+labels[i+1]+`"`)
	}
	in := ""
	if set != nil {
		in = "{" + strings.Join(set, ",") + "}"
	}
	_, _ = fmt.Fprintf(m.w, "txnode_%s%s %s\n", name, in, strconv.FormatFloat(v, 'f', -1, 64))
}

func (m metric) one(name, kind, help string, v float64) {
	m.head(name, kind, help)
	m.value(name, v)
}

// writeMetrics writes what a look has seen. The names begin with served_ and catalog_: those of
// programs (txn/prom) are others.
func writeMetrics(w io.Writer, s *look) {
	m := metric{w}
	m.one("served_start_time_seconds", "gauge", "When the daemon began, in seconds since 1970.",
		float64(s.Began.UnixMilli())/1000)
	m.one("served_connections", "gauge", "Connections that there are.", float64(s.Net.Connections))
	m.one("served_connections_limit", "gauge", "Connections that there can be.", float64(s.Limit))
	if s.Sockets {
		m.one("served_connections_total", "counter", "Connections that were accepted.", float64(s.Net.Accepted))
		m.one("served_connections_refused_total", "counter", "Connections that were refused.", float64(s.Net.Refused))
		m.one("served_connections_failed_total", "counter", "Connections that were accepted and broke.",
			float64(s.Net.Failed))
		m.one("served_catalog_requests_total", "counter", "Requests to the catalog.", float64(s.Net.Calls))
	}
	blades := func(name, kind, help string, v func(i int) float64) {
		if len(s.Blades) == 0 {
			return
		}
		m.head(name, kind, help)
		for i := range s.Blades {
			m.value(name, v(i), "blade", strconv.Itoa(i))
		}
	}
	blades("served_blade_up", "gauge", "Whether the blade can be used; 0 after its file could not be read or written.",
		func(i int) float64 {
			if s.Blades[i].Region.Err != nil {
				return 0
			}
			return 1
		})
	blades("served_blade_size_bytes", "gauge", "Size of the blade.", func(i int) float64 {
		return float64(s.Blades[i].Region.Size)
	})
	blades("served_blade_provisioned_bytes",
		"gauge", "Bytes of the blade that clients have asked for since the daemon began.", func(i int) float64 {
			return float64(s.Blades[i].Region.Provisioned)
		})
	if len(s.Blades) > 0 {
		m.head("served_blade_key_changes_total", "counter", "Changes of the blade's access keys.")
		for i := range s.Blades {
			m.value("served_blade_key_changes_total", float64(s.Blades[i].Region.Grants), "blade",
				strconv.Itoa(i), "change", "grant")
			m.value("served_blade_key_changes_total", float64(s.Blades[i].Region.Revokes), "blade",
				strconv.Itoa(i), "change", "revoke")
		}
	}
	if len(s.Disks) > 0 {
		m.head("served_disk_free_bytes", "gauge", "Bytes that are free on the disk of blades, or of the catalog.")
		for _, k := range s.Disks {
			m.value("served_disk_free_bytes", float64(k.Free), "of", k.Of)
		}
		m.head("served_disk_size_bytes", "gauge", "Size of that disk.")
		for _, k := range s.Disks {
			m.value("served_disk_size_bytes", float64(k.Size), "of", k.Of)
		}
	}
	if s.Counted {
		m.head("served_blade_verbs_total", "counter", "Verbs that the daemon has executed or refused.")
		for i := range s.Blades {
			for op, n := range s.Blades[i].Data.Verbs {
				m.value("served_blade_verbs_total", float64(n), "blade", strconv.Itoa(i), "verb", rdma.Op(op).String())
			}
		}
		data := func(name, kind, help string, v func(b *tcp.BladeStats) float64) {
			blades(name, kind, help, func(i int) float64 { return v(&s.Blades[i].Data) })
		}
		data("served_blade_queue_pairs", "gauge", "Queue pairs that there are.", func(b *tcp.BladeStats) float64 {
			return float64(b.Connections)
		})
		data("served_blade_verbs_failed_total", "counter", "Verbs that have failed, those behind a failure included.",
			func(b *tcp.BladeStats) float64 { return float64(b.Failed) })
		data("served_blade_read_bytes_total", "counter", "Bytes that READs have asked for.",
			func(b *tcp.BladeStats) float64 { return float64(b.BytesRead) })
		data("served_blade_written_bytes_total", "counter", "Bytes that WRITEs have sent.",
			func(b *tcp.BladeStats) float64 { return float64(b.BytesWritten) })
	}
	if s.Catalog != "" {
		answers := 1.0
		if s.Err != nil {
			answers = 0
		}
		m.one("catalog_up", "gauge", "Whether the catalog of the database can be read.", answers)
	}
	if s.Database != nil {
		writeCatalogMetrics(m, s)
	}
}

func writeCatalogMetrics(m metric, s *look) {
	db, r := s.Database, s.Database.Redundancy()
	m.one("catalog_epoch", "gauge", "Epoch of the database.", float64(db.Epoch))
	live := 0
	for _, p := range s.Processes {
		if p.Live {
			live++
		}
	}
	m.one("catalog_processes", "gauge", "Processes that have the database open, and whose leases have not ended.",
		float64(live))
	m.one("catalog_workers", "gauge", "Workers that are registered.", float64(len(db.Coordinators)))
	m.one("catalog_tables", "gauge", "Tables.", float64(len(liveTables(db))))
	m.one("catalog_segments", "gauge", "Segments of records and indexes.", float64(r.Segments))
	m.one("catalog_segments_lost", "gauge", "Segments of which every copy is lost.", float64(r.Lost))
	m.one("catalog_segments_unavailable",
		"gauge", "Segments of which no member hears a blade with a copy, and that are not given up.",
		float64(r.Unavailable))
	m.one("catalog_segment_copies_missing", "gauge", "Copies of segments that should exist and do not.",
		float64(r.Missing))
	m.one("catalog_segment_copies_building", "gauge", "Copies of segments that are being built.", float64(r.Building))
	m.one("catalog_copied_bytes", "gauge",
		"Bytes that were looked at for the copies that are being built, as the process tells this daemon.",
		float64(s.Build.Done))
	m.one("catalog_copied_target_bytes",
		"gauge", "Bytes that are to be looked at for these copies; 0: no process tells of any.", float64(s.Build.Total))
	m.head("catalog_blade_free_bytes",
		"gauge", "Bytes of a blade in which copies can be placed; 0 while it is down or leaves.")
	for b := range db.Blades {
		free := 0
		if db.Stays(b) {
			free = db.Vacancies(rdma.BladeID(b))
		}
		m.value("catalog_blade_free_bytes", float64(free)*float64(db.SegmentSize), "blade", strconv.Itoa(b))
	}
	m.one("catalog_blades_down", "gauge", "Blades of the database that are declared dead.", float64(len(r.Down)))
}

// liveTables are the tables that are whole, as cluster status counts them.
func liveTables(l *layout.Layout) (out []*layout.Table) {
	for i := range l.Tables {
		if t := &l.Tables[i]; t.State == layout.TableLive && t.Root != 0 {
			out = append(out, t)
		}
	}
	return out
}

// close ends the server: what is being answered has a second.
func (h *httpServer) close() error {
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if h.server.Shutdown(grace) != nil {
		return h.server.Close()
	}
	return nil
}

// serve answers until close; until ctx ends the watch looks meanwhile.
func (h *httpServer) serve(ctx context.Context, l net.Listener) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go h.watch.run(watching)
	go h.watch.follow(watching)
	if err := h.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return failf("--http: %w", err)
	}
	return nil
}
