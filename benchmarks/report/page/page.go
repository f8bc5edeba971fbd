package page

import (
	"fmt"
	"html/template"
	"io"
	"strconv"

	"txnode/rdma/sim"
)

// Page is what is on a page, from top to bottom.
type Page struct {
	Title     string
	Text      []string // paragraphs; the legend comes behind the first
	Legend    []string // names of the lines, by their colors
	Figures   []Figure
	Tables    []Table
	Constants []Constant
}

// Figure is a plot of lines over one axis, or of bars side by side.
type Figure struct {
	Title string
	Below string // what the axis is
	// Even sets the values of X that there are at equal distances, each with its label,
	// and not in proportion.
	Even bool
	// Log makes the axis of X logarithmic, if no value is 0; LogY that of Y, whose
	// values are more than 0.
	Log, LogY bool

	Lines []Line
	Bars  []Bar // instead of lines
}

// Bar is a bar of a figure.
type Bar struct {
	Color int // the legend's, as of a Line
	Name  string
	Value float64 // not negative
	Text  string  // the value in words
	Below string  // a second line below the name
}

// Line is a curve: solid ones are the model's, with a dot at each point, dashed ones were
// measured by others. It has no point where Y is not a number.
type Line struct {
	Color  int // the legend's; those beyond the number of colors begin anew
	Dashed bool
	X, Y   []float64 // of equal lengths, X ascending
}

// Table is a table; columns that are headed "published" are set apart.
type Table struct {
	Title string
	Note  string // below it
	Head  []string
	Rows  [][]string
	Named bool // the first column is of words
}

// Constant is a constant of the model.
type Constant struct {
	Name  string
	Value float64
}

// Constants lists those of a profile, and of the programs that ran on it.
func Constants(p sim.Profile, programs ...sim.Program) []Constant {
	var out []Constant
	for _, c := range p.Constants() {
		out = append(out, Constant(c))
	}
	for i := range programs {
		for _, c := range programs[i].Constants() {
			out = append(out, Constant{programs[i].Name + ": " + c.Name, c.Value})
		}
	}
	return out
}

// Text is the value with at most five digits, and without an exponent.
func (c Constant) Text() string {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(c.Value, 'g', 5, 64), 64)
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("page: writing %q: %w", p.Title, err)
	}
	return nil
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"color":   func(i int) template.CSS { return template.CSS("color:" + color(i)) },
	"palette": palette,
	"theirs":  func(t Table, column int) bool { return column < len(t.Head) && t.Head[column] == "published" },
}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><title>{{.Title}}</title>
<style>
:root{--ink:#222;--paper:#fff;--faint:#777;--label:#444;--grid:#e4e4e4;--rule:#ddd;{{palette false}}}
@media screen and (prefers-color-scheme:dark){
:root{--ink:#ddd;--paper:#16181c;--faint:#999;--label:#bbb;--grid:#33363c;--rule:#3a3d44;{{palette true}}}
}
body{font:14px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:var(--ink);background:var(--paper)}
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums;font-size:.9em}
td,th{padding:.15em .5em;text-align:right;border-bottom:1px solid var(--rule)}
svg{max-width:100%;height:auto} svg text{font:11px system-ui,sans-serif;fill:var(--label)} .grid{stroke:var(--grid)}
.theirs{color:var(--faint)} h2{margin-top:2em} .name,.named td:first-child,.named th:first-child{text-align:left}
@media print{
body{max-width:none;margin:0;font-size:11px;-webkit-print-color-adjust:exact;print-color-adjust:exact}
h2{break-after:avoid;margin-top:1em} svg,table{break-inside:avoid} svg{max-width:16cm}
}
</style></head><body>
<h1>{{.Title}}</h1>
{{range $i, $t := .Text}}<p>{{$t}}</p>
{{if eq $i 0}}<p>{{range $i, $name := $.Legend}}<b style="{{color $i}}">■ {{$name}}</b> &nbsp; {{end}}</p>
{{end}}{{end}}{{range .Figures}}<h2>{{.Title}}</h2>{{.SVG}}<div>{{.Below}}</div>
{{end}}{{range $t := .Tables}}<h2>{{.Title}}</h2>
<table{{if .Named}} class="named"{{end}}><tr>{{range $i, $h := .Head}}<th{{if theirs $t $i}} class="theirs"{{end}}>{{$h}}{{end}}</tr>
{{range .Rows}}<tr>{{range $i, $c := .}}<td{{if theirs $t $i}} class="theirs"{{end}}>{{$c}}{{end}}</tr>
{{end}}</table>{{if .Note}}<p>{{.Note}}</p>{{end}}
{{end}}{{if .Constants}}<h2>The model's constants</h2>
<table>{{range .Constants}}<tr><td class="name">{{.Name}}<td>{{.Text}}</tr>
{{end}}</table>
{{end}}</body></html>
`))
