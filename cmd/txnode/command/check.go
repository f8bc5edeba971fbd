package command

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"

	"txnode/benchmarks/runner"
	"txnode/memory/embedded"
	"txnode/rdma"
	"txnode/txn"
	"txnode/verify"
)

// checkOptions are the flags of txnode check.
type checkOptions struct {
	Output outputFormat
	Repair bool
	// ReplaceLost gives up region files that are missing or blank.
	ReplaceLost bool
	Limit       int
	// Of a cluster, whose processes may go on.
	cluster bool
	access  accessOptions
}

// AddFlags registers the flags.
func (o *checkOptions) AddFlags(cmd *cobra.Command) {
	o.Output.addFlag(cmd)
	cmd.Flags().BoolVar(&o.Repair, "repair", false,
		"write what intact replicas prove, and report it; the database must not be open elsewhere")
	cmd.Flags().BoolVar(&o.ReplaceLost, "replace-lost", false,
		"give up region files that are missing or blank, and have their copies built anew\n"+
			"from those of the other blades, before the check")
	cmd.Flags().IntVarP(&o.Limit, "limit", "n", 0, "number of findings to print, all are counted; 0, the default: all")
	o.access.addFlags(cmd)
}

// Validate finds faults.
func (o *checkOptions) Validate() error {
	if o.Limit < 0 {
		return usagef("--limit is %d; it must not be negative", o.Limit)
	}
	return nil
}

// findingsError says that a check has found something. It is a failed verification.
type findingsError struct {
	dir  string
	left uint64
}

func (e *findingsError) Error() string {
	return fmt.Sprintf("%s: %s", e.dir, count(int(e.left), "finding"))
}

// Is makes it an ErrVerification, for the exit code.
func (e *findingsError) Is(target error) bool { return target == runner.ErrVerification }

func newCheck(w *World) *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check directory|address",
		Short: "Walk a database and report everything that is wrong with it",
		Long: `Reads the database in a directory, which no other process may have open for
writing, and holds all of it against what must be true: headers of the blades,
extents, log areas, the structure of every index, the block behind every slot,
every record's checksum and lock, that all replicas are equal, and that entries of
secondary indexes lead to records. What entries a record should have only a program
knows that has the functions of the indexes: Table.CheckIndexes compares them.

Each finding is a line: its kind, where it is (segment and offset, blade and
offset), what is wrong, and what a repair could do. With -o json each is an
object on a line of its own, and the summary is the last. The exit code is 3 if
anything was found that is damage and has not been repaired. A process that was
killed leaves locks and unfinished transactions behind: these are findings too,
marked and counted apart, but no damage, since the next opening settles them.

--repair writes a replica again if another one proves what it should hold: a
damaged record from a backup, a backup from its primary, words of an index.
A record that the index has lost is put back, as its block says which key it has,
unless the key has another one. If the key was deleted since, also after somebody had
inserted it once more, that is undone by it: a repair is best made before anybody goes on.
What a recovery may need (locks, unfinished splits, logs) and what no copy
proves is left as it is: all of a database that was open with --durability power and
not closed, which is brought into order when it is opened. If the file of a blade is
missing, cut off, too long, blank, an old copy, another database's, or of another format,
that is a finding, the rest is checked without it, and nothing is repaired. So is what
a disk that fails cannot read of it. If the catalog is
damaged or lost, that is the only finding, since it says where everything is. Findings
can be looked at with txnode inspect.

--replace-lost gives up region files that are missing or blank: they begin anew, with
copies of what the other blades have. Copies that could not be made before, since the
disk was full, are made now. It is not a part of --repair because a file may be
missing for want of a disk that was not mounted: what is in a file that was given up is
never asked for again, so make sure before that it cannot be brought back.

With the address of a catalog, as unix:PATH, the database of that cluster is checked, also while
processes have it open. What changes meanwhile may look wrong once, so it is looked
at again, up to six times: a finding is what is the same each time.`,
		Example: "  txnode check data\n  txnode check data -o json | jq .kind\n  txnode check data --repair\n" +
			"  txnode check data --replace-lost\n  txnode check unix:/tmp/catalog",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one directory, or the address of the catalog of a cluster")
			}
			return nil
		},
		ValidArgsFunction: completeDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			if ofCluster(args[0]) {
				return checkCluster(cmd.Context(), w, o, args[0])
			}
			return runCheck(cmd.Context(), w, o, args[0])
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// completeDirectory completes the first argument with directories.
var completeDirectory = completeArguments(cobra.ShellCompDirectiveFilterDirs)

