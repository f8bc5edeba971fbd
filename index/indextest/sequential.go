package indextest

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"txnode/index"
	"txnode/rdma"
)

// model does random operations through two handles, one at a time, and compares
// with a map.
func model(t *testing.T, s Subject) {
	rapid.Check(t, func(rt *rapid.T) {
		copies := rapid.IntRange(1, 3).Draw(rt, "copies")
		m, root, k0 := start(t, s, MemoryOptions{Copies: copies, SegmentSize: 64 << 10, Segments: 128})
		clients := []*Client{k0, another(t, s, m, root, m.Thread(t).Plain())}
		want := map[int]string{}
		nameOf := rapid.IntRange(0, 150)
		rt.Repeat(map[string]func(*rapid.T){
			"insert": func(rt *rapid.T) {
				k, i := clients[rapid.IntRange(0, 1).Draw(rt, "client")], nameOf.Draw(rt, "key")
				v := fmt.Sprintf("%0*d", rapid.SampledFrom([]int{1, 30, 200}).Draw(rt, "width"), i)
				_, err := k.Insert(name(i), []byte(v))
				if _, ok := want[i]; ok != errors.Is(err, ErrExists) || !ok && err != nil {
					rt.Fatalf("insert of key %d, there: %v: %v", i, ok, err)
				} else if !ok {
					want[i] = v
				}
			},
			"delete": func(rt *rapid.T) {
				k, i := clients[rapid.IntRange(0, 1).Draw(rt, "client")], nameOf.Draw(rt, "key")
				err := k.Delete(name(i))
				if _, ok := want[i]; ok != (err == nil) || !ok && !errors.Is(err, ErrNotFound) {
					rt.Fatalf("delete of key %d, there: %v: %v", i, ok, err)
				}
				delete(want, i)
			},
			"move": func(rt *rapid.T) {
				k, i := clients[rapid.IntRange(0, 1).Draw(rt, "client")], nameOf.Draw(rt, "key")
				err := k.Move(name(i))
				if _, ok := want[i]; ok != (err == nil) || !ok && !errors.Is(err, ErrNotFound) {
					rt.Fatalf("move of key %d, there: %v: %v", i, ok, err)
				}
			},
			"get": func(rt *rapid.T) {
				k, i := clients[rapid.IntRange(0, 1).Draw(rt, "client")], nameOf.Draw(rt, "key")
				v, err := k.Get(name(i))
				if w, ok := want[i]; err != nil || ok != (v != nil) || string(v) != w {
					rt.Fatalf("key %d is %q, should be %q: %v", i, v, w, err)
				}
				if same, err := k.Unchanged(); err != nil || !same {
					rt.Fatalf("a lookup of key %d, repeated at once, has changed: %v", i, err)
				}
			},
		})
		for i := range 151 {
			for _, k := range clients {
				v, err := k.Get(name(i))
				if w, ok := want[i]; err != nil || ok != (v != nil) || string(v) != w {
					rt.Fatalf("at the end key %d is %q, should be %q: %v", i, v, w, err)
				}
			}
		}
		if err := s.Verify(k0.C, k0.Index); err != nil {
			rt.Fatal(err)
		}
		for _, k := range clients {
			k.Close()
		}
	})
}

