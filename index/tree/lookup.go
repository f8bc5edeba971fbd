package tree

import (
	"txnode/index"
	"txnode/memory"
	"txnode/memory/record"
	"txnode/rdma"
)

// Words of index.Query.State.
const (
	leafAt      = 0 // address of the block that was read last
	leafVersion = 1 // its version
)

// maxLooks bounds how many blocks a lookup reads that do not lead further.
const maxLooks = 64

// maxHops is how many blocks it follows at most.
const maxHops = 1024

// BufferSize is the size of a node's block in bytes.
func (t *Tree) BufferSize() int { return int(t.geometry.Class.Size()) }

// Search appends the READ of the block that is the next on the way to q's key.
func (t *Tree) Search(b *rdma.Batch, q *index.Query) {
	a := t.Find(index.PlaceOf(q.Key)).Addr
	if !q.View.Valid(a) {
		a = t.at
	}
	q.State[leafAt] = uint64(a)
	t.read(b, q, a)
}

func (t *Tree) read(b *rdma.Batch, q *index.Query, a memory.Addr) {
	n := uint32(record.LineSize)
	if a != t.at {
		n = t.geometry.Class.Size()
	}
	b.Read(q.View.At(a, 0), q.Local, n)
}

// Resolve goes on to the leaf that is responsible for q's key. A leaf that is locked serves as well:
// what it links was committed.
func (t *Tree) Resolve(c *rdma.Coro, q *index.Query) (again bool, err error) {
	q.Thread = c.Thread()
	q.Candidates = q.Candidates[:0]
	a, p := memory.Addr(q.State[leafAt]), index.PlaceOf(q.Key)
	img := record.Image(q.Thread.Bytes(q.Local, t.geometry.Class.Size()))
	value, ok := t.Value(a, img)
	if ok {
		_, here, err := t.Follow(p, a, value)
		if err != nil {
			return false, err
		}
		q.State[leafVersion] = uint64(img.Version())
		ok = here
	}
	if !ok {
		if value, _, err = t.reach(c, q, p); err != nil {
			return false, err
		}
	}
	if x, found := t.Entry(value, q.Key); found {
		q.Candidates = append(q.Candidates, x)
	}
	return false, nil
}

// Validate appends the READ of the leaf's guard.
func (t *Tree) Validate(b *rdma.Batch, q *index.Query, buffer uint32) {
	g := q.View.At(memory.Addr(q.State[leafAt]), 0)
	g.Off += record.GuardOff
	b.Read(g, buffer, 8)
}

// Unchanged reports whether the leaf still has the version that was read.
func (t *Tree) Unchanged(q *index.Query, buffer uint32) bool {
	return record.Guard(q.Thread.Word(buffer)) == record.FreeAt(record.TxID(q.State[leafVersion]))
}