// completeArguments completes the arguments with files, or with directories.
func completeArguments(each ...cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) < len(each) {
			return nil, each[len(args)]
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// rebuildLost has the copies built anew that were in region files which are missing or
// blank, from those of the other blades, or could not be before, and tells what was done and
// what is lost. patience is for how long nothing but failures may come of it.
func rebuildLost(ctx context.Context, w *World, dir string, patience time.Duration) error {
	blades, missing, err := embedded.Lost(dir)
	if err != nil || len(blades) == 0 && missing == 0 {
		return nil //nolint:nilerr // whoever opens it to check it says what is wrong
	}
	db, err := txn.Open(ctx, txn.Options{Dir: dir, ReplaceLost: true})
	if err != nil {
		return err
	}
	r, stuck := awaitCopies(ctx, w, db, patience)
	err = errors.Join(stuck, db.Close(context.WithoutCancel(ctx)))
	if ctx.Err() != nil {
		return errors.Join(fmt.Errorf("%w: what is there is unharmed, and copies that are missing are made whenever "+
			"the database is open, or by the same command", errInterrupted), err)
	}
	if err != nil {
		return err
	}
	for _, b := range blades {
		if _, err := fmt.Fprintf(w.Stderr, "blade %d: its region was missing or blank, and was built anew from the "+
			"copies on other blades\n", b); err != nil {
			return err
		}
	}
	if r.Suspects > 0 {
		_, err = fmt.Fprintf(w.Stderr,
			"%s looked locked by nobody who ever was, or is, and went into the copies all the same: the check tells "+
				"whether there is damage\n", count(r.Suspects, "block"))
	}
	if r.Missing > 0 && err == nil {
		_, err = fmt.Fprintf(w.Stderr, "%d copies could not be made: the blades have no room\n", r.Missing)
	}
	if r.Lost > 0 && err == nil {
		_, err = fmt.Fprintf(w.Stderr,
			"every copy of %s was in those regions and is lost: restore the database from a backup, or go on without "+
				"what was in them\n", count(r.Lost, "segment"))
	}
	return err
}

// stuckAfter is the patience of the command.
const stuckAfter = 10 * time.Second

// silenceFactor is how many times the patience nothing may come of the copies, and no failure
// either: what was under way when a blade was lost is decided first, and indexes are swept.
const silenceFactor = 6

// errNoCopies: copies are not made, and nobody says why.
var errNoCopies = errors.New("copies are not made")

// copyWait is how long copies have been waited for: patience is with what goes on, however long
// it takes, as to clear a large blade does.
type copyWait struct {
	patience time.Duration
	// furthest is how far they had come when a failure began, last when anything was heard of them.
	furthest, last txn.Redundancy
	since, still   time.Time
}

func newCopyWait(r txn.Redundancy, patience time.Duration, now time.Time) *copyWait {
	return &copyWait{patience: patience, furthest: r, last: r, since: now, still: now}
}

// look takes in how far they have come, and is an error when that is too little.
func (x *copyWait) look(r txn.Redundancy, now time.Time) error {
	moved := func(from *txn.Redundancy) bool {
		return r.Building != from.Building || r.Dirty != from.Dirty || len(r.Down) != len(from.Down)
	}
	if r.BuildDone != x.last.BuildDone || moved(&x.last) {
		x.last, x.still = r, now
	}
	if r.Failure == nil || r.BuildDone > x.furthest.BuildDone || moved(&x.furthest) {
		x.furthest, x.since = r, now
	} else if now.Sub(x.since) > x.patience {
		return fmt.Errorf("copies cannot be made (what is there is unharmed; they are made whenever the database is "+
			"open and the cause is gone): %w", r.Failure)
	}
	if silence := silenceFactor * x.patience; now.Sub(x.still) > silence {
		return fmt.Errorf("%w: for %v nothing has come of the copies: perhaps a record is damaged so that it looks "+
			"locked; txnode check says which, and --repair may help", errNoCopies, silence)
	}
	return nil
}

// awaitCopies waits until all copies are made that can be.
func awaitCopies(ctx context.Context, w *World, db *txn.DB, patience time.Duration) (r txn.Redundancy, err error) {
	bar := newCheckProgress(w, "")
	defer bar.close()
	show := bar.callback()
	r = db.Redundancy()
	wait, dirty := newCopyWait(r, patience, time.Now()), r.Dirty
	for ctx.Err() == nil {
		r = db.Redundancy()
		if len(r.Down) == 0 && r.Building == 0 && db.Space().CanBuild() == 0 {
			return r, nil
		}
		if dirty = max(dirty, r.Dirty); show != nil && r.Dirty > 0 {
			show(verify.Progress{Stage: "clearing a blade", Done: uint64(dirty - r.Dirty), Total: uint64(dirty)})
		} else if show != nil {
			show(verify.Progress{Stage: "building copies", Done: r.BuildDone, Total: r.BuildTotal})
		}
		if err := wait.look(r, time.Now()); err != nil {
			return r, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return r, nil
}

func runCheck(ctx context.Context, w *World, o *checkOptions, dir string) error {
	if o.ReplaceLost {
		if err := rebuildLost(ctx, w, dir, stuckAfter); err != nil {
			return err
		}
	}
	out := &findingWriter{w: w, o: o}
	db, err := attachTo(dir, o.Repair, true)
	if errors.Is(err, txn.ErrCorrupt) || errors.Is(err, errCatalogGone) {
		return out.catalog(dir, err)
	}
	if err != nil {
		return err
	}
	missing := map[rdma.BladeID]string{}
	for b, why := range db.host.LeftOut {
		missing[b] = why.Error()
	}
	return o.report(w, dir, func(x verify.Options) (verify.Summary, error) {
		x.Repair, x.Missing = o.Repair && len(missing) == 0, missing
		sum, err := db.Check(ctx, x)
		if e := db.Close(); err == nil || errors.Is(err, context.Canceled) {
			err = errors.Join(err, e)
		}
		return sum, err
	})
}

// report runs a check of what is at a place, and prints what it finds.
func (o *checkOptions) report(w *World, at string, check func(x verify.Options) (verify.Summary, error)) error {
	out := &findingWriter{w: w, o: o}
	bar := newCheckProgress(w, "checking ")
	printed := 0
	sum, err := check(verify.Options{
		Progress: bar.callback(),
		Indexes:  txn.CatalogIndexes,
		Report: func(f verify.Finding) error {
			if printed++; o.Limit > 0 && printed > o.Limit {
				return nil
			}
			if w.StdoutTerminal {
				bar.close() // the lines would run into each other
			}
			return out.finding(f)
		},
	})
	bar.close()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if e := out.summary(at, &sum, err != nil); e != nil {
		return e
	}
	switch {
	case err != nil:
		return errInterrupted
	case !sum.Clean():
		return &findingsError{at, sum.Findings - sum.Repaired - sum.Unfinished}
	}
	return nil
}

// findingWriter prints findings as they come.
type findingWriter struct {
	w     *World
	o     *checkOptions
	begun bool
}

func (p *findingWriter) finding(f verify.Finding) error {
	switch p.o.Output {
	case outputJSON:
		return json.NewEncoder(p.w.Stdout).Encode(f)
	case outputCSV:
		c := csv.NewWriter(p.w.Stdout)
		p.header(c)
		failed := ""
		if f.Failed != nil {
			failed = f.Failed.Error()
		}
		_ = c.Write([]string{
			string(f.Kind), strconv.Itoa(int(f.Table)), strconv.Itoa(int(f.Addr.Segment())),
			strconv.Itoa(int(f.Addr.Offset())), strconv.Itoa(f.Copy),
			strconv.Itoa(int(f.Blade)), strconv.FormatUint(f.Off, 10), f.What, f.Remedy, strconv.FormatBool(f.Repaired),
			failed, strconv.FormatBool(f.Unfinished),
		})
		c.Flush()
		return c.Error()
	default:
		_, err := fmt.Fprintln(p.w.Stdout, f)
		return err
	}
}

// catalog reports that the catalog is damaged or gone, which is all that can be said then.
func (p *findingWriter) catalog(dir string, why error) error {
	err := p.finding(verify.Finding{Kind: verify.KindCatalog, What: oneLine(why)})
	switch p.o.Output {
	case outputJSON:
		s := verify.Summary{Findings: 1, ByKind: map[verify.Kind]uint64{verify.KindCatalog: 1}}
		err = errors.Join(err, json.NewEncoder(p.w.Stdout).Encode(map[string]any{"summary": &s, "interrupted": false}))
	case outputTable:
		_, e := fmt.Fprintf(p.w.Stdout,
			"nothing else in %s was checked: the catalog says where everything is; bring it back, or "+
				"restore a backup\n", dir)
		err = errors.Join(err, e)
	}
	if err != nil {
		return err
	}
	return &findingsError{dir, 1}
}

// header writes the names of the columns, once.
func (p *findingWriter) header(c *csv.Writer) {
	if !p.begun {
		p.begun = true
		_ = c.Write([]string{
			"kind", "table", "segment", "offset", "copy", "blade", "blade_offset", "what", "remedy",
			"repaired", "failed", "unfinished",
		})
	}
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// blades names the files of blades, or blades of a cluster.
func (p *findingWriter) blades(blades []rdma.BladeID) string {
	form, s := "blade-%03d.region", ""
	if p.o.cluster {
		form = "blade %d"
	}
	for i, b := range blades {
		if i > 0 {
			s += " and "
		}
		s += fmt.Sprintf(form, b)
	}
	return s
}

// tables prints what was counted of tables: of hash tables sub-tables, of ordered ones levels,
// leaves, and nodes without a separator in the level above.
func (p *findingWriter) tables(t io.Writer, all []verify.TableSummary) {
	if len(all) == 0 {
		return
	}
	ordered := slices.ContainsFunc(all, func(x verify.TableSummary) bool { return x.Levels > 0 })
	more := ""
	if ordered {
		more = "levels\tleaves\tunposted\t"
	}
	fmt.Fprintf(t, "  table\trecords\ttombstones\tbytes\tsub-tables\t%s\n", more)
	for _, x := range all {
		if ordered {
			more = "\t\t\t"
		}
		parts := fmt.Sprint(x.SubTables)
		if x.Levels > 0 {
			parts, more = "", fmt.Sprintf("%d\t%d\t%d\t", x.Levels, x.Leaves, x.Unposted)
		}
		fmt.Fprintf(t, "  %s\t%d\t%d\t%d\t%s\t%s\n", x.Name, x.Records, x.Tombstones, x.Bytes, parts, more)
	}
}

// summary prints what was counted.
func (p *findingWriter) summary(dir string, s *verify.Summary, interrupted bool) error {
	switch p.o.Output {
	case outputJSON:
		return json.NewEncoder(p.w.Stdout).Encode(map[string]any{"summary": s, "interrupted": interrupted})
	case outputCSV:
		c := csv.NewWriter(p.w.Stdout)
		p.header(c)
		c.Flush()
		return c.Error()
	}
	t := tabwriter.NewWriter(p.w.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if p.o.Limit > 0 && s.Findings > uint64(p.o.Limit) {
		fmt.Fprintf(t, "... and %d more findings\n", s.Findings-uint64(p.o.Limit))
	}
	verb := "checked"
	if interrupted {
		verb = "interrupted; until then, checked"
	}
	where, aside := dir, false
	for _, x := range []struct {
		blades []rdma.BladeID
		why    string
	}{
		{s.Missing, "not there, or not whole"},
		{s.Strange, "not this database, an old copy of it, or not of a format that this program reads"},
	} {
		if len(x.blades) > 0 { // their numbers are those of the files
			where, aside = fmt.Sprintf("%s without %s (%s)", where, p.blades(x.blades), x.why), true
		}
	}
	aside = aside || s.Unrecovered || s.CatalogOld || len(s.Unreadable) > 0 && s.Repaired == 0
	if aside && p.o.Repair {
		where += ", and repaired nothing"
	}
	fmt.Fprintf(t, "%s %s: %s, %s, %d MiB read\n", verb, where, count(s.Blades, "blade"),
		count(s.Segments, "segment"), s.Bytes>>20)
	p.tables(t, s.Tables)
	for _, x := range s.Tables {
		if x.Bare > 0 {
			fmt.Fprintf(t, "%s: no entry leads to %s of %s\n", x.Name, count(int(x.Bare), "record"), x.Of)
		}
	}
	nodes := ""
	if s.Nodes > 0 {
		nodes = fmt.Sprintf(", %d nodes of indexes", s.Nodes)
	}
	fmt.Fprintf(t, "blocks: %d live, %d absent%s, %d free\n", s.Live, s.Absent, nodes, s.Free)
	if s.Coordinators > 0 {
		state := "were not closed"
		if p.o.cluster {
			state = "are open"
		}
		fmt.Fprintf(t, "coordinators that %s: %d, with %d records in their logs\n", state, s.Coordinators, s.LogRecords)
	}
	if n := s.CopiesMissing; n > 0 || len(s.BladesDown) > 0 {
		why := "of a blade that was lost"
		if len(s.BladesDown) > 0 {
			why = fmt.Sprintf("%s counts as lost", p.blades(s.BladesDown))
		}
		fmt.Fprintf(t, "copies missing: %d (%s); they are built while the database is open\n", n, why)
	}
	if s.SegmentsLost > 0 {
		fmt.Fprintf(t, "every copy of %s is lost, with what was in it\n", count(s.SegmentsLost, "segment"))
	}
	if s.Unrecovered {
		fmt.Fprintf(t, "it was open with --durability power and not closed: whoever opens it brings blocks and "+
			"indexes into order\n")
	}
	if s.CatalogOld {
		fmt.Fprintf(t, "catalog.db is older than the regions: bring the newest back, before anything else is done\n")
	}
	if n := len(s.Unreadable); n > 0 && p.o.Repair {
		fmt.Fprintf(t, "something of %s cannot be read: see to that first, then repair\n", p.blades(s.Unreadable))
	}
	if s.Findings == 0 {
		fmt.Fprintf(t, "no findings\n")
		return t.Flush()
	}
	fmt.Fprintf(t, "findings: %d", s.Findings)
	separator := ":"
	for _, k := range verify.Kinds() {
		if n := s.ByKind[k]; n > 0 {
			fmt.Fprintf(t, "%s %d %s", separator, n, k)
			separator = ","
		}
	}
	if p.o.Repair && !aside {
		fmt.Fprintf(t, "; repaired: %d", s.Repaired)
	}
	fmt.Fprintln(t)
	if s.Unfinished > 0 {
		which := fmt.Sprintf("%d of them are", s.Unfinished)
		switch {
		case s.Unfinished == s.Findings && s.Findings == 1:
			which = "it is"
		case s.Unfinished == s.Findings:
			which = "they are"
		}
		fmt.Fprintf(t, "the database was not closed, or not swept since a process died or a blade was lost: %s work "+
			"that was left, which the next opening finishes or undoes; no damage\n", which)
	}
	return t.Flush()
}

// checkProgress shows how far a check is, on one line of a terminal. The zero value
// shows nothing.
type checkProgress struct {
	bars *mpb.Progress
	bar  *mpb.Bar

	mu    sync.Mutex
	stage string
}

func newCheckProgress(w *World, does string) *checkProgress {
	if !w.StderrTerminal {
		return &checkProgress{}
	}
	p := &checkProgress{bars: mpb.New(mpb.WithOutput(w.errScreen), mpb.WithWidth(40), mpb.WithAutoRefresh())}
	p.bar = p.bars.New(barSteps,
		mpb.BarStyle().Lbound("").Filler("━").Tip("━").Padding("─").Rbound(""),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(besideBar(func() string {
			p.mu.Lock()
			defer p.mu.Unlock()
			return fmt.Sprintf("%s%-8s ", does, p.stage)
		})),
	)
	return p
}

func (p *checkProgress) callback() func(verify.Progress) {
	if p.bars == nil {
		return nil
	}
	return func(now verify.Progress) {
		p.mu.Lock()
		p.stage = now.Stage
		p.mu.Unlock()
		if p.bar != nil && now.Total > 0 {
			p.bar.SetCurrent(int64(now.Done * (barSteps - 1) / now.Total))
		}
	}
}

// close removes the line; to close again does nothing.
func (p *checkProgress) close() {
	if p.bar == nil {
		return
	}
	p.bar.Abort(true)
	p.bars.Wait()
	p.bar = nil
}
