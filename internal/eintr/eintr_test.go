package eintr_test

import (
	"errors"
	"fmt"
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"txnode/internal/depcheck"
	"txnode/internal/eintr"
)

func ExampleRepeat() {
	tries := 0
	err := eintr.Repeat(func() error {
		if tries++; tries < 3 {
			return unix.EINTR
		}
		return nil
	})
	fmt.Println(tries, err)
	// Output: 3 <nil>
}

func TestRepeatReturnsOtherErrors(t *testing.T) {
	calls := 0
	err := eintr.Repeat(func() error {
		if calls++; calls == 1 {
			return &os.PathError{Op: "fallocate", Path: "x", Err: unix.EINTR}
		}
		return unix.ENOSPC
	})
	if calls != 2 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%d calls, %v; want 2 calls and ENOSPC", calls, err)
	}
}

func TestRepeatAllocatesNothing(t *testing.T) {
	n := 0
	if got := testing.AllocsPerRun(100, func() { _ = eintr.Repeat(func() error { n++; return nil }) }); got != 0 {
		t.Errorf("%v allocations a call, want 0", got)
	}
}

// interruptible are the calls whose manual pages list EINTR, or that wait for a file system
// which may return it.
var interruptible = []string{
	"Open", "Openat", "Creat", "Fallocate", "Ftruncate", "Truncate", "Flock", "FcntlFlock", "Msync", "Madvise", "Mlock",
	"Fsync", "Fdatasync", "SyncFileRange", "Syncfs", "Read", "Write", "Pread", "Pwrite", "Preadv",
	"Pwritev", "Sendfile",
	"CopyFileRange", "Splice", "Wait4", "Poll", "Ppoll", "Select", "EpollWait", "Connect", "Accept", "Accept4",
	"Recvfrom", "Recvmsg", "Sendto", "SendmsgN", "Fstatfs", "Statfs", "Getrandom",
}

// TestEveryCallIsRepeated reads the product: a call that a signal can interrupt stands within
// Repeat.
func TestEveryCallIsRepeated(t *testing.T) {
	packages, err := depcheck.Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range packages {
		if strings.HasPrefix(p.Dir, "benchmarks/instructions") { // it traces another process, and repeats by itself
			continue
		}
		c := calls{aliases: map[string]string{}}
		for _, f := range p.Files {
			c.alias(f.AST)
		}
		for _, f := range p.Files {
			for _, bare := range c.bare(f.AST, &found) {
				t.Errorf("%s calls %s outside eintr.Repeat", f.Path, bare)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d calls of the system were found in the tree: the test no longer sees them", found)
	}
}

// calls finds the interruptible calls of a package. Tests replace some, so a variable may stand for
// one: var msync = unix.Msync.
type calls struct{ aliases map[string]string }

func (c *calls) alias(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
			for i, x := range v.Values {
				if s := system(x); s != "" {
					c.aliases[v.Names[i].Name] = s
				}
			}
		}
		return true
	})
}

// bare returns the interruptible calls of a file that do not stand within Repeat, and
// counts all of them.
func (c *calls) bare(f *ast.File, found *int) (bare []string) {
	var walk func(n ast.Node, repeated bool)
	walk = func(n ast.Node, repeated bool) {
		ast.Inspect(n, func(x ast.Node) bool {
			call, ok := x.(*ast.CallExpr)
			if !ok || x == n {
				return true
			}
			if name(call.Fun) == "eintr.Repeat" {
				walk(call, true)
				return false
			}
			what := system(call.Fun)
			if id, ok := call.Fun.(*ast.Ident); ok {
				what = c.aliases[id.Name]
			}
			if what != "" {
				if *found++; !repeated {
					bare = append(bare, what)
				}
			}
			return true
		})
	}
	walk(f, false)
	return bare
}

// system is the name of an interruptible function of the system; "" is another expression.
func system(e ast.Expr) string {
	of, fn, _ := strings.Cut(name(e), ".")
	if (of == "unix" || of == "syscall") && slices.Contains(interruptible, fn) {
		return of + "." + fn
	}
	return ""
}

// name is an expression "a.b" as it is written; "" is another one.
func name(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}
