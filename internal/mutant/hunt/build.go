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
)

// builder makes the binaries of tests, with all mutations of the hunt in each. Safe for concurrent
// use.
type builder struct {
	dir     string // of the binaries, absolute
	overlay string // puts the files with variants in place of the module's

	mu     sync.Mutex
	builds map[string]*build // by package
}

// build is one binary, or why there is none.
type build struct {
	once sync.Once
	bin  string
	err  error
}

// binary compiles the tests of a package, once.
func (b *builder) binary(ctx context.Context, pkg string) (string, error) {
	b.mu.Lock()
	x := b.builds[pkg]
	if x == nil {
		x = &build{bin: filepath.Join(b.dir, strings.ReplaceAll(pkg, "/", "-")+".test")}
		b.builds[pkg] = x
	}
	b.mu.Unlock()
	x.once.Do(func() {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", b.overlay, "-o", x.bin, "./"+pkg)
		if p, err := cmd.CombinedOutput(); err != nil {
			x.err = fmt.Errorf("a mutation does not compile (/NAME/FILE is FILE as mutation NAME has it; edit it "+
				"with -edit NAME), or else the engine does not: %v: %w\n%s", cmd, err, p)
		}
	})
	return x.bin, x.err
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