// absence: what Unchanged says of a lookup that found nothing, after others have
// done this and that.
func absence(t *testing.T, s Subject) {
	m, root, k := start(t, s, MemoryOptions{})
	other := another(t, s, m, root, m.Thread(t).Plain())
	for i := range 500 { // the index grows underneath
		if a, _, err := k.Find(name(i)); a != 0 || err != nil {
			t.Fatalf("key %d: %v, %v", i, a, err)
		}
		if same, err := k.Unchanged(); !same || err != nil {
			t.Fatalf("key %d, nothing has changed: %v, %v", i, same, err)
		}
		if _, err := other.Insert(name(i), name(i)); err != nil {
			t.Fatal(err)
		}
		if same, err := k.Unchanged(); same || err != nil {
			t.Fatalf("the insert of key %d was not noticed: %v", i, err)
		}
		if i%2 == 0 {
			if err := other.Delete(name(i)); err != nil {
				t.Fatal(err)
			}
			if same, err := k.Unchanged(); same || err != nil {
				t.Fatalf("it was not noticed that key %d was inserted and deleted: %v", i, err)
			}
			if _, err := other.Insert(name(i), name(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Resolve(name(i)); err != nil || len(k.Query.Candidates) == 0 {
			t.Fatalf("key %d: %v, %v", i, k.Query.Candidates, err)
		}
		if same, err := k.Unchanged(); !same || err != nil {
			t.Fatalf("key %d, found, nothing has changed: %v, %v", i, same, err)
		}
		if i%3 == 0 {
			if err := other.Move(name(i)); err != nil {
				t.Fatal(err)
			}
			if same, err := k.Unchanged(); same || err != nil {
				t.Fatalf("the move of key %d was not noticed: %v", i, err)
			}
		}
		if i%5 == 0 {
			if err := k.Resolve(name(i)); err != nil {
				t.Fatal(err)
			}
			if err := other.Delete(name(i)); err != nil {
				t.Fatal(err)
			}
			if same, err := k.Unchanged(); same || err != nil {
				t.Fatalf("the delete of key %d was not noticed: %v", i, err)
			}
		}
	}
	verify(t, s, k)
}

// buffers: the lookups of several keys share a round trip, most of them need no
// other, and no query touches arena outside its buffers.
func buffers(t *testing.T, s Subject) {
	_, _, k := start(t, s, MemoryOptions{})
	for i := range 100 {
		if _, err := k.Insert(name(i), name(i)); err != nil {
			t.Fatal(err)
		}
	}
	const queries = 8
	th := k.C.Thread()
	gap := 64
	each := (k.Index.BufferSize()+63)&^63 + gap
	at, err := th.Alloc(queries*each + gap)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Free(at, queries*each+gap)
	const rounds = 20
	more := uint64(0)
	for round := range rounds {
		p := th.Bytes(at, uint32(queries*each+gap))
		for i := range p {
			p[i] = 0xa5
		}
		q := make([]index.Query, queries)
		var b rdma.Batch
		trips := k.C.Count.RoundTrips
		for i := range q {
			q[i] = k.newQuery(name(round*5+i), at+uint32(gap+i*each))
			k.Index.Search(&b, &q[i])
		}
		if err := k.C.Do(&b); err != nil {
			t.Fatal(err)
		}
		for i := range q {
			if again, err := k.Index.Resolve(k.C, &q[i]); again || err != nil {
				t.Fatal(again, err)
			}
			if (len(q[i].Candidates) == 0) != (round*5+i >= 100) {
				t.Errorf("key %d has candidates %v", round*5+i, q[i].Candidates)
			}
		}
		more += k.C.Count.RoundTrips - trips - 1
		for i := range queries + 1 {
			for j, x := range p[i*each : i*each+gap] {
				if x != 0xa5 {
					t.Fatalf("byte %d in front of query %d was overwritten", j-gap, i)
				}
			}
		}
	}
	if more > rounds*queries/2 {
		t.Errorf("%d of %d lookups needed a round trip of their own", more, rounds*queries)
	}
}

// allocations: lookups and validations allocate nothing.
func allocations(t *testing.T, s Subject) {
	_, _, k := start(t, s, MemoryOptions{})
	for i := range 300 {
		if _, err := k.Insert(name(i), name(i)); err != nil {
			t.Fatal(err)
		}
	}
	names := make([][]byte, 400)
	for i := range names {
		names[i] = name(i)
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		i++
		if err := k.Resolve(names[i%len(names)]); err != nil {
			t.Fatal(err)
		}
		if same, err := k.Unchanged(); !same || err != nil {
			t.Fatal(same, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per lookup", n)
	}
}
