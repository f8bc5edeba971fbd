package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"txnode/check"
	"txnode/history"
	"txnode/txn"
)

// TestHistories has several processes use one database, registers, lists, a bank, and an
// ordered table with an index, while one after the other is cut off the catalog, blades, or
// both, one way or both, or is stopped: for times around every deadline that there is. Where
// the host has no network for the test alone, they are stopped only. In the end the history of
// all of them is strictly serializable by package check (and by the real Elle, if a program
// elle-cli is there), each has seen the same money and an index that agrees with its table, and
// txnode check finds nothing.
func TestHistories(t *testing.T) {
	rounds := *chaosRounds
	if rounds == 0 {
		rounds = 2
		if testing.Short() {
			rounds = 1
		}
	}
	net, dir := joined()
	if net == nil {
		why := apart(t, rounds)
		if why == "" {
			return
		}
		t.Logf("cutting processes off: SKIPPED, they are stopped only; this host has no network for the test alone: %s",
			why)
	}
	h := &histories{chaos: &chaos{
		t: t, net: net, dir: dir, lease: memberLease, blades: make([]*exec.Cmd, chaosBlades),
		writers: make([]*exec.Cmd, chaosWriters),
	}}
	h.serve()
	h.fill()
	for i := range h.writers {
		h.files = append(h.files, filepath.Join(h.dir, "member"+strconv.Itoa(i)))
		h.writers[i] = h.run(firstWriter+node(i), fmt.Sprintf("%s=%s %s %d %s", asMember, h.address,
			h.files[i], i+2, h.tls))
	}
	h.advance("at the start")
	h.rand = rand.New(rand.NewPCG(*chaosSeed, 11))
	for round := range rounds {
		what := h.disturb()
		h.advance(what)
		h.whole(what)
		n := uint64(0)
		for i := range h.files {
			n += h.count(i)
		}
		h.say("round %d of %d: %s; %d transactions so far", round+1, rounds, what, n)
	}
	h.judge(rounds)
}

// histories is what runs.
type histories struct {
	*chaos
	files []string // prefix of those of a member
	first told     // what was there before
}

