package depcheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"strconv"
	"strings"
)

const ruleDeterminism = "determinism"

// dataPath lists the directories whose packages must be repeatable under a
// simulated fabric, each with everything below it.
var dataPath = []string{"occ", "log", "index", "memory", "channel", "rdma"}

// seams are the places inside dataPath that exist to touch the outside world:
// the catalog is a database file, an embedded database a directory, a region is
// memory of the system, and each fabric is the clock, the memory or the network
// that the rest is spared.
var seams = append([]string{"memory/catalog", "memory/embedded", "rdma/region"}, Fabrics...)

// insteadOf says where the data path gets the thing that it may not take from
// the process around it.
const (
	insteadClock  = "the data path takes time and waiting from rdma.Thread"
	insteadRandom = "the data path draws from the seeded source of rdma.Thread"
	insteadIO     = "the data path reaches memory through the fabric alone; I/O belongs into a fabric, " +
		"memory/catalog or memory/embedded"
	insteadGo = "the data path runs on the coroutines of rdma.Thread and starts no goroutine"
)

// forbiddenImports maps an import path, or a path ending in "/" for all that
// lies below it, to what to do instead.
var forbiddenImports = map[string]string{
	"net":                        insteadIO,
	"net/":                       insteadIO,
	"os":                         insteadIO,
	"os/":                        insteadIO,
	"io/ioutil":                  insteadIO,
	"syscall":                    insteadIO,
	"golang.org/x/sys/unix":      insteadIO,
	"golang.org/x/sys/windows":   insteadIO,
	"go.etcd.io/":                insteadIO,
	"crypto/rand":                insteadRandom,
	"hash/maphash":               insteadRandom,
	"golang.org/x/sync/errgroup": insteadGo,
}

// forbiddenNames maps an import path to the names of that package that the
// data path may not use. Packages in this table are otherwise fine: a
// time.Duration is a number, and a rand.Rand with a seed is repeatable.
var forbiddenNames = map[string]map[string]string{
	"time": {
		"Now": insteadClock, "Since": insteadClock, "Until": insteadClock, "Sleep": insteadClock,
		"After": insteadClock, "AfterFunc": insteadClock, "Tick": insteadClock,
		"NewTimer": insteadClock, "NewTicker": insteadClock, "Timer": insteadClock, "Ticker": insteadClock,
	},
	"context": {
		"WithTimeout": insteadClock, "WithTimeoutCause": insteadClock,
		"WithDeadline": insteadClock, "WithDeadlineCause": insteadClock,
		"AfterFunc": insteadGo,
	},
}

// seededRandom lists what the data path may use of math/rand and
// math/rand/v2: sources that are given a seed, and types. Everything else in
// them draws from the process-wide source.
var seededRandom = map[string]bool{
	"New": true, "NewSource": true, "NewPCG": true, "NewChaCha8": true, "NewZipf": true,
	"Rand": true, "Source": true, "Source64": true, "PCG": true, "ChaCha8": true, "Zipf": true,
}

// Determinism checks that the data path names no clock, timer, global random
// source, file or socket, and starts no goroutine.
//
// It looks at names, so it cannot see what a function of another package does
// inside, nor what depends on map order; the simulator's own test, two runs of
// one seed with equal traces, is there for those.
func Determinism(packages []Package) []Finding {
	var findings []Finding
	for _, p := range packages {
		if indexWithin(p.Dir, dataPath) < 0 || indexWithin(p.Dir, seams) >= 0 || p.testOnly() {
			continue
		}
		for i := range p.Files {
			findings = append(findings, determinismOf(&p.Files[i])...)
		}
	}
	return findings
}

func determinismOf(f *File) []Finding {
	var findings []Finding
	report := func(at ast.Node, format string, args ...any) {
		findings = append(findings, f.finding(at.Pos(), ruleDeterminism, format, args...))
	}
	for _, spec := range f.AST.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		if instead, bad := importForbidden(imported); bad {
			report(spec, "import of %s: %s", imported, instead)
		}
		if spec.Name != nil && spec.Name.Name == "." && (forbiddenNames[imported] != nil || isMathRand(imported)) {
			report(spec, "dot import of %s hides which of its names are used; import it by name", imported)
		}
	}
	uses := packageUses(f)
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "go statement: %s", insteadGo)
		case *ast.CallExpr:
			// sync.WaitGroup.Go, errgroup.Group.Go and their like, without type information.
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
				report(n, "call of a method named Go: %s", insteadGo)
			}
		case *ast.SelectorExpr:
			id, ok := n.X.(*ast.Ident)
			if !ok || uses[id] == "" {
				return true
			}
			if instead, bad := nameForbidden(uses[id], n.Sel.Name); bad {
				report(n, "%s.%s: %s", uses[id], n.Sel.Name, instead)
			}
		}
		return true
	})
	return findings
}

func importForbidden(imported string) (instead string, bad bool) {
	if instead, bad = forbiddenImports[imported]; bad {
		return instead, true
	}
	for prefix, instead := range forbiddenImports {
		if strings.HasSuffix(prefix, "/") && strings.HasPrefix(imported, prefix) {
			return instead, true
		}
	}
	return "", false
}

func nameForbidden(imported, name string) (instead string, bad bool) {
	if isMathRand(imported) && !seededRandom[name] {
		return insteadRandom, true
	}
	instead, bad = forbiddenNames[imported][name]
	return instead, bad
}

func isMathRand(imported string) bool {
	return imported == "math/rand" || imported == "math/rand/v2"
}

// packageUses maps each identifier of f that denotes an imported package to
// that package's import path. The type checker resolves them, so a local
// variable named time is not mistaken for the package. It runs on one file
// with empty stand-ins for all imports and therefore complains of much; the
// scopes, which are all that counts here, come out right.
func packageUses(f *File) map[*ast.Ident]string {
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: standIns{}, Error: func(error) {}, DisableUnusedImportCheck: true}
	_, _ = config.Check(f.Path, f.fset, []*ast.File{f.AST}, &info) // the errors are those of the stand-ins
	uses := map[*ast.Ident]string{}
	for id, object := range info.Uses {
		if name, ok := object.(*types.PkgName); ok {
			uses[id] = name.Imported().Path()
		}
	}
	return uses
}

// standIns imports any path as an empty package with the name that the path
// suggests.
type standIns struct{}

// Import implements types.Importer.
func (standIns) Import(imported string) (*types.Package, error) {
	if imported == "unsafe" {
		return types.Unsafe, nil
	}
	name := path.Base(imported)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(imported))
	}
	if !token.IsIdentifier(name) {
		name = "_" // such packages are imported under another name or not looked at
	}
	p := types.NewPackage(imported, name)
	p.MarkComplete()
	return p, nil
}
