package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"golang.org/x/sys/unix"

	"txnode/benchmarks/runner"
	"txnode/cluster"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/txn"
	"txnode/txn/snapshot"
)

// backupOptions are the flags of txnode backup.
type backupOptions struct {
	Output textOrJSON
	Force  bool
	Skip   bool
	access accessOptions
}

// AddFlags registers the flags.
func (o *backupOptions) AddFlags(cmd *cobra.Command) {
	o.Output.addFlag(cmd)
	cmd.Flags().BoolVar(&o.Force, "force", false, "replace the file if it exists; default: it is left alone")
	cmd.Flags().BoolVar(&o.Skip, "skip-damaged", false,
		"leave out what is damaged on every copy, and list it; default: the backup fails")
	o.access.addFlags(cmd)
}

// skippedError says that a backup has left something out. It is a failed verification.
type skippedError struct {
	dir     string
	skipped uint64
}

func (e *skippedError) Error() string {
	return fmt.Sprintf("%s: the backup is complete but for what is damaged: %s left out",
		e.dir, count(int(e.skipped), "place"))
}

// Is makes it an ErrVerification, for the exit code.
func (e *skippedError) Is(target error) bool { return target == runner.ErrVerification }

// listSkipped prints what a backup leaves out.
func listSkipped(w *World) func(txn.Skipped) {
	return func(x txn.Skipped) {
		what := fmt.Sprintf("record with key 0x%x", x.Key)
		switch {
		case x.Rest:
			what = "all records that its index leads to no more"
		case x.Key == nil:
			what = "a record whose key cannot be read"
		}
		_, _ = fmt.Fprintf(w.Stderr, "left out: table %q: %s: %v\n", x.Table, what, x.Err)
	}
}

func newBackup(w *World) *cobra.Command {
	o := &backupOptions{}
	cmd := &cobra.Command{
		Use:   "backup directory|address file",
		Short: "Copy a database to one file",
		Long: `Opens the database in a directory, which no other process may have open, and
writes a consistent copy of all its tables to a file; "-" is standard output.
What a dead process left half-done in the directory is decided first, as at
every opening; a directory that cannot be written to is copied when there is
nothing of that kind. Every part of the file has a checksum; txnode restore verifies
them all before it uses any.

A record that is damaged on one copy is read from another one, and mended. If
every copy is damaged the backup fails. With --skip-damaged the record is left
out, a line on standard error names its table and key, and the exit code is 3.

The file appears, complete and flushed to disk, when the copy has succeeded.

A program that has the database open copies it with DB.Backup of package txn,
while its transactions run.

With the address of a catalog, as unix:PATH, the database of that cluster is copied while
processes have it open: the state at one moment, soon after the command has begun. Until
it ends, the first change of each record keeps what it replaces on the blades. If they
have no room for that, the backup fails, and the processes go on.`,
		Example: "  txnode backup data data.backup\n  txnode backup data - | zstd > data.backup.zst\n" +
			"  txnode backup data data.backup --skip-damaged\n  txnode backup unix:/tmp/catalog data.backup",
		Args:              exactly(2, "name a directory, or the address of the catalog of a cluster, and a file"),
		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBackup(cmd.Context(), w, o, args[0], args[1])
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// exactly demands n arguments.
func exactly(n int, complaint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return errors.New(complaint)
		}
		return nil
	}
}

