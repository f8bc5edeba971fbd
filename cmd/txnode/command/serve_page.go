package command

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
)

// page answers with the status page. /?every=N has the browser load it again every N seconds.
func (h *httpServer) page(w http.ResponseWriter, r *http.Request) {
	s := h.watch.look(time.Now())
	p := newStatusPage(&s, h.watch.before(), h.d.faults())
	p.Segments.All = r.URL.Query().Get("segments") == "all"
	if n, err := strconv.Atoi(r.URL.Query().Get("every")); err == nil && n >= 1 && n <= 3600 {
		p.Every = n
	}
	var b bytes.Buffer
	if err := p.write(&b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, "text/html; charset=utf-8", http.StatusOK, b.Bytes())
}

// statusPage is what is on the page, in words.
type statusPage struct {
	*look
	Every    int // seconds; 0: the browser does not load it again
	Faults   []string
	Up       string // how long
	Over     string // what rates are over; "": there are none yet
	Here     []hereRow
	Plot     template.HTML
	Top      string   // what the highest bar of Plot is
	Verbs    []string // names
	Nodes    []databaseBlade
	Copies   layout.Redundancy
	Tables   []string
	Workers  int
	Dead     int // workers that are being recovered
	Rights   []string
	Segments segmentRows
}

// hereRow is a blade of this daemon.
type hereRow struct {
	Blade           int
	ID, State       string
	Size, Asked     string
	Share           float64 // percent of the size
	Pairs           int
	Rates           []string // by verb
	Read, Written   string
	Failed, Changes uint64
}

// databaseBlade is a blade of the database that the catalog is of.
type databaseBlade struct {
	Blade              int
	Server, Size, Used string
	Share              float64
	State              string
	Copies             int // full ones
}

// segmentRows are the segments: all, or those that lack copies and the first ones.
type segmentRows struct {
	All   bool
	Rows  []segmentRow
	Total int
}

// Shown are those of the page; the rest is behind a link.
func (s *segmentRows) Shown() []segmentRow {
	if s.All {
		return s.Rows
	}
	return s.Rows[:min(len(s.Rows), shownSegments)]
}

// shownSegments is how many segments a page shows at first.
const shownSegments = 100

type segmentRow struct {
	ID      int
	Kind    string
	Copies  []string // "0 primary", "1", "2 being built"
	Missing int
	Lost    bool
	Owner   string
}

func newStatusPage(s *look, before []look, faults []string) *statusPage {
	p := &statusPage{look: s, Faults: faults, Up: s.At.Sub(s.Began).Round(time.Second).String()}
	for op := range rdma.NumOps {
		p.Verbs = append(p.Verbs, op.String())
	}
	p.here(before)
	if s.Database != nil {
		p.database()
	}
	return p
}

// here fills in the blades of this daemon. Rates are over the last ten seconds, or since the daemon
// began if that is less.
func (p *statusPage) here(before []look) {
	var then *look
	seconds := 0.0
	if len(before) > 0 {
		then = &before[max(0, len(before)-rateOver)]
		if seconds = p.At.Sub(then.At).Seconds(); seconds < 0.1 || len(then.Blades) != len(p.Blades) {
			then = nil
		} else {
			p.Over = fmt.Sprintf("%.0f s", max(seconds, 1))
		}
	}
	for i := range p.Blades {
		b := &p.Blades[i]
		r := hereRow{
			Blade: i, ID: b.ID, State: "up", Size: bytesText(b.Region.Size), Asked: bytesText(b.Region.Provisioned),
			Share: share(b.Region.Provisioned, b.Region.Size),
			Pairs: b.Data.Connections, Failed: b.Data.Failed, Changes: b.Region.Grants + b.Region.Revokes,
		}
		if b.Region.Err != nil {
			r.State = oneLine(b.Region.Err)
		}
		if then != nil {
			was := &then.Blades[i].Data
			rate := func(now, was uint64) float64 { return float64(now-was) / seconds }
			for op := range b.Data.Verbs {
				r.Rates = append(r.Rates, rateText(rate(b.Data.Verbs[op], was.Verbs[op])))
			}
			r.Read = bytesText(uint64(rate(b.Data.BytesRead, was.BytesRead)))
			r.Written = bytesText(uint64(rate(b.Data.BytesWritten, was.BytesWritten)))
		}
		p.Here = append(p.Here, r)
	}
	if p.Counted {
		p.Plot, p.Top = plotVerbs(append(slices.Clone(before), *p.look))
	}
}

