package depcheck

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const ruleLayering = "layering"

// A Layer is one step of the stack: the packages whose directory is one of
// Roots or lies below one, and below no longer root of another layer.
type Layer struct {
	Name  string
	Roots []string
}

// Layers lists the stack from the top down. A package may import its own
// layer and every layer further down, never one further up.
//
// Two kinds of package lie outside the stack; both are free to be imported
// from anywhere because they import no layer themselves: the leaves
// ([Leaves]) and everything under internal.
var Layers = []Layer{
	{"commands", []string{"cmd"}},
	{"benchmarks", []string{"benchmarks"}},
	{"clusters", []string{"cluster"}},
	{"transactions", []string{"txn", "verify"}},
	{"supervision", []string{"txn/supervisor"}},
	{"protocol", []string{"occ"}},
	{"log", []string{"log"}},
	{"indexes", []string{"index"}},
	{"memory", []string{"memory"}},
	{"channels", []string{"channel"}},
	{"verbs", []string{"rdma"}},
}

// Leaves are the packages that the layers meet at without depending on each
// other: a leaf imports no layer, only leaves listed after it.
var Leaves = []string{"check", "history"}

// Fabrics are the directories below rdma that implement its Fabric. They are
// alternatives, so none may depend on another.
var Fabrics = []string{"rdma/inproc", "rdma/sim", "rdma/shm", "rdma/tcp", "rdma/ibverbs"}

// Upon are fabrics that have the control path of another one: devices connect what the sockets of
// package tcp have introduced to each other.
var Upon = map[string]string{"rdma/ibverbs": "rdma/tcp"}

// A Restriction says which packages may import others. It keeps what is large out of programs that
// have no use for it, since a program contains what it imports, all the way down; and it keeps what
// has alternatives out of packages that are for all of them.
type Restriction struct {
	// Imports are packages of this module as directories, and paths of other modules, each with
	// everything below it. One that ends in "/" stands for what lies below it alone.
	Imports []string
	// By are the directories that may import them, Of those that may not, each with everything
	// below it. One of the two is given.
	By, Of  []string
	Instead string
}

// Restrictions are in force for all packages but those for tests.
var Restrictions = []Restriction{
	{
		[]string{"go.etcd.io/etcd", "google.golang.org/grpc", "google.golang.org/protobuf"},
		[]string{"memory/catalog/etcd"}, nil,
		"etcd's client and gRPC belong into memory/catalog/etcd alone, so that programs without an etcd do not " +
			"contain them",
	},
	{
		[]string{"memory/catalog/etcd", "cluster/etcd"}, []string{"cluster/etcd", "cmd/txnode/command"}, nil,
		"only programs ask for a catalog in an etcd, so that the others do not contain its client; a package takes a " +
			"memory.Catalog, or an address (cluster.DialCatalog)",
	},
	{
		[]string{"verify"}, []string{"verify", "cmd", "benchmarks"}, nil,
		"a check of a database at rest is for programs that ask for one; package txn passes what it knows in types " +
			"of memory/record",
	},
	{
		[]string{"channel", "memory/channelhost"}, []string{
			"channel", "memory/channelhost", "cluster", "cmd", "benchmarks",
		}, nil,
		"channels stand beside transactions, so that a program with one of them does not contain the other",
	},
	{
		[]string{"index/"}, nil, []string{"occ/recovery", "verify", "txn"},
		"what is for all indexes knows package index alone, which each of them implements",
	},
}

// restricted says why a package may not import a path of another module, or a directory of this
// one; it is empty when it may.
func restricted(p *Package, imported string) string {
	if p.testOnly() {
		return ""
	}
	for _, r := range Restrictions {
		bound := r.Of == nil && indexWithin(p.Dir, r.By) < 0 || indexWithin(p.Dir, r.Of) >= 0
		if bound && indexWithin(imported, r.Imports) >= 0 {
			return r.Instead
		}
	}
	return ""
}

