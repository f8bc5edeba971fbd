package race

import (
	"fmt"
	"testing"

	"txnode/index/indextest"
)

func TestSmoke(t *testing.T) {
	m := indextest.NewMemory(t, indextest.MemoryOptions{})
	th := m.Thread(t)
	c := th.Plain()
	root, ix, err := Create(c, m, 7, Options{Groups: 4, MaxDepth: 10})
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.NewClient(c, ix, 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if _, err := k.Insert([]byte(fmt.Sprint("key", i)), []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(i, err)
		}
	}
	ix2, err := Open(c, m, root, 7)
	if err != nil {
		t.Fatal(err)
	}
	k.Index = ix2
	for i := range 3000 {
		v, err := k.Get([]byte(fmt.Sprint("key", i)))
		if err != nil || string(v) != fmt.Sprint(i) {
			t.Fatal(i, string(v), err)
		}
	}
	s, err := ix.Stats(c)
	t.Logf("%+v %v load %.3f", s, err, s.LoadFactor())
	for i := range 3000 {
		if i%2 == 0 {
			err = k.Delete([]byte(fmt.Sprint("key", i)))
		} else {
			err = k.Move([]byte(fmt.Sprint("key", i)))
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	for i := range 3000 {
		v, err := k.Get([]byte(fmt.Sprint("key", i)))
		if err != nil || i%2 == 0 && v != nil || i%2 == 1 && string(v) != fmt.Sprint(i) {
			t.Fatal(i, string(v), err)
		}
	}
}
