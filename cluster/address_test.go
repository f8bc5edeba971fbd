package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAbsoluteAddresses: what is written into a catalog leads to the same server from every
// directory.
func TestAbsoluteAddresses(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[BladeAddress]BladeAddress{
		"unix:b0":     BladeAddress("unix:" + filepath.Join(here, "b0")),
		"unix://../b": BladeAddress("unix:" + filepath.Join(filepath.Dir(here), "b")),
		"shm:d/a":     BladeAddress("shm:" + filepath.Join(here, "d/a")), "unix:/tmp/b": "unix:/tmp/b",
		"unix:///tmp/b": "unix:///tmp/b", "shm:/dev/shm/x/a": "shm:/dev/shm/x/a",
		"unix:@b": "unix:@b", "tcp:host:1": "tcp:host:1", "host:1": "host:1", "unix:": "unix:",
	} {
		if got, err := a.absolute(); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", a, got, err, want)
		}
	}
}