// fill makes the tables, and opens the accounts.
func (h *histories) fill() {
	t := h.t
	t.Helper()
	var r history.Recorder
	x, err := openMember(t.Context(), h.address, h.tls, &r)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.db.Update(t.Context(), func(tx *txn.Tx) error {
		for a := range uint64(memberKeys) {
			if err := x.bank.Put(tx, a, chaosMoney); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	m := member{memberTables: x}
	h.first.Txns, h.first.Failed = m.shared(r.Txns()), m.shared(r.Failed())
	if err := x.db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// count is how many transactions a member has committed.
func (h *histories) count(i int) uint64 {
	p, err := os.ReadFile(h.files[i] + ".count")
	n, e := strconv.ParseUint(string(p), 10, 64)
	if err != nil || e != nil {
		return 0 // it is being written
	}
	return n
}

// advance waits until each member has committed something since now.
func (h *histories) advance(what string) {
	h.t.Helper()
	for i := range h.files {
		had := h.count(i)
		h.await(fmt.Sprintf("%s: member %d makes no progress", what, i), func() bool { return h.count(i) > had })
	}
}

// around draws a time that is shorter or longer than a deadline of members.
func (h *histories) around() time.Duration {
	deadlines := []time.Duration{
		memberLease, memberLease / 3, 2 * memberLease, memberConnect, memberControl,
		memberVerb, memberVerb + memberConnect,
	}
	d := deadlines[h.rand.IntN(len(deadlines))]
	return d*7/10 + time.Duration(h.rand.Int64N(int64(d*6/10)))
}

// disturb cuts a member off, or stops it, and returns when that is over and what it was.
func (h *histories) disturb() string {
	h.t.Helper()
	i, d := h.rand.IntN(len(h.writers)), h.around()
	n := firstWriter + node(i)
	b := node(h.rand.IntN(chaosBlades))
	from := [][]node{{catalogNode}, between(0, catalogNode), between(0, firstWriter), {b}, {b, catalogNode}, nil}
	others, way := from[h.rand.IntN(len(from))], h.rand.IntN(4)
	if others == nil || h.net == nil {
		p := h.writers[i].Process
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			h.t.Fatal(err)
		}
		time.Sleep(d)
		if err := p.Signal(syscall.SIGCONT); err != nil {
			h.t.Fatal(err)
		}
		return fmt.Sprintf("%v is stopped for %v", n, d.Round(time.Millisecond))
	}
	var pairs [][2]node
	for _, o := range others {
		if way != 1 {
			pairs = append(pairs, [2]node{n, o})
		}
		if way != 2 {
			pairs = append(pairs, [2]node{o, n})
		}
	}
	heal, err := h.net.cut(pairs)
	if err == nil {
		time.Sleep(d)
		err = heal()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return fmt.Sprintf("%v is cut off %v for %v, %s", n, others, d.Round(time.Millisecond),
		[...]string{"both ways", "nothing comes back", "nothing goes there", "both ways"}[way])
}

// judge has members end, and holds what they have recorded against the checkers.
func (h *histories) judge(rounds int) {
	t := h.t
	t.Helper()
	all := []told{h.first}
	for i, p := range h.writers {
		if err := os.WriteFile(h.files[i]+".end", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			out, _ := os.ReadFile(h.log.Name())
			t.Fatalf("member %d: %v; the processes have said:\n%s", i, err, out[max(len(out)-8000, 0):])
		}
		f, err := os.Open(h.files[i] + ".history")
		if err != nil {
			t.Fatal(err)
		}
		var x told
		if err := errors.Join(gob.NewDecoder(f).Decode(&x), f.Close()); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	var sum told
	for _, x := range all {
		sum.Txns, sum.Failed, sum.Lists = append(sum.Txns, x.Txns...), append(sum.Failed, x.Failed...),
			append(sum.Lists, x.Lists...)
		sum.Wrong, sum.Errors, sum.Unknown = append(sum.Wrong, x.Wrong...), sum.Errors+x.Errors, sum.Unknown+x.Unknown
	}
	err := errors.Join(
		check.Check(append(sum.Txns, sum.Failed...), check.Options{FromEmpty: true, Placeholders: true}).Err(),
		check.CheckLists(sum.Lists, check.Options{}).Err(),
		h.elle(&sum))
	for _, w := range sum.Wrong {
		err = errors.Join(err, errors.New(w))
	}
	if err != nil {
		t.Errorf("seed %d: %v", *chaosSeed, err)
	}
	h.must("check", h.address)
	ranges := 0
	for i := range sum.Txns {
		ranges += len(sum.Txns[i].Ranges)
	}
	if len(sum.Lists) == 0 || ranges == 0 || len(sum.Txns) < 100 {
		t.Errorf("%d transactions, of them %d of lists, with %d ranges: that proves nothing",
			len(sum.Txns), len(sum.Lists), ranges)
	}
	t.Logf("%d rounds, %d processes: %d transactions, %d of lists, %d ranges; %d ended with an error, %d were asked "+
		"for their outcomes; no violation: %v",
		rounds, len(h.writers), len(sum.Txns), len(sum.Lists), ranges, sum.Errors, sum.Unknown, err == nil)
}

// elle asks the real Elle, if it is there.
func (h *histories) elle(x *told) error {
	program, err := exec.LookPath("elle-cli")
	if err != nil {
		h.say("the real Elle: SKIPPED, there is no program elle-cli")
		return nil //nolint:nilerr // it is said
	}
	file := filepath.Join(h.dir, "lists.edn")
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(check.WriteElleLists(f, x.Lists), f.Close()); err != nil {
		return err
	}
	out, err := exec.Command(program, "--model", "list-append", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "true") {
		return fmt.Errorf("the real Elle finds something: %w: %s", err, out)
	}
	return nil
}
