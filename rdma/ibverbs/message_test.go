package ibverbs

import (
	"context"
	"reflect"
	"testing"
)

func TestMessages(t *testing.T) {
	e := ends{mtu: 5, readers: 16, starts: 8, ethernet: true, lid: 0x1234, gid: [16]byte{1, 15: 2}}
	rows := []row{{blade: 3, number: 0xabcdef, first: 0x123456}, {}}
	p := head(&e, len(rows))
	for i := range rows {
		p = rows[i].append(p)
	}
	got, n, err := getHead(p, rowSize)
	if err != nil || n != len(rows) || got != e {
		t.Fatalf("%+v, %d rows, %v; want %+v", got, n, err, e)
	}
	for i := range rows {
		var r row
		if r.get(p[headSize+i*rowSize:]); r != rows[i] {
			t.Errorf("row %d: %+v; want %+v", i, r, rows[i])
		}
	}
	a := answer{
		result: 1, number: 2, first: 3, readOnly: true, flush: true, address: 1 << 47, size: 1 << 40, mask: 0x89abcdef,
	}
	var b answer
	if b.get(a.append(nil)); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v; want %+v", b, a)
	}
	if len(a.append(nil)) != answerSize || len(rows[0].append(nil)) != rowSize || len(p) != headSize+2*rowSize {
		t.Error("sizes")
	}
}

// FuzzAnswer: no bytes that a client sends harm the server.
func FuzzAnswer(f *testing.F) {
	n := newNetwork()
	s, err := newServer(n.device("fake0"), ServerOptions{Blades: sizes(2, 1<<16)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Error(err)
		}
	})
	good := head(&s.ends, 2)
	good = (&row{blade: 1, number: 7}).append((&row{number: 8, first: 9}).append(good))
	f.Add(good)
	f.Add(good[:headSize])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		reply, err := s.Answer(ctx, p)
		if err != nil {
			return
		}
		theirs, rows, err := getHead(reply, answerSize)
		if err != nil || rows*rowSize != len(p)-headSize || theirs != s.ends {
			t.Errorf("%d bytes are answered with %d rows, %v", len(p), rows, err)
		}
		if s.Pairs() > 2*len(p) {
			t.Errorf("%d queue pairs", s.Pairs())
		}
	})
}
