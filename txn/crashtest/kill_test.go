package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"txnode/check"
	"txnode/history"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/txn"
	"txnode/verify"
)

// killsPerLife is how often the writers of one directory are killed.
const killsPerLife = 20

func TestKill(t *testing.T) {
	kills := *killsFlag
	if kills == 0 {
		kills = 24
	}
	if testing.Short() {
		kills = min(kills, 8)
	}
	perLife := min(killsPerLife, max(kills/4, 1))
	killing(t, kills, perLife, false)
}

// TestKillAfterLoss is TestKill of writers that lose a blade before, or that have it
// back: copies are being promoted, built, and cleared when they are killed.
func TestKillAfterLoss(t *testing.T) {
	if *lossFlag == 0 {
		t.Skip("on request: -losses")
	}
	killing(t, *lossFlag, min(killsPerLife, max(*lossFlag/4, 1)), true)
}

// killing kills writers of one directory after another.
func killing(t *testing.T, kills, perLife int, loss bool) {
	r := rand.New(rand.NewPCG(*seedFlag, 0))
	sum := &totals{}
	for n := 0; sum.kills < kills; n++ {
		l := life{
			Loss: loss,
			Dir:  filepath.Join(t.TempDir(), "db"), Policy: []occ.Policy{occ.PolicyDefault, occ.PolicyFORD}[n%2],
			Blades: 3, Backups: []int{1, 2, 0}[n/2%3], Workers: 1 + r.IntN(4), Accounts: 40 + r.Uint64N(2000),
			Seed: r.Uint64(),
			Durability: []txn.Durability{
				txn.DurabilityProcess, txn.DurabilityProcess, txn.DurabilityPower, txn.DurabilityProcess,
			}[n%4],
		}
		if loss {
			l.Blades, l.Backups, l.Durability = 4, 1+n/2%2, txn.DurabilityProcess
		}
		live(t, &l, r, min(perLife, kills-sum.kills), sum)
		if t.Failed() {
			t.Fatalf("%v; %s; repeat with -seed %d", &l, keep(l.Dir), *seedFlag)
		}
		if err := os.RemoveAll(l.Dir); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d of %d kills", sum.kills, kills) // shown at once with -v
	}
	t.Logf("%d kills, %d of them while the database was being opened; %d transactions acknowledged, %d under way "+
		"when their process was killed, %d of which had taken effect",
		sum.kills, sum.early, sum.committed, sum.unknown, sum.effective)
}

// keep saves a directory from being removed with the test's others, so that txnode check
// and txnode inspect can show what is wrong in it.
func keep(dir string) string {
	to := filepath.Join(os.TempDir(), fmt.Sprintf("txnode-crash-%d", os.Getpid()))
	if err := os.Rename(dir, to); err != nil {
		return fmt.Sprintf("the directory could not be kept: %v", err)
	}
	return "the directory is kept in " + to
}

type totals struct{ kills, early, committed, unknown, effective int }

// state is what a key holds.
type state struct {
	writer  uint64
	balance int64
	pad     int
}

// live kills writers of one directory, one after another.
func live(t *testing.T, l *life, r *rand.Rand, kills int, sum *totals) {
	base := map[uint64]state{}
	for k := range kills {
		var frames []*frame
		rounds := 1
		if r.IntN(3) == 0 {
			rounds = 2 // the second is killed while it recovers from the first
		}
		for i := range rounds {
			l.Seed++
			after := time.Duration(40+r.IntN(200)) * time.Millisecond
			early := i == 1 || r.IntN(4) == 0
			if early {
				after = time.Duration(r.IntN(25_000)) * time.Microsecond
			}
			said, stderr, err := killed(l, after, l.Loss && !early)
			if err != nil {
				t.Fatalf("kill %d after %v: %v\n%s", k, after, err, stderr)
			}
			if len(said) == 0 {
				sum.early++
			}
			sum.kills++
			for _, f := range said {
				f.Worker += int64(i) * 1000 // other processes, other workers
			}
			frames = append(frames, said...)
		}
		next, err := look(l)
		if err != nil {
			t.Errorf("kill %d: %v", k, err)
			return
		}
		if err := judge(base, frames, next, sum); err != nil {
			t.Errorf("kill %d: %v", k, err)
			return
		}
		if err := walk(l.Dir); err != nil {
			t.Errorf("kill %d: %v", k, err)
			return
		}
		base = next
	}
}

