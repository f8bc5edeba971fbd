package depcheck

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
)

const ruleDocumentation = "documentation"

// emptyNames say where code was put, not what it is about.
var emptyNames = map[string]bool{
	"common": true, "helper": true, "helpers": true, "misc": true, "shared": true, "util": true, "utils": true,
}

// mixedCaps is a word that can only be an identifier.
var mixedCaps = regexp.MustCompile(`^[A-Za-z0-9]*[a-z][A-Z][A-Za-z0-9]*$`)

// Documentation checks that every package has a doc.go with a package comment
// that begins as godoc expects, that the comment stands there alone, and that
// the package's name says something; and that no comment of a function or type
// begins with the name of another, as when that was renamed or is a copy.
func Documentation(packages []Package) []Finding {
	var findings []Finding
	for i := range packages {
		findings = append(findings, documentationOf(&packages[i])...)
	}
	return findings
}

func documentationOf(p *Package) []Finding {
	docPath := path.Join(p.Dir, "doc.go")
	var findings []Finding
	report := func(file string, line int, text string) {
		findings = append(findings, Finding{File: file, Line: line, Rule: ruleDocumentation, Text: text})
	}
	if emptyNames[path.Base(p.Dir)] {
		report(docPath, 1, "a package named "+path.Base(p.Dir)+
			" gathers what is unrelated; name it after what it is about")
	}
	documented := false
	for i := range p.Files {
		f := &p.Files[i]
		for _, d := range f.AST.Decls {
			if name, doc := declared(d); name != nil && misnamed(doc.Text(), name.Name) {
				report(f.Path, f.line(name.Pos()), "the comment of "+name.Name+" begins with another name")
			}
		}
		comment := strings.TrimSpace(f.AST.Doc.Text())
		if path.Base(f.Path) != "doc.go" {
			if comment != "" {
				report(f.Path, f.line(f.AST.Doc.Pos()),
					"a second package comment; move it into doc.go, or put a blank line before the package clause")
			}
			continue
		}
		documented = true
		switch {
		case comment == "":
			report(f.Path, f.line(f.AST.Package), "doc.go has no package comment; write what package "+p.Name+
				" is and how to use it")
		case !beginsAsExpected(comment, p.Name):
			report(f.Path, f.line(f.AST.Doc.Pos()), `the package comment must begin with "`+opening(p.Name)+` "`)
		}
	}
	if !documented {
		report(docPath, 1, "missing; every package has a doc.go with its package comment")
	}
	return findings
}

// opening is how godoc wants the comment of the package to begin; a command
// may begin with its own name instead, which is not known here.
func opening(name string) string { return "Package " + name }

func beginsAsExpected(comment, name string) bool {
	return name == "main" || strings.HasPrefix(comment, opening(name)+" ")
}

// declared is the name and comment of a function, or of a type that stands alone; nil: d is
// another declaration.
func declared(d ast.Decl) (*ast.Ident, *ast.CommentGroup) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Name, d.Doc
	case *ast.GenDecl:
		if len(d.Specs) != 1 {
			break
		}
		if t, ok := d.Specs[0].(*ast.TypeSpec); ok {
			return t.Name, d.Doc
		}
	}
	return nil, nil
}

// misnamed reports whether a comment begins with an identifier other than name.
func misnamed(comment, name string) bool {
	first, _, _ := strings.Cut(comment, " ")
	first = strings.TrimRight(first, ":,.\n")
	return first != name && mixedCaps.MatchString(first)
}