// verbs are all that were executed.
func (s *look) verbs() (n uint64) {
	for i := range s.Blades {
		for _, v := range s.Blades[i].Data.Verbs {
			n += v
		}
	}
	return n
}

// plotVerbs draws the verbs a second of the last minute, the newest at the right end. It is empty
// for fewer than two looks.
func plotVerbs(all []look) (plot template.HTML, highest string) {
	const width, height = 640, 96
	if len(all) < 2 {
		return "", ""
	}
	var rates []float64
	top := 1.0
	for i := 1; i < len(all); i++ {
		if t := all[i].At.Sub(all[i-1].At).Seconds(); t >= 0.1 {
			rates = append(rates, float64(all[i].verbs()-all[i-1].verbs())/t)
			top = max(top, rates[len(rates)-1])
		}
	}
	var b strings.Builder
	highest = rateText(top)
	fmt.Fprintf(&b,
		`<svg viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="verbs a second, at most %s">`,
		width, height, width, height, highest)
	const bar = width / (watchFor + 2)
	for i, r := range rates {
		h := r / top * height
		fmt.Fprintf(&b, `<rect class="bar" x="%d" y="%.1f" width="%d" height="%.1f"/>`,
			width-(len(rates)-i)*bar, height-h, bar-2, h)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()), highest // numbers only
}

// database fills in what the catalog says.
func (p *statusPage) database() {
	db := p.Database
	p.Copies = db.Redundancy()
	for _, t := range liveTables(db) {
		kind := "hash"
		if t.Ordered() {
			kind = "ordered"
		}
		p.Tables = append(p.Tables, t.Name+" ("+kind+")")
	}
	slices.Sort(p.Tables)
	for i := range db.Coordinators {
		p.Workers++
		if db.Coordinators[i].Recovering {
			p.Dead++
		}
	}
	for _, m := range db.Rights {
		p.Rights = append(p.Rights, fmt.Sprintf("process %d %s", m.Process, rightText(db, m.Of)))
	}
	copies := make([]int, len(db.Blades))
	for id := 1; id < len(db.Segments); id++ {
		g := &db.Segments[id]
		if g.Vacant {
			continue
		}
		pl := &g.Placement
		row := segmentRow{ID: id, Kind: g.Kind.String()}
		switch g.Kind {
		case layout.KindBlocks:
			row.Kind = fmt.Sprintf("blocks of %d bytes", g.Class.Size())
		case layout.KindLog:
			row.Kind = "log, row " + strconv.Itoa(int(g.Row))
		}
		if g.Owner != 0 {
			row.Owner = "process " + strconv.Itoa(int(g.Owner))
		}
		for i, r := range pl.Replicas[:pl.Written()] {
			text := strconv.Itoa(int(r.Blade))
			switch {
			case i >= int(pl.N):
				text += " being built"
			case i == 0 && g.Kind != layout.KindLog:
				text += " primary"
			}
			if i < int(pl.N) {
				copies[r.Blade]++
			}
			row.Copies = append(row.Copies, text)
		}
		if g.Kind != layout.KindLog {
			row.Lost = pl.N == 0
			row.Missing = max(db.Backups+1-int(pl.N), 0)
		}
		p.Segments.Rows = append(p.Segments.Rows, row)
	}
	p.Segments.Total = len(p.Segments.Rows)
	slices.SortStableFunc(p.Segments.Rows, func(a, b segmentRow) int { return b.Missing - a.Missing })
	var servers []string // of each blade
	for _, s := range p.Servers {
		for range s.Blades {
			servers = append(servers, string(s.Address))
		}
	}
	for i := range db.Blades {
		used := uint64(0)
		for _, part := range db.Provisioned(rdma.BladeID(i)) {
			used += part[1]
		}
		row := databaseBlade{
			Blade: i, Size: bytesText(db.Blades[i].Size), Used: bytesText(used),
			Share: share(used, db.Blades[i].Size), State: "up", Copies: copies[i],
		}
		if i < len(servers) {
			row.Server = servers[i]
		}
		if db.Blades[i].State == layout.BladeDown {
			row.State, row.Used, row.Share = "down", "", 0
		}
		if db.Blades[i].Leaving {
			row.State = map[string]string{"up": "leaving", "down": "vacant"}[row.State]
		}
		p.Nodes = append(p.Nodes, row)
	}
}

