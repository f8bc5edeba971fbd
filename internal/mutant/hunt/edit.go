package main

import (
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"txnode/internal/mutant"
)

// maxFuzz is how many lines of context on each side of a change may have changed for -refresh.
const maxFuzz = 3

// sentence is the file, beside the copies, that holds what a mutation breaks.
const sentence = "SENTENCE"

// editor makes patches anew.
type editor struct {
	root string // of the module
	dir  string // where copies are edited, each mutation in a directory of its own
}

// workshop is where -edit leaves copies, and -save looks for them: the same in every run of one
// user.
func workshop(name string) string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("txnode-mutants-%d", os.Getuid()), name)
}

// refresh writes the patch again if it does not apply. It reports false if it cannot, and has
// left copies to be edited.
func (e *editor) refresh(m *mutant.Mutation) (bool, error) {
	if _, err := m.Apply(e.root); err == nil {
		return true, nil
	}
	texts, rejected, err := e.apply(m, maxFuzz)
	if err != nil {
		return false, err
	}
	if len(rejected) > 0 {
		return false, e.leave(m, texts, rejected)
	}
	n, err := e.mutation(m.Name, m.Breaks, texts)
	if err != nil {
		return false, err
	}
	if err := e.compiles(n.Name, texts); err != nil {
		return false, errors.Join(err, e.leave(m, texts, nil))
	}
	fmt.Printf("%s: made anew; git diff shows whether it still does what it says:\n  %s\n", m.File(), m.Breaks)
	return true, os.WriteFile(filepath.Join(e.root, filepath.FromSlash(n.File())), []byte(n.Text()), 0o644)
}

// apply is what becomes of the files of a mutation, and what of it does not apply.
func (e *editor) apply(m *mutant.Mutation, fuzz int) (texts map[string]string, rejected []string, err error) {
	texts = map[string]string{}
	for i := range m.Files {
		f := &m.Files[i]
		p, err := os.ReadFile(filepath.Join(e.root, filepath.FromSlash(f.Path)))
		if errors.Is(err, fs.ErrNotExist) {
			rejected = append(rejected,
				fmt.Sprintf("%s: there is no such file any more: add the one with that code (-edit %s FILE)",
					f.Path, m.Name))
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		text, left := f.Apply(string(p), fuzz)
		texts[f.Path] = text
		for _, h := range left {
			rejected = append(rejected, fmt.Sprintf("%s, once line %d:\n%s", f.Path, h.Line,
				strings.Join(h.Lines, "\n")))
		}
	}
	return texts, rejected, nil
}

// leave writes copies to be edited, and says how to go on.
func (e *editor) leave(m *mutant.Mutation, texts map[string]string, rejected []string) error {
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	if _, err := writeOverlay(e.root, e.dir, texts); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(e.dir, sentence), []byte(m.Breaks+"\n"), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: edit the copies in\n  %s\nso that they do what %s there says:\n  %s\n"+
		"to try them: go test -overlay %s ./PACKAGE -run TEST\nand then: go run ./internal/mutant/hunt -save %s\n",
		m.Name, e.dir, sentence, m.Breaks, filepath.Join(e.dir, "overlay.json"), m.Name)
	for _, r := range rejected {
		fmt.Printf("not applied: %s\n", r)
	}
	return nil
}

// edit leaves copies of the files of a mutation, which may be a new one, and of others.
func (e *editor) edit(m *mutant.Mutation, files []string) error {
	texts, rejected, err := e.apply(m, maxFuzz)
	if err != nil {
		return err
	}
	for _, f := range files {
		f = path.Clean(filepath.ToSlash(f))
		p, err := os.ReadFile(filepath.Join(e.root, filepath.FromSlash(f)))
		if err != nil {
			return err
		}
		if _, ok := texts[f]; !ok {
			texts[f] = string(p)
		}
	}
	if len(texts) == 0 {
		return fmt.Errorf("%s is no mutation yet: name the files that it is to change: -edit %s FILE", m.Name, m.Name)
	}
	return e.leave(m, texts, rejected)
}

// save writes a patch from the copies that were edited.
func (e *editor) save(name string) error {
	texts := map[string]string{}
	err := filepath.WalkDir(e.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".go" {
			return err
		}
		p, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(e.dir, file)
		texts[filepath.ToSlash(rel)] = string(p)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading what was edited; -edit %s makes it: %w", name, err)
	}
	breaks, err := os.ReadFile(filepath.Join(e.dir, sentence))
	if err != nil {
		return err
	}
	m, err := e.mutation(name, string(breaks), texts)
	if err != nil {
		return err
	}
	if err := e.compiles(name, texts); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(e.root, filepath.FromSlash(m.File())), []byte(m.Text()), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: written; a line for it belongs into internal/mutant/hunt/catchers.txt (-only '^%s$' -learn "+
		"FILE finds it)\n", m.File(), name)
	return os.RemoveAll(e.dir)
}

// mutation is that which turns the module's files into texts.
func (e *editor) mutation(name, breaks string, texts map[string]string) (mutant.Mutation, error) {
	m := mutant.Mutation{Name: name, Breaks: breaks}
	for _, f := range slices.Sorted(maps.Keys(texts)) {
		p, err := os.ReadFile(filepath.Join(e.root, filepath.FromSlash(f)))
		if err != nil {
			return m, err
		}
		text, err := format.Source([]byte(texts[f]))
		if err != nil {
			return m, fmt.Errorf("%s of mutation %s: %w", f, name, err)
		}
		if d, ok := mutant.Diff(f, string(p), string(text)); ok {
			m.Files = append(m.Files, d)
		}
	}
	if len(m.Files) == 0 {
		return m, fmt.Errorf("%s changes nothing: edit the copies in %s", name, e.dir)
	}
	return mutant.Parse(name, m.Text()) // which refuses what would not be read
}

// compiles tries to compile the packages that texts of files change.
func (e *editor) compiles(name string, texts map[string]string) error {
	dir, err := os.MkdirTemp("", "hunt")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root, err := filepath.Abs(e.root)
	if err != nil {
		return err
	}
	overlay, err := writeOverlay(root, dir, texts)
	if err != nil {
		return err
	}
	packages := map[string]bool{}
	for f := range texts {
		packages["./"+path.Dir(f)] = true
	}
	args := append([]string{"build", "-overlay", overlay}, slices.Sorted(maps.Keys(packages))...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if p, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mutation %s does not compile: edit it (-edit %s), and save it (-save %s): %v: %w\n%s",
			name, name, name, cmd, err, p)
	}
	return nil
}
