package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"txnode/internal/mutant"
)

// All mutations of a hunt are compiled at once, because to compile the engine and the tests for
// each of them takes ten times as long as to run them. A mutation may change bodies of functions
// only. So the compiler gets, in place of each file that some mutation changes, the file with a
// variant of the function for each of them, and a jump to the variant:
//
//	func (tx *Tx) flushBackups(b *rdma.Batch) { if mutation.Chosen == 17 { ...; return };
//		...
//
// The environment variable choice of a process says which it takes; without it the
// engine is as it is.

// choice is the environment variable that chooses a mutation, by its number.
const choice = "TXNODE_MUTATION"

// chooser is the source of a package that no file of the module has, but the compiler gets.
const chooser = `package mutation

import (
	"os"
	"strconv"
)

// Chosen is the number of a mutation, 0: none.
var Chosen, _ = strconv.Atoi(os.Getenv("` + choice + `"))
`

// chooserDir is where that package is, below the root of the module.
const chooserDir = "internal/mutant/mutation"

// variant is a file as a mutation has it.
type variant struct {
	number   int // of the mutation: 1 is the first
	mutation string
	text     string
}

// withVariants returns the files of the module that mutations change, and the chooser, as the
// compiler is to get them.
func withVariants(root, module string, todo []mutant.Mutation) (map[string]string, error) {
	byFile := map[string][]variant{}
	for i := range todo {
		texts, err := todo[i].Apply(root)
		if err != nil {
			return nil, err
		}
		for path, text := range texts {
			byFile[path] = append(byFile[path], variant{i + 1, todo[i].Name, text})
		}
	}
	out := map[string]string{chooserDir + "/mutation.go": chooser}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(byFile)) {
		p, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		if err == nil {
			out[path], err = join(path, module, string(p), byFile[path])
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// join is a file with variants of its functions.
func join(path, module, text string, variants []variant) (string, error) {
	base, err := parse(path, text)
	if err != nil {
		return "", err
	}
	jumps := map[string]string{} // by function
	imports := fmt.Sprintf("; import %q", module+"/"+chooserDir)
	var end strings.Builder
	var errs []error
	for _, v := range variants {
		f, err := parse(path, v.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", v.mutation, err))
			continue
		}
		if f.rest != base.rest {
			errs = append(errs,
				fmt.Errorf("%s changes more of %s than bodies of functions: write it so that it does not",
					v.mutation, path))
			continue
		}
		for _, i := range f.imports {
			if !slices.Contains(base.imports, i) && !strings.Contains(imports, "; import "+i) {
				imports += "; import " + i
			}
		}
		for _, name := range f.order {
			now, was := f.functions[name], base.functions[name]
			if now.body == was.body {
				continue
			}
			if was.whyNot != "" {
				errs = append(errs, fmt.Errorf("%s changes %s of %s, %s", v.mutation, name, path, was.whyNot))
				continue
			}
			prefix := fmt.Sprintf("mutation%d", v.number)
			jumps[name] += fmt.Sprintf(" if mutation.Chosen == %d { %s };", v.number, was.call(prefix))
			fmt.Fprintf(&end, "\n//line /%s/%s:%d\n%s%s%s%s", v.mutation, path, now.line, now.head,
				prefix, now.tail, now.body)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	var out strings.Builder
	at := 0
	insert := func(to int, s string) {
		out.WriteString(text[at:to])
		out.WriteString(s)
		at = to
	}
	insert(base.clause, imports)
	for _, name := range base.order {
		insert(base.functions[name].open, jumps[name])
	}
	out.WriteString(text[at:])
	out.WriteString(end.String())
	return out.String() + "\n", nil
}

// source is a file, taken apart.
type source struct {
	clause    int      // where the package clause ends
	imports   []string // as they are written
	order     []string // of the functions
	functions map[string]function
	rest      string // what is neither an import, nor a comment at the top, nor a body
}

// function is a function of a source: its text is head, name and tail, body.
type function struct {
	head, tail, body string
	open             int // where the body begins, behind the brace
	line             int
	callee, args     string // how it calls another one of its kind: callee is what stands before the name
	name             string
	typeArgs         string
	results          bool
	whyNot           string // why there can be no variant of it, ""
}

// call calls a variant, and returns what that does.
func (f *function) call(prefix string) string {
	call := f.callee + prefix + f.name + f.typeArgs + "(" + f.args + ")"
	if f.results {
		return "return " + call
	}
	return call + "; return"
}

func parse(path, text string) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	off := func(p token.Pos) int { return fset.Position(p).Offset }
	s := &source{clause: off(file.Name.End()), functions: map[string]function{}}
	var rest strings.Builder
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			if g.Tok != token.IMPORT {
				rest.WriteString(text[off(g.Pos()):off(g.End())] + "\n")
				continue
			}
			for _, x := range g.Specs {
				s.imports = append(s.imports, text[off(x.Pos()):off(x.End())])
			}
			continue
		}
		d := d.(*ast.FuncDecl)
		if d.Body == nil {
			rest.WriteString(text[off(d.Pos()):off(d.End())] + "\n")
			continue
		}
		rest.WriteString(text[off(d.Pos()):off(d.Body.Lbrace)] + "\n")
		f := function{
			head: text[off(d.Pos()):off(d.Name.Pos())],
			tail: text[off(d.Name.Pos()):off(d.Body.Lbrace)],
			body: text[off(d.Body.Lbrace):off(d.Body.End())],
			open: off(d.Body.Lbrace) + 1, line: fset.Position(d.Pos()).Line,
			name: d.Name.Name, results: d.Type.Results != nil,
		}
		key := d.Name.Name
		if d.Recv != nil {
			r := d.Recv.List[0]
			key = text[off(r.Type.Pos()):off(r.Type.End())] + "." + key
			if len(r.Names) == 0 || r.Names[0].Name == "_" {
				f.whyNot = "whose receiver has no name"
			} else {
				f.callee = r.Names[0].Name + "."
			}
		}
		if catches(d.Body) {
			f.whyNot = "which calls recover itself, and a variant of it would not be the function that is deferred"
		}
		f.typeArgs, f.args = arguments(d.Type, func(n ast.Node) string { return text[off(n.Pos()):off(n.End())] })
		s.order = append(s.order, key)
		s.functions[key] = f
	}
	s.rest = rest.String()
	return s, nil
}

// arguments are what a function passes on to another one of its type.
func arguments(t *ast.FuncType, text func(ast.Node) string) (typeArgs, args string) {
	var types, values []string
	if t.TypeParams != nil {
		for _, f := range t.TypeParams.List {
			for _, n := range f.Names {
				types = append(types, n.Name)
			}
		}
		typeArgs = "[" + strings.Join(types, ", ") + "]"
	}
	for _, f := range t.Params.List {
		more, variadic := f.Type.(*ast.Ellipsis)
		nothing := "*new(" + text(f.Type) + ")" // nobody looks at it
		if variadic {
			nothing = "*new([]" + text(more.Elt) + ")..."
		}
		if len(f.Names) == 0 {
			values = append(values, nothing)
		}
		for _, n := range f.Names {
			switch {
			case n.Name == "_":
				values = append(values, nothing)
			case variadic:
				values = append(values, n.Name+"...")
			default:
				values = append(values, n.Name)
			}
		}
	}
	return typeArgs, strings.Join(values, ", ")
}

// catches reports whether a body calls recover, other than in a function literal.
func catches(body *ast.BlockStmt) (yes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			id, ok := x.Fun.(*ast.Ident)
			yes = yes || ok && id.Name == "recover"
		}
		return !yes
	})
	return yes
}
