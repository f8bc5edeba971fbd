package depcheck

import (
	"path"
	"strings"
)

const ruleDocumentation = "documentation"

// emptyNames say where code was put, not what it is about.
var emptyNames = map[string]bool{
	"common": true, "helper": true, "helpers": true, "misc": true, "shared": true, "util": true, "utils": true,
}

// Documentation checks that every package has a doc.go with a package comment
// that begins as godoc expects, that the comment stands there alone, and that
// the package's name says something.
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
		report(docPath, 1, "a package named "+path.Base(p.Dir)+" gathers what is unrelated; name it after what it is about")
	}
	documented := false
	for i := range p.Files {
		f := &p.Files[i]
		comment := strings.TrimSpace(f.AST.Doc.Text())
		if path.Base(f.Path) != "doc.go" {
			if comment != "" {
				report(f.Path, f.line(f.AST.Doc.Pos()), "a second package comment; move it into doc.go, or put a blank line before the package clause")
			}
			continue
		}
		documented = true
		switch {
		case comment == "":
			report(f.Path, f.line(f.AST.Package), "doc.go has no package comment; write what package "+p.Name+" is and how to use it")
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