func runBackup(ctx context.Context, w *World, o *backupOptions, dir, file string) (err error) {
	if file == "-" && w.StdoutTerminal {
		return usagef("a backup is not text, and standard output is a terminal: name a file, or send it on (txnode "+
			"backup %s - | zstd > file)", dir)
	}
	ofCluster := ofCluster(dir)
	most := fs.FileMode(0o600) // what may connect to a cluster may be few
	if !ofCluster {
		if err := databaseIn(dir); err != nil {
			return err
		}
		most = allowed(dir)
	}
	to := file
	if file != "-" {
		of := dir
		if ofCluster {
			of = ""
		}
		if to, err = destination(file, of, o.Force); err != nil {
			return err
		}
	}
	var db *txn.DB
	if ofCluster {
		db, err = openCluster(ctx, dir, &o.access, txn.Options{})
	} else {
		db, err = openToCopy(ctx, dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	count := newCounter(w, "copied")
	defer count.close()
	bo := txn.BackupOptions{Progress: count.set}
	if o.Skip {
		bo.SkipDamaged = listSkipped(w)
	}
	if file == "-" {
		out := bufio.NewWriter(w.Stdout)
		info, err := db.Backup(ctx, out, bo)
		if err != nil {
			return interruptedOr(ctx, err)
		}
		return errors.Join(out.Flush(), skippedIn(dir, info))
	}
	info, err := backupFile(ctx, db, to, most, bo)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	count.close()
	return errors.Join(o.Output.report(w, "copied "+dir+" to "+file, info), skippedIn(dir, info))
}

// skippedIn is an error if a backup has left something out.
func skippedIn(dir string, info snapshot.Info) error {
	if info.Skipped == 0 {
		return nil
	}
	return &skippedError{dir, info.Skipped}
}

// openCluster opens the database of a cluster, which must be there, beside the processes
// that have it open.
func openCluster(ctx context.Context, address string, access *accessOptions, to txn.Options) (*txn.DB, error) {
	co, err := access.options()
	if err != nil {
		return nil, err
	}
	cat, err := cluster.DialCatalog(ctx, address, co)
	if err != nil {
		return nil, clusterFailed(err)
	}
	l, err := layout.LoadLayout(cat)
	if err = errors.Join(err, cat.Close()); err == nil && l == nil {
		err = failf("no database in %s: create it with txnode cluster init", address)
	}
	if err != nil {
		return nil, err
	}
	to.LeaseTerm = access.Lease
	db, err := cluster.Open(ctx, address, to, co)
	if err != nil {
		return nil, clusterFailed(err)
	}
	return db, nil
}

// openDatabase is txn.Open, but in tests.
var openDatabase = txn.Open

// openToCopy opens a database for a backup: so that what a dead process has left is decided
// first, and where nothing can be written, as on a file system that is mounted read-only, as it
// is.
func openToCopy(ctx context.Context, dir string) (*txn.DB, error) {
	db, err := openDatabase(ctx, txn.Options{Dir: dir})
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
		return openDatabase(ctx, txn.Options{Dir: dir, ReadOnly: true})
	}
	return db, err
}

// destination is the file that a backup of the database in dir is to be, when there is nothing else
// that it would take the place of: a file, if it may be replaced, but neither a device nor what is
// copied, which is a cluster if dir is empty. Of a link it is what that leads to.
func destination(file, dir string, replace bool) (string, error) {
	if file == "" {
		return "", usagef("the name of the file is empty")
	}
	if dir != "" && filepath.Dir(place(file)) == place(dir) {
		return "", failf("%s is in the directory that is copied: name another file", file)
	}
	if _, err := os.Lstat(file); err != nil {
		return file, nil //nolint:nilerr // who makes it will say so
	}
	st, err := os.Stat(file)
	if err != nil {
		return "", failf("%s is a link, and what it leads to is not there: name another file: %w", file, err)
	}
	if !st.Mode().IsRegular() {
		return "", failf("%s is there, and is no file that could be replaced: name another, or write to standard "+
			"output, which is -", file)
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", err
	}
	if !replace {
		return "", failf("%s exists: name another file, or replace it with --force", file)
	}
	if dir == "" {
		return file, nil
	}
	in, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	if of, err := os.Stat(dir); err != nil {
		return "", err
	} else if os.SameFile(in, of) {
		return "", failf("%s is in the directory that is copied: name another file", file)
	}
	return file, apart(dir, file)
}

// backupFile writes a backup that appears under its name when it is complete. It is no more
// readable than most, nor than the umask allows; one that takes the place of another is no more
// readable than that.
func backupFile(ctx context.Context, db *txn.DB, file string, most fs.FileMode,
	bo txn.BackupOptions) (info snapshot.Info, err error) {
	if st, err := os.Stat(file); err == nil {
		most &= st.Mode().Perm() | 0o600
	}
	f, err := createPartial(filepath.Dir(file), most)
	if err != nil {
		return info, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	out := bufio.NewWriterSize(f, 1<<20)
	if info, err = db.Backup(ctx, out, bo); err != nil {
		return info, err
	}
	for _, step := range []func() error{
		out.Flush,
		f.Sync,
		func() error { return os.Rename(f.Name(), file) },
		f.Close,
		func() error { return embedded.Sync(filepath.Dir(file)) },
	} {
		if err := step(); err != nil {
			return info, err
		}
	}
	return info, nil
}

// restoreOptions are the flags of txnode restore.
type restoreOptions struct {
	Output   textOrJSON
	Blades   int
	Replicas int
	Size     byteSize
	access   accessOptions
}

// AddFlags registers the flags.
func (o *restoreOptions) AddFlags(cmd *cobra.Command) {
	o.Output.addFlag(cmd)
	cmd.Flags().IntVar(&o.Blades, "blades", 0,
		"number of memory blades of the new database; 0, the default: as many as the copied one had")
	cmd.Flags().IntVar(&o.Replicas, "replicas", -1,
		"number of backups of each record: 0, 1 or 2; -1, the default: as many as the copied one had")
	cmd.Flags().Var(&o.Size, "blade-size",
		"size of each blade, such as 4GiB; 0, the default: what the copied one had,\n"+
			"or more if there are fewer blades or more backups, or if it needs more")
	o.access.addFlags(cmd)
}

// Validate finds faults.
func (o *restoreOptions) Validate() error {
	switch {
	case o.Blades < 0 || o.Blades > layout.MaxBlades:
		return usagef("--blades is %d; it must be from 1 to %d, or 0 for as many as the copied one had",
			o.Blades, layout.MaxBlades)
	case o.Replicas < -1 || o.Replicas > 2:
		return usagef("--replicas is %d; it must be 0, 1 or 2, or -1 for as many as the copied one had", o.Replicas)
	case o.Size%(64<<10) != 0 || o.Size > 64<<40:
		return usagef("--blade-size is %s; it must be a multiple of 64KiB, and at most 64TiB", o.Size.String())
	case o.Blades > 0 && o.Replicas >= o.Blades:
		return usagef("--replicas is %d, and --blades %d: a record and each backup of it need a blade of their own",
			o.Replicas, o.Blades)
	}
	return nil
}

func newRestore(w *World) *cobra.Command {
	o := &restoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore file directory|address",
		Short: "Make a database from a backup",
		Long: `Verifies a file that txnode backup or DB.Backup has written, to its last byte,
and makes a new database from it in a directory, which must not exist or be
empty. The directory appears when everything is in it, and on disk; one that is
there gets its files then.

With the address of a catalog, as unix:PATH, the backup is loaded into the database of
that cluster, which must have no tables, and which no other process may have open: make
one with txnode cluster init. The blades are those of the cluster. If it fails half-way, the
cluster has no tables, as before: begin again.`,
		Example: "  txnode restore data.backup data2\n  txnode restore data.backup data2 --blades 4 --replicas 2\n" +
			"  txnode restore data.backup unix:/tmp/catalog",
		Args: exactly(2, "name a file, and a directory or the address of the catalog of a cluster"),

		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveDefault, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return runRestore(cmd.Context(), w, o, args[0], args[1])
		},
	}
	o.AddFlags(cmd)
	return cmd
}

