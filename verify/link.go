package verify

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// A live record without an entry gets one in the leaf that is responsible for its key, if that is
// what must have been there: the tree is sound, the key has no entry, and no other block without an
// entry has the key. Else nothing tells which of the blocks is newer.

// restoreEntry reports a live record to which no leaf leads, and links it. sole: no other orphan has
// its key.
func (w *walker) restoreEntry(o *orphan, sole bool) {
	f := o.finding
	at, img, why := layout.Addr(0), record.Image(nil), "another block to which nothing leads has the same key"
	if sole {
		at, img, why = w.withEntry(o)
	}
	if why != "" {
		f.What += "; it cannot be linked: " + why
		w.found(f)
		return
	}
	if w.proves() {
		f.Remedy = fmt.Sprintf("the leaf at %v links it", at)
	}
	if w.o.Repair {
		for k := w.v.Copies(at) - 1; k >= 0 && f.Failed == nil; k-- {
			to := w.v.At(at, k)
			f.Failed = w.write(rdma.RemoteAddr{Blade: to.Blade, Key: w.v.Key(to.Blade), Off: to.Off}, img)
		}
		f.Repaired = f.Failed == nil
	}
	if w.found(f); f.Repaired {
		w.table(o.table).Records++
		w.table(o.table).Entries++
	}
}

// withEntry returns the image of the leaf that is responsible for an orphan's key, with an entry of
// it, or why there can be none.
func (w *walker) withEntry(o *orphan) (at layout.Addr, img record.Image, why string) {
	if len(w.l.Coordinators) > 0 || w.unswept() {
		return 0, nil, "the next opening settles first what dead coordinators have left"
	}
	t := &w.l.Tables[o.table-1]
	row := record.Image(w.read(o.finding.Addr, 0, w.whole[0], o.class.Size()))
	if row == nil {
		return 0, nil, "it cannot be read any more"
	}
	key := bytes.Clone(row.Key())
	if _, other, err := w.lookup(*t, key); err == nil {
		return 0, nil, fmt.Sprintf("its key has an entry, which leads to %v", other)
	}
	at, value, err := w.leaf(*t, key)
	if err != nil {
		return 0, nil, err.Error()
	}
	class := w.l.Segments[at.Segment()].Class
	for k := range w.v.Copies(at) {
		x := record.Image(w.read(at, k, w.whole[0], class.Size()))
		switch {
		case x == nil || badImage(x, at) || x.Guard().Held() || !bytes.Equal(x.Value(), value):
			return 0, nil, fmt.Sprintf("copy %d of the leaf at %v is locked, or damaged", k, at)
		case k == 0:
			img = make(record.Image, class.Size())
			img.Put(at, x.Version(), record.Node, o.table, class, 0, nil, nil)
		}
	}
	value, err = addEntry(t, value, class, key, o)
	if err != nil {
		return 0, nil, fmt.Sprintf("the leaf at %v: %v", at, err)
	}
	n := img.Put(at, img.Version(), record.Node, o.table, class, 0, nil, value)
	return at, img[:n], ""
}

// addEntry returns the value of a leaf with one more entry.
func addEntry(t *layout.Table, value []byte, class layout.Class, key []byte, o *orphan) ([]byte, error) {
	var images int
	var image func() []byte
	if t.Ordered() {
		n, err := blink.Decode(value)
		if err != nil {
			return nil, err
		}
		var b blink.Builder
		images, err = b.Apply(tree.GeometryOf(t), n, []blink.Change{
			{Op: blink.Insert, Key: key, Addr: o.finding.Addr, Class: o.class},
		})
		if err != nil {
			return nil, err
		}
		image = func() []byte { return b.AppendImage(nil, 0, n.Right()) }
	} else {
		l, _, err := tree.Leaf(value)
		if err != nil {
			return nil, err
		}
		var b bucket.Builder
		images, err = b.Apply(int(class.Size())-record.LineSize-bucket.HeadSize, l, []bucket.Change{
			{Op: bucket.Link, Hash: bucket.HashOf(o.hash), Addr: o.finding.Addr, Class: o.class},
		})
		if err != nil {
			return nil, err
		}
		image = func() []byte { return b.AppendBody(b.AppendHead(nil, 0, l.Right()), 0) }
	}
	if images > 1 {
		return nil, errors.New("it has no room for another entry, and no repair splits it; txnode inspect shows the " +
			"record: insert its key anew")
	}
	return image(), nil
}
