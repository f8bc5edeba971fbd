package mutant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dir is where the patches are, below the root of the module.
const Dir = "internal/mutant/patches"

// extension is that of the files of patches.
const extension = ".patch"

// Mutation is one wrong version of the engine.
type Mutation struct {
	Name   string
	Breaks string // a sentence in one line: what is done wrong, and what that breaks
	Files  []File // what changes, in the order of the patch; never empty
}

// All reads every mutation of the module whose root is given, in the order of their names.
func All(root string) ([]Mutation, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(Dir), "*"+extension))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("mutant: no patch in %s: run in the root of the module", filepath.Join(root, Dir))
	}
	all := make([]Mutation, 0, len(files))
	var errs []error
	for _, f := range files {
		m, err := read(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}

// File is the path of a mutation's patch below the root of the module, with slashes.
func (m *Mutation) File() string { return Dir + "/" + m.Name + extension }

func read(file string) (Mutation, error) {
	p, err := os.ReadFile(file)
	if err != nil {
		return Mutation{}, err
	}
	return Parse(strings.TrimSuffix(filepath.Base(file), extension), string(p))
}

// Parse reads a mutation from the text of its patch.
func Parse(name, text string) (Mutation, error) {
	m := Mutation{Name: name}
	head, diff, _ := strings.Cut("\n"+text, "\n--- ")
	if m.Breaks = strings.Join(strings.Fields(head), " "); m.Breaks == "" {
		return m, fmt.Errorf("mutant: %s: the sentence is missing: write above the diff what the mutation does wrong",
			m.File())
	}
	var err error
	if m.Files, err = parseDiff("--- " + diff); err != nil {
		return m, fmt.Errorf("mutant: %s: %w", m.File(), err)
	}
	return m, nil
}

// Text is the text of a mutation's patch: the sentence, and the diff.
func (m *Mutation) Text() string {
	var b strings.Builder
	column := 0
	for _, w := range strings.Fields(m.Breaks) {
		switch {
		case column == 0:
		case column+1+len(w) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(w)
		column += len(w)
	}
	b.WriteString("\n\n")
	for i := range m.Files {
		m.Files[i].text(&b)
	}
	return b.String()
}

// width is that of the lines of a sentence, in bytes.
const width = 100

// Apply returns the files of the module as the mutation has them, by path. The module is not
// changed. The error names every hunk that does not apply: errors.As finds a *RejectError.
func (m *Mutation) Apply(root string) (map[string]string, error) {
	out := make(map[string]string, len(m.Files))
	var errs []error
	for i := range m.Files {
		f := &m.Files[i]
		p, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.Path)))
		if err != nil {
			errs = append(errs, fmt.Errorf("mutant: %s: %w", m.File(), err))
			continue
		}
		text, rejected := f.Apply(string(p), 0)
		for _, h := range rejected {
			errs = append(errs, &RejectError{Patch: m.File(), File: f.Path, Hunk: h})
		}
		out[f.Path] = text
	}
	return out, errors.Join(errs...)
}

// RejectError says that a hunk of a patch does not apply any more.
type RejectError struct {
	Patch, File string
	Hunk        Hunk
}

func (e *RejectError) Error() string {
	return fmt.Sprintf("%s does not apply to %s: the hunk of line %d finds its lines nowhere, or at several places:\n"+
		"%s",
		e.Patch, e.File, e.Hunk.Line, strings.Join(e.Hunk.Lines, "\n"))
}
