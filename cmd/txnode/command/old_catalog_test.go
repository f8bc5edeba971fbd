package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOldCatalog: somebody has put a copy of the file of a catalog back. Each command that looks at
// the cluster says so, and none says anything else of the database, which is of another time; with
// the newest file all is well.
func TestOldCatalog(t *testing.T) {
	c := newSmallCluster(t, []string{"x", "y"}, "--replicas", "1")
	file := filepath.Join(c.dir, "data", "catalog.db")
	exchange := func(content []byte) (was []byte) {
		t.Helper()
		c.ends["catalog"]()
		was, err := os.ReadFile(file)
		if err == nil && content != nil {
			err = os.WriteFile(file, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.serveCatalog()
		return was
	}
	old := exchange(nil)
	if err := c.open().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	newest := exchange(old)
	for _, args := range [][]string{
		{"cluster", "status", c.catalog}, {"doctor", c.catalog}, {"check", c.catalog}, {"get", c.catalog, "words", "1"},
	} {
		code, out, stderr := inSystem(t, args...)
		if all := strings.Join(strings.Fields(out+stderr), " "); code != 1 ||
			!strings.Contains(all, "is an old copy: it is at revision") || strings.Contains(all, "finding") {
			t.Errorf("%v: exit code %d, %s", args, code, all)
		}
	}
	if advice := c.advice("fail", "catalog", "is an old copy"); !strings.Contains(advice, "bring back the newest") {
		t.Errorf("doctor: %s", advice)
	}
	exchange(newest)
	c.content()
}