// killed runs a writer, kills it, and returns what it had said. With talking, the time
// counts from its first word on, not from its start: it loses its blade at work.
func killed(l *life, after time.Duration, talking bool) (frames []*frame, stderr string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), victimEnv+"="+l.spec())
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	const silent = time.Minute // who has not said a word by then hangs
	first := after
	if talking {
		first = silent
	}
	timer := time.AfterFunc(first, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err = receive(out, func(f *frame) {
		if talking && len(frames) == 0 {
			timer.Reset(after)
		}
		frames = append(frames, f)
	})
	exit := cmd.Wait()
	if talking && len(frames) == 0 {
		err = errors.Join(err, errors.New("it has not said a word"))
	}
	var status *exec.ExitError
	if errors.As(exit, &status) && status.ExitCode() == -1 { // by a signal
		exit = nil
	}
	return frames, complaint.String(), errors.Join(err, exit)
}

// look opens the database as its next user does, and reads all of it.
func look(l *life) (map[uint64]state, error) {
	ctx := context.Background()
	db, err := txn.Open(ctx, l.options())
	if err != nil {
		return nil, fmt.Errorf("opening it again: %w", err)
	}
	found, err := readAll(ctx, db, l)
	if err == nil && l.Loss {
		err = whole(db)
	}
	if err == nil && !l.Loss {
		err = noDrops(db)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	return found, db.Close(ctx)
}

// noDrops demands that every drop has come to its end.
func noDrops(db *txn.DB) error {
	tables, err := db.Space().Tables()
	for _, t := range tables {
		if t.State == layout.TableDropping {
			return fmt.Errorf("table %d %q is still being dropped", t.ID, t.Name)
		}
	}
	return errors.Join(err, noStrays(db))
}

// whole waits until every copy is there again: all blades are.
func whole(db *txn.DB) error {
	const patience = time.Minute
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		r := db.Redundancy()
		if r.Missing == 0 && len(r.Down) == 0 {
			return nil
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("after %v copies are still missing: %d of %d segments, blades that are down: %v",
				patience, r.Missing, r.Segments, r.Down)
		}
	}
}

// readAll reads every key, and writes it as it is.
func readAll(ctx context.Context, db *txn.DB, l *life) (map[uint64]state, error) {
	table, err := txn.CreateTable(db, "records", txn.Uint64, txn.Bytes())
	if err != nil {
		return nil, err
	}
	found := map[uint64]state{}
	for k := range 2 * l.Accounts {
		err := db.View(ctx, func(tx *txn.Tx) error {
			p, err := table.Get(tx, k)
			if err != nil {
				return err
			}
			id, balance, pad, err := parse(p)
			found[k] = state{id, balance, pad}
			return err
		})
		if err != nil && !errors.Is(err, txn.ErrNotFound) {
			return nil, fmt.Errorf("key %d: %w", k, err)
		}
	}
	// It is not only there, it can be written to: every key, as it is.
	for k, s := range found {
		err := db.Update(ctx, func(tx *txn.Tx) error {
			if _, err := table.GetForUpdate(tx, k); err != nil {
				return err
			}
			return table.Put(tx, k, value(s.writer, s.balance, s.pad))
		})
		if err != nil {
			return nil, fmt.Errorf("writing key %d: %w", k, err)
		}
	}
	sorted, err := openSorted(db, l)
	if err != nil {
		return nil, err
	}
	return found, sorted.holds(ctx, db, found)
}

