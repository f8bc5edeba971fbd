package exhaustive

import (
	"errors"
	"slices"
	"strings"

	"txnode/index"
)

// op is one step of a transaction.
type op struct {
	what  opKind
	key   string
	value string
}

type opKind uint8

const (
	opGet    opKind = iota
	opLock          // fetch for update, and not write
	opPut           // fetch for update, and write
	opLate          // write what was fetched for reading: locked at commit
	opInsert        // fail if it has a value
	opDelete        //
	opThen          // what was staged is fetched, before the next
	opEdit          // opPut, after what was read has been changed in place
	opRoll          // roll back
	opNext          // commit, and begin another
	opRest          // wait until everything is at rest, then maintain the session
	opScan          // range over all keys from this one on, of an ordered table
	opGone          // nothing: before anybody begins, another client has deleted the key, whose tombstone it keeps
)

// k is a key of 8 bytes.
func k(s string) string { return (s + "........")[:8] }

func get(key string) op          { return op{opGet, k(key), ""} }
func edit(key, v string) op      { return op{opEdit, k(key), v} }
func lock(key string) op         { return op{opLock, k(key), ""} }
func put(key, v string) op       { return op{opPut, k(key), v} }
func late(key, v string) op      { return op{opLate, k(key), v} }
func insert(key, v string) op    { return op{opInsert, k(key), v} }
func del(key string) op          { return op{opDelete, k(key), ""} }
func then() op                   { return op{what: opThen} }
func roll() op                   { return op{what: opRoll} }
func next() op                   { return op{what: opNext} }
func rest() op                   { return op{what: opRest} }
func scan(from string) op        { return op{opScan, from, ""} }
func gone(key string) op         { return op{opGone, k(key), ""} }
func big(c string, n int) string { return strings.Repeat(c, n) }

var errExists = errors.New("has a value")

// errRolled is what a transaction ends with that rolls itself back.
var errRolled = errors.New("rolled back")

// do runs the transactions that ops are, each once.
func (s *client) do(ops ...op) error {
	for len(ops) > 0 {
		n := slices.IndexFunc(ops, func(o op) bool { return o.what == opNext })
		one := ops
		if n >= 0 {
			one, ops = ops[:n], ops[n+1:]
		} else {
			ops = nil
		}
		if len(one) == 1 && one[0].what == opRest {
			if err := s.session.Maintain(s.c); err != nil {
				return err
			}
			continue
		}
		s.counted = true
		err := s.once(one)
		s.counted = false
		s.told = append(s.told, err)
		if s.table.Ordered != nil && s.session.Broken() == nil {
			if err := s.tx.Posts(s.table); err != nil {
				return err
			}
		}
		if s.session.Broken() != nil {
			return s.session.Broken()
		}
	}
	return nil
}

func (s *client) once(ops []op) error {
	tx := s.tx
	if err := tx.Begin(); err != nil {
		return err
	}
	if s.counted {
		s.ids = append(s.ids, tx.ID())
	}
	if s.counted && s.w.conf.atEnd {
		tx.ValidateAtEnd()
	}
	err := s.steps(ops)
	if err == nil {
		return tx.Commit()
	}
	if s.counted && s.w.conf.witnessed && (errors.Is(err, errRolled) || errors.Is(err, errExists)) {
		if e := tx.Certify(); e != nil { // as who acts on what it has seen
			err = e
		} else {
			tx.Witness(s.w.rec.Session())
		}
	}
	if e := tx.Rollback(); e != nil {
		return errors.Join(err, e)
	}
	return err
}

func (s *client) steps(ops []op) error {
	tx := s.tx
	for len(ops) > 0 {
		n := slices.IndexFunc(ops, func(o op) bool { return o.what == opThen })
		if n < 0 {
			n = len(ops)
		}
		part := ops[:n]
		ops = ops[min(n+1, len(ops)):]
		at := make([]int, len(part))
		for i, o := range part {
			if o.what == opRoll || o.what == opGone || o.what == opScan {
				continue
			}
			var err error
			if at[i], err = tx.Stage(s.table, []byte(o.key), o.what != opGet && o.what != opLate); err != nil {
				return err
			}
			if o.what == opInsert {
				if err := tx.Insert(at[i], []byte(o.value)); err != nil {
					return err
				}
			}
		}
		if err := tx.Execute(); err != nil {
			return err
		}
		if c := s.w.conf; s.counted && c.witnessed && !c.atEnd && c.byDefault() {
			tx.Witness(s.w.rec.Session())
		}
		for i, o := range part {
			var err error
			switch o.what {
			case opEdit:
				if v, ok := tx.Read(at[i]); ok && len(v) > 0 {
					v[0] = '!'
				}
				err = tx.Put(at[i], []byte(o.value))
			case opPut, opLate:
				err = tx.Put(at[i], []byte(o.value))
			case opDelete:
				err = tx.Delete(at[i])
			case opInsert:
				if tx.Found(at[i]) {
					tx.Withdraw(at[i])
					err = errExists
				}
			case opRoll:
				err = errRolled
			case opScan:
				err = s.scan(o.key)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// scan ranges over all keys from one on, or, where they have no order, over all.
func (s *client) scan(from string) error {
	r, err := s.tx.Scan(s.table)
	if !s.table.Hashed {
		r, err = s.tx.Range(s.table, index.Bound{Key: []byte(from)}, index.Bound{End: true}, false, 0)
	}
	if err != nil {
		return err
	}
	for {
		if _, _, ok, err := r.Next(); !ok || err != nil {
			return err
		}
	}
}

// warm reads keys, so that their addresses are cached, and fetches free blocks, so
// that inserts and moves need not.
func (s *client) warm(keys ...string) {
	s.w.t.Helper()
	s.tx.Record(nil, nil)
	for _, v := range []string{"", big("x", 100), big("x", 200)} {
		if err := s.once([]op{insert("fresh", v), roll()}); !errors.Is(err, errRolled) {
			s.w.t.Fatal(err)
		}
	}
	for _, key := range keys {
		if err := s.once([]op{{opGet, key, ""}}); err != nil {
			s.w.t.Fatal(err)
		}
	}
	s.tx.Record(s.w.rec.Session(), func() int64 { s.w.tick++; return s.w.tick })
}

// tombstones has a client of its own delete the keys that are to be gone: until its session
// reclaims them, their blocks stay linked. It is nil when there are none.
func (w *world) tombstones(ops []op) (keeper *client) {
	w.t.Helper()
	var done []string
	for _, o := range ops {
		if o.what != opGone || slices.Contains(done, o.key) {
			continue
		}
		if done = append(done, o.key); keeper == nil {
			keeper = w.client()
			keeper.warm()
		}
		if err := keeper.once([]op{{opDelete, o.key, ""}}); err != nil {
			w.t.Fatal(err)
		}
	}
	return keeper
}

// keysOf lists the keys that ops name.
func keysOf(ops []op) (keys []string) {
	for _, o := range ops {
		if o.key != "" && o.what != opScan && !slices.Contains(keys, o.key) {
			keys = append(keys, o.key)
		}
	}
	return keys
}

// txn is a small transaction.
type txn struct {
	name string
	ops  []op
}

// opsOf are those of all of them.
func opsOf(txns []txn) (all []op) {
	for _, x := range txns {
		all = append(all, x.ops...)
	}
	return all
}