// Built is how far the copies are that are being built; "": no process tells of any.
func (p *statusPage) Built() string {
	if b := buildOf(p.Build); b != nil {
		return b.String()
	}
	return ""
}

// rightText says what one process at a time does.
func rightText(db *layout.Layout, of uint32) string {
	switch of {
	case layout.RightAlone:
		return "is alone with the database"
	case layout.RightCopies:
		return "builds copies"
	case layout.RightSweep:
		return "sweeps up what dead workers have left"
	case layout.RightDrop:
		return "drops tables"
	case layout.RightLoad:
		return "loads tables, and others wait for it"
	}
	if i := int(of) - 1; i >= 0 && i < len(db.Tables) {
		return "mends the index of " + db.Tables[i].Name
	}
	return "mends table " + strconv.Itoa(int(of))
}

// LeaseText says how a process's lease is.
func (x processLook) LeaseText() string {
	since, term := x.Since.Round(time.Second), x.Term.Round(100*time.Millisecond)
	switch {
	case x.Closed:
		return "has closed the database; its segments wait for another process"
	case !x.Live:
		return fmt.Sprintf("has ended: not renewed for %v, and it is of %v", since, term)
	case x.Term == 0:
		return "does not end"
	}
	return fmt.Sprintf("of %v, renewed %v ago", term, since)
}

func share(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return min(float64(n)/float64(of)*100, 100)
}

// bytesText is a number of bytes for people: three digits and a unit.
func bytesText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v := float64(n)
	i := 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return strconv.FormatFloat(v, 'f', digits(v, i), 64) + " " + units[i]
}

// rateText is a number for people.
func rateText(v float64) string {
	units := []string{"", " k", " M", " G"}
	i := 0
	for ; v >= 1000 && i < len(units)-1; i++ {
		v /= 1000
	}
	return strconv.FormatFloat(v, 'f', digits(v, i), 64) + units[i]
}

// digits is how many behind the point make three; whole numbers have none.
func digits(v float64, unit int) int {
	switch {
	case unit == 0 || v == float64(int(v)) || v >= 100:
		return 0
	case v >= 10:
		return 1
	}
	return 2
}

func (p *statusPage) write(w io.Writer) error { return statusTemplate.Execute(w, p) }