func runRestore(ctx context.Context, w *World, o *restoreOptions, file, dir string) error {
	if file == "-" {
		return usagef("a backup is read twice, to be verified first, and standard input is not: unpack it to a file")
	}
	f, err := openBackup(file)
	if err != nil {
		return err
	}
	defer f.Close()
	count := newCounter(w, "loaded")
	defer count.close()
	if ofCluster(dir) {
		return restoreCluster(ctx, w, o, f, file, dir, count)
	}
	to := txn.Options{Blades: o.Blades, BladeSize: uint64(o.Size)}
	if o.Replicas >= 0 {
		to.Backups = txn.F(o.Replicas)
	}
	info, err := txn.RestoreDir(ctx, f, dir, to, txn.BackupOptions{Progress: count.set})
	if errors.Is(err, embedded.ErrOptions) { // with what the copied one had
		return usagef("--blades must be more than --replicas, or than the copied one's backups: %w", err)
	}
	if err != nil {
		return interruptedOr(ctx, err)
	}
	count.close()
	return o.Output.report(w, "restored "+file+" to "+dir, info)
}

// restoreCluster loads a backup into the database of a cluster.
func restoreCluster(ctx context.Context, w *World, o *restoreOptions, f *os.File, file, address string,
	count *counter) (err error) {
	if o.Blades != 0 || o.Replicas >= 0 || o.Size != 0 {
		return usagef("--blades, --replicas and --blade-size are for a directory: a cluster has the blades and " +
			"copies that txnode cluster init has given it")
	}
	db, err := openCluster(ctx, address, &o.access, txn.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	info, err := db.Restore(ctx, f, txn.BackupOptions{Progress: count.set})
	if err != nil {
		return interruptedOr(ctx, err)
	}
	count.close()
	return o.Output.report(w, "restored "+file+" to "+address, info)
}

// openBackup opens a file that can be read twice. It does not wait for the writer of a pipe, and
// the writer does not wait for ever either: it has had a reader.
func openBackup(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Readlink(file); e == nil {
			err = failf("%s is a link, and what it leads to is not there: name the file of the backup", file)
		}
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.IsDir():
		err = failf("%s is a directory: name a file that txnode backup has written", file)
	case st.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeCharDevice) != 0:
		err = usagef("a backup is read twice, to be verified first, and %s can be read once: unpack it to a file", file)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// textOrJSON is the value of -o where there is nothing to tabulate.
type textOrJSON string

func (o *textOrJSON) addFlag(cmd *cobra.Command) {
	*o = "text"
	cmd.Flags().VarP(o, "output", "o", "what to print: text or json")
	completeWith(cmd, "output", "text", "json")
}

// String implements pflag.Value.
func (o *textOrJSON) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *textOrJSON) Type() string { return "format" }

