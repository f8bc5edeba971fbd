package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"txnode/internal/mutant"
)

// builder makes the binaries of tests, of the engine as it is and of mutations of it, in a directory
// of its own. Safe for concurrent use.
type builder struct {
	dir  string // absolute
	root string // of the module, absolute

	mu     sync.Mutex
	builds map[string]*build // by mutation and package
}

// build is one binary, or why there is none.
type build struct {
	once sync.Once
	bin  string
	err  error
}

// BuildError says that a mutation does not compile: it is not caught by that, but wrong itself.
type BuildError struct {
	Mutation, Package, Output string
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("%s does not compile in the tests of %s; edit it (-edit %s), and save it (-save %s):\n%s",
		e.Mutation, e.Package, e.Mutation, e.Mutation, e.Output)
}

// binary compiles the tests of a package, once, with a mutation, or with none if m is nil.
func (b *builder) binary(ctx context.Context, m *mutant.Mutation, pkg string) (string, error) {
	name := ""
	if m != nil {
		name = m.Name
	}
	b.mu.Lock()
	key := name + " " + pkg
	x := b.builds[key]
	if x == nil {
		x = &build{}
		b.builds[key] = x
	}
	b.mu.Unlock()
	x.once.Do(func() {
		x.bin = filepath.Join(b.dir, "as-is", strings.ReplaceAll(pkg, "/", "-")+".test")
		var flags []string
		if m != nil {
			x.bin = filepath.Join(b.dir, m.Name, strings.ReplaceAll(pkg, "/", "-")+".test")
			var overlay string
			if overlay, x.err = b.overlay(m); x.err != nil {
				return
			}
			flags = []string{"-overlay", overlay}
		}
		args := append([]string{"test", "-c", "-vet=off", "-o", x.bin}, flags...)
		cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
		if p, err := cmd.CombinedOutput(); err != nil {
			if x.err = fmt.Errorf("%v: %w\n%s", cmd, err, p); m != nil {
				x.err = &BuildError{Mutation: m.Name, Package: pkg, Output: string(p)}
			}
		}
	})
	return x.bin, x.err
}

// overlay writes the files of a mutation, and what tells the compiler to take them.
func (b *builder) overlay(m *mutant.Mutation) (string, error) {
	texts, err := m.Apply(b.root)
	if err != nil {
		return "", err
	}
	return writeOverlay(b.root, filepath.Join(b.dir, m.Name), texts)
}

// writeOverlay writes texts of files of the module into a directory, and the file for -overlay that
// puts them in place of the module's.
func writeOverlay(root, dir string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for path, text := range texts {
		to := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(path))] = to
	}
	p, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, p, 0o644)
}

// drop removes what was made for a mutation.
func (b *builder) drop(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.builds {
		if strings.HasPrefix(key, name+" ") {
			delete(b.builds, key)
		}
	}
	_ = os.RemoveAll(filepath.Join(b.dir, name)) // it lies in a directory that is removed at the end
}