var statusTemplate = template.Must(template.New("status").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
{{if .Every}}<meta http-equiv="refresh" content="{{.Every}}">{{end}}<title>txnode: {{if .Faults}}NOT well{{else}}well{{end}}</title>
<style>
:root{--ink:#222;--paper:#fff;--faint:#777;--rule:#ddd;--bar:#2471a3;--bad:#c0392b}
@media (prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#16181c;--faint:#999;--rule:#3a3d44;--bar:#5dade2;--bad:#ff6f60}}
body{font:14px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:var(--ink);background:var(--paper)}
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums;font-size:.9em}
td,th{padding:.15em .6em;text-align:right;border-bottom:1px solid var(--rule)} .t{text-align:left}
a{color:inherit} .faint{color:var(--faint)} .bad{color:var(--bad);font-weight:bold} svg{display:block} .bar{fill:var(--bar)}
</style></head><body>
<h1>txnode serve</h1>
{{range .Faults}}<p class="bad">{{.}}</p>
{{else}}<p>All that this daemon serves can be used.</p>
{{end}}<p>Up for {{.Up}}. Connections: {{.Net.Connections}} of {{.Limit}}{{if .Sockets}}; accepted {{.Net.Accepted}}, refused {{.Net.Refused}}, broken {{.Net.Failed}}{{end}}.
<span class="faint">As of {{.At.UTC.Format "2006-01-02 15:04:05"}} UTC. {{if .Every}}<a href="/">Stop loading</a>{{else}}<a href="/?every=5">Load every 5 s</a>{{end}}. <a href="/metrics">Metrics</a>.</span></p>
{{if .Here}}<h2>Blades of this daemon</h2>
<table><tr><th>blade<th class="t">state<th>size<th>provisioned<th class="t">share<th>queue pairs<th>failed verbs<th>key changes<th class="t">identity</tr>
{{range .Here}}<tr><td>{{.Blade}}<td class="t{{if ne .State "up"}} bad{{end}}">{{.State}}<td>{{.Size}}<td>{{.Asked}}<td><svg width="100" height="12"><rect class="bar" width="{{printf "%.1f" .Share}}" height="12"/></svg><td>{{.Pairs}}<td>{{.Failed}}<td>{{.Changes}}<td class="t">{{.ID}}</tr>
{{end}}</table>
{{if .Counted}}<h2>Rates</h2>
{{if .Over}}<p>A second, over the last {{.Over}}.</p>
<table><tr><th>blade{{range .Verbs}}<th>{{.}}{{end}}<th>read<th>written</tr>
{{range .Here}}<tr><td>{{.Blade}}{{range .Rates}}<td>{{.}}{{end}}<td>{{.Read}}<td>{{.Written}}</tr>
{{end}}</table>
{{else}}<p>The daemon has just begun: there are none yet.</p>
{{end}}{{if .Plot}}<p>All verbs a second, over the last minute, at most {{.Top}}:</p>
{{.Plot}}{{end}}{{else}}<p class="faint">Clients execute the verbs on blades that are mapped, so the daemon has no rates of these.</p>
{{end}}{{end}}{{if .Catalog}}<h2>The database of {{.Catalog}}</h2>
{{if .Err}}<p class="bad">{{.Err}}</p>
{{else if not .Database}}<p>There is none yet: txnode cluster init makes it.</p>
{{else}}<p>Epoch {{.Database.Epoch}}. Copies of each segment: 1 and {{.Database.Backups}} backups. Segments: {{.Copies.Segments}}{{if .Copies.Lost}}, <b class="bad">lost: {{.Copies.Lost}}</b>{{end}}{{if .Copies.Unavailable}}, <b class="bad">unavailable: {{.Copies.Unavailable}}</b>{{end}}.
Copies missing: {{if .Copies.Missing}}<b class="bad">{{.Copies.Missing}}</b>{{else}}0{{end}}, being built: {{.Copies.Building}}{{with .Built}} ({{.}}){{end}}. Workers: {{.Workers}}{{if .Dead}}, of which {{.Dead}} are being recovered{{end}}.</p>
<table><tr><th>blade<th class="t">server<th class="t">state<th>size<th>handed out<th class="t">share<th>copies</tr>
{{range .Nodes}}<tr><td>{{.Blade}}<td class="t">{{.Server}}<td class="t{{if ne .State "up"}} bad{{end}}">{{.State}}<td>{{.Size}}<td>{{.Used}}<td><svg width="100" height="12"><rect class="bar" width="{{printf "%.1f" .Share}}" height="12"/></svg><td>{{.Copies}}</tr>
{{end}}</table>
<h3>Processes</h3>
{{if .Processes}}<table><tr><th>process<th class="t">lease</tr>
{{range .Processes}}<tr><td>{{.ID}}<td class="t{{if not .Live}} bad{{end}}">{{.LeaseText}}</tr>
{{end}}</table>
{{else}}<p>No process has it open.</p>
{{end}}{{range .Rights}}<p>At the moment {{.}}.</p>
{{end}}<h3>Tables</h3>
<p>{{range $i, $t := .Tables}}{{if $i}}, {{end}}{{$t}}{{else}}There are none.{{end}}</p>
<h3>Segments</h3>
<table><tr><th>segment<th class="t">of<th class="t">copies on blades<th>missing<th class="t">owner</tr>
{{range .Segments.Shown}}<tr><td>{{.ID}}<td class="t">{{.Kind}}<td class="t">{{range $i, $c := .Copies}}{{if $i}}, {{end}}{{$c}}{{end}}{{if .Lost}}<b class="bad">lost</b>{{end}}<td>{{if .Missing}}<b class="bad">{{.Missing}}</b>{{else}}0{{end}}<td class="t">{{.Owner}}</tr>
{{end}}</table>
{{if gt .Segments.Total (len .Segments.Shown)}}<p><a href="/?segments=all">All {{.Segments.Total}} segments</a></p>
{{end}}{{end}}{{end}}</body></html>
`))
