//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReport runs a module with tests that pass, fail, are skipped, panic, and do not compile.
func TestReport(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n",
		"good/g_test.go": "package good\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Run(\"sub\", func(t " +
			"*testing.T) {}) }\nfunc TestS(t *testing.T) { t.Skip(\"not here\") }\n",
		"bad/b_test.go": "package bad\nimport \"testing\"\nfunc TestB(t *testing.T) { t.Error(\"1 is not 2\") }\n",
		"ill/i_test.go": "package ill\nfunc x() int { return \"\" }\n",
		"none/none.go":  "package none\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	var out, stderr bytes.Buffer
	r := newReport(&out, nil)
	r.begin("twice")
	code, err := watch(step{dir: dir, args: []string{"go", "test", "-json", "-vet=off", "./..."}},
		time.Hour, r, &stderr)
	r.flush()
	if code == 0 || err != nil || r.end() {
		t.Errorf("exit code %d, error %v\n%s", code, err, stderr.String())
	}
	for _, want := range []string{
		"ok  ", "m/good [twice]", "3 tests", "=== FAIL: m/bad [twice] TestB",
		"1 is not 2", "=== FAIL: m/ill [twice]", "cannot use \"\"",
		"not here: m/good [twice] TestS", "DONE 5 tests, 1 skipped, 2 failures in ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "none") {
		t.Errorf("a package without tests is shown:\n%s", out.String())
	}
}

func TestParse(t *testing.T) {
	steps, err := parse(strings.Fields(":: go test a :: label=race dir=x go vet label=no"))
	if err != nil || len(steps) != 2 || steps[1].label != "race" || steps[1].dir != "x" || len(steps[1].args) != 3 ||
		len(steps[0].args) != 3 {
		t.Errorf("%+v, %v", steps, err)
	}
	for _, bad := range []string{"", "go", "::", ":: go ::"} {
		if _, err := parse(strings.Fields(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
