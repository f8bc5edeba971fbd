package txn_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/txn"
)

// dozing is the catalog of a process that is stopped as soon as the catalog has given it a right,
// while a function runs: what the process asks meanwhile waits.
type dozing struct {
	layout.Catalog
	mu      sync.Mutex
	stopped chan struct{} // nil: the process runs
	sleep   func()        // nil: it has slept
}

func (s *dozing) wait() {
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

func (s *dozing) Load() ([]layout.Entry, layout.Revision, error) {
	s.wait()
	return s.Catalog.Load()
}

func (s *dozing) Revision() (layout.Revision, error) {
	s.wait()
	return s.Catalog.Revision()
}

func (s *dozing) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	s.wait()
	return s.Catalog.KeepAlive(b)
}

func (s *dozing) Await(ctx context.Context, rev layout.Revision) (layout.Revision, error) {
	s.wait()
	now, err := s.Catalog.Await(ctx, rev)
	s.wait()
	return now, err
}

func (s *dozing) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	s.wait()
	rev, err := s.Catalog.Apply(rev, changes)
	s.mu.Lock()
	fn := s.sleep
	if fn == nil || err != nil || !slices.ContainsFunc(changes, func(e layout.Entry) bool {
		return strings.HasPrefix(e.Key, "mend/") && e.Value != nil
	}) {
		s.mu.Unlock()
		return rev, err
	}
	stopped := make(chan struct{})
	s.sleep, s.stopped = nil, stopped
	s.mu.Unlock()
	fn()
	s.mu.Lock()
	s.stopped = nil
	s.mu.Unlock()
	close(stopped)
	return rev, err
}

// TestRightsNoMore: a process that has the right to drop tables, or is alone with the database to
// restore it, is stopped past its lease before it does so. Another one ends it meanwhile, and uses
// a table. The first one goes on, and changes nothing.
func TestRightsNoMore(t *testing.T) {
	type doc struct{ Tag, Text string }
	ctx := t.Context()
	create := func(db *txn.DB, indexes ...txn.TableIndex[uint64, doc]) (*txn.Table[uint64, doc], error) {
		return txn.CreateTable(db, "docs", txn.Uint64, txn.JSON[doc](), indexes...)
	}
	byTag := func() txn.TableIndex[uint64, doc] {
		return txn.NewIndex("by_tag", txn.String, func(_ uint64, d doc) []string { return []string{d.Tag} })
	}
	put := func(db *txn.DB, docs *txn.Table[uint64, doc], k uint64, text string) error {
		return db.Update(ctx, func(tx *txn.Tx) error { return docs.Put(tx, k, doc{"a", text}) })
	}
	var backup bytes.Buffer
	{
		db := mustOpen(t, sharedOn(t, 2))
		docs, err := create(db)
		if err == nil {
			err = put(db, docs, 2, "of the backup")
		}
		if err == nil {
			_, err = db.Backup(ctx, &backup, txn.BackupOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		indexed bool // what is there before
		empty   bool
		act     func(db *txn.DB) error
	}{
		{name: "drop a table", act: func(db *txn.DB) error { return db.DropTable(ctx, "docs") }},
		{name: "drop an index", indexed: true, act: func(db *txn.DB) error {
			return db.DropIndex(ctx, "docs", "by_tag")
		}},
		{name: "restore", empty: true, act: func(db *txn.DB) error {
			_, err := db.Restore(ctx, bytes.NewReader(backup.Bytes()), txn.BackupOptions{})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			indexes := func() (all []txn.TableIndex[uint64, doc]) {
				if c.indexed {
					all = append(all, byTag())
				}
				return all
			}
			o := sharedOn(t, 2)
			s := &dozing{Catalog: o.Catalog}
			o.LeaseTerm = 500 * time.Millisecond
			qo := o
			o.Catalog, o.LeaseTerm = s, 100*time.Millisecond
			p := mustOpen(t, o)
			if !c.empty {
				docs, err := create(p, indexes()...)
				if err == nil {
					err = put(p, docs, 1, "before")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var q *txn.DB
			var theirs *txn.Table[uint64, doc]
			was := p.Space().Process()
			s.mu.Lock()
			s.sleep = func() {
				var err error
				for q == nil && (err == nil || errors.Is(err, memory.ErrShared)) && ctx.Err() == nil {
					q, err = txn.Open(ctx, qo) // which waits until the lease has ended
				}
				if err == nil {
					until(t, "its registration is ended", func() bool {
						l := q.Space().Layout()
						return l.Process(was) == nil && l.Holder(layout.RightDrop) == 0
					})
					theirs, err = create(q, indexes()...)
				}
				if err == nil {
					err = put(q, theirs, 2, "meanwhile")
				}
				if err != nil {
					t.Error(err)
				}
			}
			s.mu.Unlock()
			err := c.act(p)
			if t.Failed() || theirs == nil {
				t.Fatal("nothing was done meanwhile")
			}
			if !errors.Is(err, memory.ErrEnded) || c.empty != errors.Is(err, memory.ErrShared) {
				t.Errorf("it was ended, and gets: %v", err)
			}
			if err := put(q, theirs, 3, "after"); err != nil {
				t.Errorf("the other process writes: %v", err)
			}
			for _, x := range q.Space().Layout().Tables {
				if x.State != layout.TableLive || !c.indexed && strings.Contains(string(x.Options), "by_tag") {
					t.Errorf("table %q is in state %v, with options %s", x.Name, x.State, x.Options)
				}
			}
			if err := errors.Join(p.Close(ctx), q.Close(ctx)); err != nil {
				t.Error(err)
			}
			again := mustOpen(t, qo)
			docs, err := txn.OpenTable(again, "docs", txn.Uint64, txn.JSON[doc](), indexes()...)
			if err != nil {
				t.Fatal(err)
			}
			for k, text := range map[uint64]string{2: "meanwhile", 3: "after"} {
				if err := again.View(ctx, func(tx *txn.Tx) error {
					d, err := docs.Get(tx, k)
					if d.Text != text {
						t.Errorf("record %d is %v", k, d)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