// within says whether dir is root or lies below it; below it alone if root ends in "/".
func within(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")
}

// indexWithin returns the position of the root that dir lies in, or -1.
func indexWithin(dir string, roots []string) int {
	for i, root := range roots {
		if within(dir, root) {
			return i
		}
	}
	return -1
}

// layerOf returns the position of dir's layer in Layers, or -1.
func layerOf(dir string) int {
	layer, longest := -1, ""
	for i, l := range Layers {
		if at := indexWithin(dir, l.Roots); at >= 0 && len(l.Roots[at]) > len(longest) {
			layer, longest = i, l.Roots[at]
		}
	}
	return layer
}

// isInternal says whether dir belongs to the shared internals at the top of
// the module; an internal directory inside a layer belongs to that layer.
func isInternal(dir string) bool { return within(dir, "internal") }

// Layering checks that imports go downwards only, and keep to [Restrictions]. Other packages of
// other modules and of the standard library are of no concern to it.
func Layering(module string, packages []Package) []Finding {
	var findings []Finding
	for _, p := range packages {
		if len(p.Files) == 0 {
			continue
		}
		if layerOf(p.Dir) < 0 && indexWithin(p.Dir, Leaves) < 0 && !isInternal(p.Dir) {
			f := &p.Files[0]
			findings = append(findings, f.finding(f.AST.Package, ruleLayering,
				"package %s belongs to no layer; put it into one, or add its directory to Layers or Leaves in "+
					"internal/depcheck", p.Dir))
			continue
		}
		for i := range p.Files {
			f := &p.Files[i]
			for _, spec := range f.AST.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					continue // the parser accepts string literals only
				}
				dir, ours := strings.CutPrefix(imported, module+"/")
				if ours && slices.ContainsFunc(Debts, func(d Debt) bool {
					return d.File == f.Path && d.Imports == dir
				}) {
					continue
				}
				if why := restricted(&p, dir); why != "" {
					findings = append(findings,
						f.finding(spec.Pos(), ruleLayering, "%s imports %s: %s", p.Dir, dir, why))
				}
				if !ours {
					continue
				}
				if why := forbidden(&p, dir); why != "" {
					findings = append(findings,
						f.finding(spec.Pos(), ruleLayering, "%s imports %s: %s", p.Dir, dir, why))
				}
			}
		}
	}
	return findings
}

// forbidden says why a package may not import the package in directory to; it
// is empty when it may.
func forbidden(p *Package, to string) string {
	toLayer := layerOf(to)
	switch {
	case p.testOnly():
		// Stands outside the layers, like the test files that import it.
		return ""
	case strings.HasSuffix(path.Base(to), "test"):
		return "a package for tests may be imported by tests only"
	case isInternal(p.Dir):
		if toLayer >= 0 {
			return "internal packages serve every layer and import none"
		}
		return ""
	case indexWithin(p.Dir, Leaves) >= 0:
		return leafForbidden(p.Dir, to)
	case toLayer < 0:
		return "" // leaves and internals are open to all
	}
	fromLayer := layerOf(p.Dir)
	if toLayer < fromLayer {
		return fmt.Sprintf("imports go downwards only, and layer %q is above layer %q; let the upper layer pass in "+
			"what is needed",
			Layers[toLayer].Name, Layers[fromLayer].Name)
	}
	from, target := indexWithin(p.Dir, Fabrics), indexWithin(to, Fabrics)
	if from >= 0 && target >= 0 && from != target && Upon[Fabrics[from]] != Fabrics[target] {
		return "fabrics are alternatives and do not depend on each other; move what they share into a " +
			"package beside them"
	}
	return ""
}

func leafForbidden(from, to string) string {
	if layerOf(to) >= 0 {
		return "a leaf imports no layer, so that every layer can import it"
	}
	if target := indexWithin(to, Leaves); target >= 0 && target < indexWithin(from, Leaves) {
		return "a leaf imports only the leaves listed after it"
	}
	return ""
}