// judge holds what was found against what was there before and what was said since.
func judge(base map[uint64]state, frames []*frame, found map[uint64]state, sum *totals) error {
	type attempt struct {
		*frame
		end int64 // 0: not acknowledged
	}
	var all []*attempt
	open := map[int64]*attempt{} // the last of each worker
	byID := map[uint64]*attempt{}
	for _, f := range frames {
		if f.Commit {
			a := open[f.Worker]
			if a == nil || a.ID != f.ID {
				return fmt.Errorf("worker %d acknowledges %#x, which it has not announced", f.Worker, f.ID)
			}
			a.end = f.Time
			continue
		}
		if a := open[f.Worker]; a != nil && a.end == 0 {
			a.frame = &frame{ID: a.ID} // began again: a conflict
		}
		a := &attempt{frame: f}
		open[f.Worker], byID[f.ID] = a, a
		all = append(all, a)
	}

	// The history: what was there, what happened, what is there.
	var txns []history.Txn
	first, last := int64(0), int64(1)
	all = slices.DeleteFunc(all, func(a *attempt) bool { return len(a.Ops) == 0 }) // began again
	for _, a := range all {
		if first == 0 || a.Time < first {
			first = a.Time
		}
		last = max(last, a.Time, a.end)
	}
	before := history.Txn{Start: first - 2, End: first - 1, Outcome: history.Committed}
	for k, s := range base {
		before.Ops = append(before.Ops, history.Op{
			Key: history.Key(k), Version: history.Version(s.writer), Kind: history.Write,
		})
	}
	txns = append(txns, before)
	for _, a := range all {
		x := history.Txn{ID: a.ID, Start: a.Time, End: a.end, Outcome: history.Committed}
		if a.end == 0 {
			x.End, x.Outcome = last, history.Unknown
		}
		for _, o := range a.Ops {
			h := history.Op{Key: history.Key(o.Key), Version: history.Version(o.Seen), Kind: history.Read}
			if o.Seen == 0 {
				h.Kind = history.ReadAbsent
			}
			x.Ops = append(x.Ops, h)
			switch o.Kind {
			case 'w':
				x.Ops = append(x.Ops, history.Op{
					Key: h.Key, Version: history.Version(a.ID), Prev: h.Version, Kind: history.Write,
				})
			case 'd':
				x.Ops = append(x.Ops, history.Op{
					Key: h.Key, Version: history.Version(a.ID), Prev: h.Version, Kind: history.Delete,
				})
			}
		}
		txns = append(txns, x)
	}
	after := history.Txn{Start: last + 1, End: last + 2, Outcome: history.Committed}
	keys := map[uint64]bool{}
	for k := range base {
		keys[k] = true
	}
	for k := range found {
		keys[k] = true
	}
	for _, a := range all {
		for _, o := range a.Ops {
			keys[o.Key] = true
		}
	}
	for k := range keys {
		h := history.Op{Key: history.Key(k), Version: history.Version(found[k].writer), Kind: history.Read}
		if h.Version == 0 {
			h.Kind = history.ReadAbsent
		}
		after.Ops = append(after.Ops, h)
	}
	txns = append(txns, after)
	if err := check.Check(txns, check.Options{FromEmpty: true}).Err(); err != nil {
		return err
	}

	// Which of those that were not acknowledged took effect: those whose writes are
	// seen by what did.
	effective := map[uint64]bool{}
	var visit func(id uint64)
	visit = func(id uint64) {
		a := byID[id]
		if a == nil || effective[id] {
			return
		}
		effective[id] = true
		for _, o := range a.Ops {
			visit(o.Seen)
		}
	}
	for _, s := range found {
		visit(s.writer)
	}
	for _, a := range all {
		if a.end != 0 {
			sum.committed++
			visit(a.ID)
		}
	}
	total := func(m map[uint64]state) (n int64) {
		for _, s := range m {
			n += s.balance
		}
		return n
	}
	want := total(base)
	for _, a := range all {
		if a.end == 0 {
			sum.unknown++
			if effective[a.ID] {
				sum.effective++
			}
		}
		if effective[a.ID] {
			want += a.Deposit
		}
	}
	if got := total(found); got != want {
		return fmt.Errorf("the balances add up to %d, %d is right", got, want)
	}
	for k, s := range found {
		a := byID[s.writer]
		if a == nil {
			if base[k] != s {
				return fmt.Errorf("key %d: %+v, it was %+v and nobody has written it", k, s, base[k])
			}
			continue
		}
		for _, o := range a.Ops {
			if o.Key == k && (o.Kind != 'w' || o.Balance != s.balance || int(o.Pad) != s.pad) {
				return fmt.Errorf("key %d: %+v, but its writer %#x did %+v", k, s, a.ID, o)
			}
		}
	}
	return nil
}

// walk checks every byte of the database.
func walk(dir string) (err error) {
	h, err := embedded.Connect(embedded.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	l, err := layout.LoadLayout(h.Catalog)
	if err != nil {
		return err
	}
	db, err := verify.Attach(h.Fabric, l)
	if err != nil {
		return err
	}
	return errors.Join(noFindings(db), db.Close())
}

func noFindings(db *verify.Database) error {
	var findings []string
	s, err := db.Check(context.Background(),
		verify.Options{Indexes: txn.CatalogIndexes, Report: func(f verify.Finding) error {
			if len(findings) < 10 {
				findings = append(findings, f.String())
			}
			return nil
		}})
	if err != nil {
		return err
	}
	if s.Findings > 0 || s.Coordinators > 0 {
		return fmt.Errorf("%d findings, %d coordinators not closed:\n%s", s.Findings, s.Coordinators,
			strings.Join(findings, "\n"))
	}
	return nil
}
