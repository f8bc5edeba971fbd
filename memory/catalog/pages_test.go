package catalog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"txnode/memory/layout"
)

// FuzzPages: whatever bytes a file has, looking at its structure ends with an error or
// without.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "c.db")
	c, err := OpenBolt(path, false)
	if err != nil {
		f.Fatal(err)
	}
	rev := c.rev
	for round := range 6 {
		var changes []layout.Entry
		for i := range 1 << round {
			changes = append(changes, layout.Entry{Key: fmt.Sprintf("key/%d", i), Value: make([]byte, 700*round+1)})
		}
		if rev, err = c.Apply(rev, changes); err != nil {
			f.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	size := os.Getpagesize()
	if _, err := checkPages(bytes.NewReader(good), int64(len(good)), size); err != nil {
		f.Fatalf("of a good file: %v", err)
	}
	f.Add(uint32(0), []byte{})
	for page := range len(good) / size {
		f.Add(uint32(page*size), good[page*size:page*size+24])
		f.Add(uint32(page*size+8), []byte{byte(pageBranch), 0, 0xff, 0xff, 0xff})
		f.Add(uint32(page*size+16), bytes.Repeat([]byte{byte(page + 1)}, 64))
	}
	f.Fuzz(func(t *testing.T, at uint32, change []byte) {
		b := bytes.Clone(good)
		copy(b[int(at)%len(b):], change)
		// The checksums of the meta pages would keep most changes from being seen.
		for id := range 2 {
			fixMeta(b[id*size+pageHeader:])
		}
		if _, err := checkPages(bytes.NewReader(b), int64(len(b)), size); err != nil && bytes.Equal(b, good) {
			t.Error(err)
		}
	})
}

// fixMeta gives a meta page the checksum of what it says.
func fixMeta(p []byte) {
	sum := fnv.New64a()
	_, _ = sum.Write(p[:metaSum])
	binary.NativeEndian.PutUint64(p[metaSum:], sum.Sum64())
}