// Set implements pflag.Value.
func (o *textOrJSON) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("want text or json")
	}
	*o = textOrJSON(s)
	return nil
}

// report says what was copied.
func (o *textOrJSON) report(w *World, done string, info snapshot.Info) error {
	if *o == "json" {
		return json.NewEncoder(w.Stdout).Encode(info)
	}
	entries, changes, skipped := "", "", ""
	if info.Entries > 0 {
		entries = fmt.Sprintf(", %d entries of secondary indexes", info.Entries)
	}
	if info.Changes > 0 { // a shared database keeps what it had at the cut, and none of these is in the file
		changes = fmt.Sprintf(", %d transactions that committed meanwhile", info.Changes)
	}
	if info.Skipped > 0 {
		skipped = fmt.Sprintf(", %d left out", info.Skipped)
	}
	_, err := fmt.Fprintf(w.Stdout, "%s: %d records%s%s, %d bytes%s\n", done, info.Records, entries, changes,
		info.Bytes, skipped)
	return err
}

// counter shows a number that grows, on one line of a terminal.
type counter struct {
	bars *mpb.Progress
	bar  *mpb.Bar
	n    atomic.Uint64
}

func newCounter(w *World, verb string) *counter {
	c := &counter{}
	if !w.StderrTerminal {
		return c
	}
	c.bars = mpb.New(mpb.WithOutput(w.errScreen), mpb.WithAutoRefresh())
	c.bar = c.bars.New(1, mpb.SpinnerStyle(), mpb.BarRemoveOnComplete(),
		mpb.AppendDecorators(besideBar(func() string { return fmt.Sprintf("%s %d records", verb, c.n.Load()) })))
	return c
}

func (c *counter) set(n uint64) { c.n.Store(n) }

// close removes the line; to close again does nothing.
func (c *counter) close() {
	if c.bar == nil {
		return
	}
	c.bar.Abort(true)
	c.bars.Wait()
	c.bar = nil
}
