package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"txnode/check"
	"txnode/history"
)

// attempt is one of a writer's attempts at a transaction. Before it commits, its journal has a line
//
//	? NUMBER TRY START FROM WAS TO TO-WAS
//
// with the accounts and the versions that they had. When the writer is told that the transaction is
// committed, the line
//
//	= NUMBER END
//
// says so of the last try. So the tries before it have had no effect, and what became of a last try
// without such a line is not known.
type attempt struct {
	writer, n, try uint64
	from, was      uint64
	to, toWas      uint64
	start, end     int64 // of a clock that all processes of the host share
	earlier        bool  // there was a later try
	at             int   // where its line begins in the journal
}

// version is what the accounts have that it writes.
func (a *attempt) version() uint64 { return a.writer<<44 | a.n<<14 | a.try }

// key is that of the transaction in the table of those that are done.
func (a *attempt) key() string { return fmt.Sprintf("%020d/%d", a.writer, a.n) }

func (a *attempt) line() string {
	return fmt.Sprintf("? %d %d %d %d %d %d %d", a.n, a.try, a.start, a.from, a.was, a.to, a.toWas)
}

func committedLine(n uint64, end int64) string { return fmt.Sprintf("= %d %d", n, end) }

// read reads a journal up to the last line that is whole.
func read(t *testing.T, journal string) []byte {
	t.Helper()
	p, err := os.ReadFile(journal)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return p[:bytes.LastIndexByte(p, '\n')+1]
}

// commits is how many transactions a journal says are committed.
func commits(t *testing.T, journal string) int {
	t.Helper()
	return bytes.Count(read(t, journal), []byte("\n= "))
}

// attempts are those of the journal of a writer.
func attempts(t *testing.T, journal string, writer uint64) (all []attempt) {
	t.Helper()
	at := 0
	for line := range strings.Lines(string(read(t, journal))) {
		f := strings.Fields(line)
		var v [7]uint64
		var err error
		for i := 1; i < min(len(f), 1+len(v)) && err == nil; i++ {
			v[i-1], err = strconv.ParseUint(f[i], 10, 64)
		}
		last := len(all) - 1
		switch {
		case err == nil && len(f) == 3 && f[0] == "=" && last >= 0 && all[last].n == v[0]:
			all[last].end = int64(v[1]) // it was one
		case err == nil && len(f) == 8 && f[0] == "?":
			if last >= 0 && all[last].n == v[0] {
				all[last].earlier = true
			}
			// it was one
			all = append(all, attempt{
				writer: writer, n: v[0], try: v[1], start: int64(v[2]), from: v[3], was: v[4],
				to: v[5], toWas: v[6], at: at,
			})
		default:
			t.Fatalf("%s: %q: %v", journal, line, err)
		}
		at += len(line)
	}
	return all
}

// history is what writers have attempted, and what beside them this process has done. Writers go on
// meanwhile. What is seen by an attempt that is in its journal already is in a journal, too. So
// journals are read after their lengths, and of the attempts behind these those alone count that
// were seen by another one which counts: their outcomes are not known.
func (c *chaos) history() []history.Txn {
	c.t.Helper()
	lengths := make([]int, len(c.journal))
	for i, j := range c.journal {
		lengths[i] = len(read(c.t, j))
	}
	all := slices.Clone(c.audits)
	for i, j := range c.journal {
		for _, a := range attempts(c.t, j, writerOf(i)) {
			all = append(all, a.txn(lengths[i]))
		}
	}
	return all
}

// writerOf is the number of the writer that has a journal: from 1 on, since versions below that of
// the first one are of no writer.
func writerOf(journal int) uint64 { return uint64(journal) + 1 } // it is an index

// txn is what an attempt is for package check, in a journal of which so many bytes count.
func (a *attempt) txn(length int) history.Txn {
	x := history.Txn{ID: a.version(), Start: a.start, End: a.end, Outcome: history.Committed}
	switch {
	case a.earlier:
		x.Outcome, x.End = history.Failed, a.start
	case a.end == 0 || a.at >= length:
		x.Outcome, x.End = history.Unknown, a.start
	}
	v := history.Version(a.version())
	x.Ops = append(x.Ops, history.Op{
		Key: history.Key(a.from), Kind: history.Write, Version: v, Prev: history.Version(a.was),
	})
	if a.to != a.from {
		x.Ops = append(x.Ops, history.Op{
			Key: history.Key(a.to), Kind: history.Write, Version: v, Prev: history.Version(a.toWas),
		})
	}
	return x
}

// TestChaosHistory: a journal is taken for what it says, and a history that no serial order
// explains is found.
func TestChaosHistory(t *testing.T) {
	for _, x := range []struct {
		name, journal string
		ok            bool
	}{
		{"two transactions", "? 1 1 10 0 1 1 1\n= 1 20\n? 2 1 30 0 17592186060801 1 17592186060801\n= 2 40\n", true},
		{"the second is not known", "? 1 1 10 0 1 1 1\n= 1 20\n? 2 1 30 0 1 1 17592186060801\n", true},
		{"a try again", "? 1 1 10 0 1 1 1\n? 1 2 10 0 1 1 1\n= 1 20\n", true},
		{"half a line", "? 1 1 10 0 1 1 1\n= 1 20\n? 2 1 30 0 1", true},
		{"a lost update", "? 1 1 10 0 1 1 1\n= 1 20\n? 2 1 30 0 1 2 1\n= 2 40\n", false},
		{
			"a read of a try without effect",
			"? 1 1 10 0 1 1 1\n? 1 2 10 0 1 1 1\n= 1 20\n? 2 1 30 0 17592186060801 2 1\n= 2 40\n", false,
		},
		{"half a transaction", "? 1 1 10 0 1 1 1\n= 1 20\n? 2 1 30 0 17592186060801 1 1\n= 2 40\n", false},
	} {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, []byte(x.journal), 0o600); err != nil {
			t.Fatal(err)
		}
		c := chaos{t: t, journal: []string{path}, audits: []history.Txn{{Outcome: history.Committed, End: 1}}}
		for a := range history.Key(3) {
			c.audits[0].Ops = append(c.audits[0].Ops, history.Op{Key: a, Kind: history.Write, Version: 1})
		}
		if err := check.Check(c.history(), check.Options{FromEmpty: true}).Err(); (err == nil) != x.ok {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
