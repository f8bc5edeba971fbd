package main

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"txnode/internal/mutant"
)

// TestEveryMutationHasVariants: each mutation changes bodies of functions only, so that all can be
// compiled at once.
func TestEveryMutationHasVariants(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	all, err := mutant.All(root)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := withVariants(root, "txnode", all)
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.Builder{}
	for path, text := range texts {
		if _, err := format.Source([]byte(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		whole.WriteString(text)
	}
	for _, m := range all {
		if !strings.Contains(whole.String(), "\n//line /"+m.Name+"/") {
			t.Errorf("%s has no variant", m.Name)
		}
	}
}

const program = `package main

import "fmt"

type counter struct{ n int }

func (c *counter) add(by ...int) (sum int) {
	for _, b := range by {
		c.n += b
	}
	return c.n
}

func pair[K comparable, V any](k K, v V) string { return fmt.Sprint(k, v) }

func ignores(_ int, s string) {
	fmt.Println("ignores", s)
}

func main() {
	var c counter
	fmt.Println(c.add(1, 2), pair("a", 1))
	ignores(1, "s")
}
`

// mutation is one of the program above.
func mutation(t *testing.T, name string, replacements ...string) variant {
	t.Helper()
	text := strings.NewReplacer(replacements...).Replace(program)
	if text == program {
		t.Fatal("nothing is replaced")
	}
	return variant{mutation: name, text: text}
}

// TestVariants: a program with variants does what the chosen one says, and what it was written for
// when none is chosen.
func TestVariants(t *testing.T) {
	variants := []variant{
		mutation(t, "adds-twice", "c.n += b", "c.n += 2 * b"),
		mutation(t, "adds-nothing", "c.n += b", "_ = b"),
		mutation(t, "pair-swapped", "fmt.Sprint(k, v)", "strings.ToUpper(fmt.Sprint(v, k))",
			`import "fmt"`, "import (\n\t\"fmt\"\n\t\"strings\"\n)"),
		mutation(t, "silent", `fmt.Println("ignores", s)`, "_ = s"),
		mutation(t, "two-functions", "c.n += b", "c.n -= b", "fmt.Sprint(k, v)", `"none"`),
	}
	for i := range variants {
		variants[i].number = i + 1
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "program")
	build := func(variants []variant) ([]byte, error) {
		t.Helper()
		text, err := join("main.go", "variants", program, variants)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{
			"go.mod": "module variants\n\ngo 1.26.0\n", "main.go": text, chooserDir + "/mutation.go": chooser,
		})
		cmd := exec.Command("go", "build", "-o", bin, ".")
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	wrong := mutation(t, "wrong", "c.n += b", "c.n += d")
	wrong.number = 9
	if p, err := build(append(slices.Clone(variants), wrong)); err == nil ||
		!strings.Contains(string(p), "/wrong/main.go:9") || strings.Contains(string(p), "/silent/") {
		t.Fatalf("what does not compile is not named: %v\n%s", err, p)
	}
	if p, err := build(variants); err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	for number, want := range []string{
		"3 a1\nignores s\n", "6 a1\nignores s\n", "0 a1\nignores s\n", "3 1A\nignores s\n", "3 a1\n",
		"-3 none\nignores s\n",
	} {
		cmd := exec.Command(bin)
		cmd.Env = append(os.Environ(), choice+"="+string(rune('0'+number)))
		if got, err := cmd.CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("%d: %q, %v, not %q", number, got, err, want)
		}
	}
}

// TestVariantsRefuses: a mutation of more than bodies is refused, and the error names it.
func TestVariantsRefuses(t *testing.T) {
	for want, v := range map[string]variant{
		"changes more":            mutation(t, "field", "n int", "n int64"),
		"changes more of":         mutation(t, "signature", "(sum int)", "(all int)"),
		"changes more of main.go": mutation(t, "new-function", "func main", "func other() {}\n\nfunc main"),
		"main.go:20:6":            mutation(t, "no-go", "func main", "func {}\n\nfunc main"),
	} {
		if _, err := join("main.go", "variants", program, []variant{v}); err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), v.mutation) {
			t.Errorf("%s: %v, not %q", v.mutation, err, want)
		}
	}
}
