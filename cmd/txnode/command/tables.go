package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"txnode/txn"
)

// listOptions are the flags of all commands that list records.
type listOptions struct {
	access accessOptions
}

func (o *listOptions) addFlags(cmd *cobra.Command) { o.access.addFlags(cmd) }

// listAttempts is how many attempts a transaction has that reads beside others. With more of them
// it would begin to lock what it reads.
const listAttempts = 32

// open opens the database in a directory, or of a cluster, without changing it.
func (o *listOptions) open(ctx context.Context, from string) (*txn.DB, error) {
	// A list counts each record against the arena, which takes no memory for that.
	to := txn.Options{ReadOnly: true, Workers: 1, Arena: 1 << 30}
	if ofCluster(from) {
		to.Retries = listAttempts - 1
		return openCluster(ctx, from, &o.access, to)
	}
	if err := databaseIn(from); err != nil {
		return nil, err
	}
	to.Dir = from
	return openDatabase(ctx, to)
}

// reading runs fn on the database in a directory, or of a cluster, with a buffered standard output.
func (o *listOptions) reading(ctx context.Context, w *World, from string, fn func(db *txn.DB,
	out *bufio.Writer) error) (err error) {
	db, err := o.open(ctx, from)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	out := bufio.NewWriter(w.Stdout)
	err = fn(db, out)
	if errors.Is(err, txn.ErrConflict) {
		err = fmt.Errorf("others have written to what is read, in each of %d attempts: read less of it, or have the "+
			"state at one moment from txnode backup %s FILE: %w", listAttempts, from, err)
	}
	if flushed := out.Flush(); !errors.Is(err, flushed) { // else it is what fn has met already
		err = errors.Join(err, flushed)
	}
	if err != nil {
		return interruptedOr(ctx, err)
	}
	return nil
}

// viewing runs fn in a transaction that reads. What fn writes comes out once, however many attempts
// there are: beside other processes it is kept in a file until one of them counts.
func viewing(ctx context.Context, db *txn.DB, out *bufio.Writer, fn func(tx *txn.Tx,
	out *bufio.Writer) error) (err error) {
	if !db.Space().Shared() {
		return db.View(ctx, func(tx *txn.Tx) error {
			tx.ValidateAtEnd() // no other transaction is at work
			return fn(tx, out)
		})
	}
	f, err := os.CreateTemp("", "txnode")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	err = db.View(ctx, func(tx *txn.Tx) error {
		tx.ValidateAtEnd()
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		kept := bufio.NewWriter(f)
		if err := fn(tx, kept); err != nil {
			return err
		}
		return kept.Flush()
	})
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// some returns the tables of these names, or all; one that is not there is an error that lists
// them.
func some(db *txn.DB, names []string) ([]txn.TableInfo, error) {
	all, err := db.Tables()
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	if len(names) == 0 {
		names = all
	}
	var out []txn.TableInfo
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, failf("there is no table %q; there are %q", n, all)
		}
		i, err := db.TableInfo(n)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

func newTables(w *World) *cobra.Command {
	var o struct {
		listOptions
		output textOrJSON
	}
	cmd := &cobra.Command{
		Use:   "tables directory|address",
		Short: "List the tables of a database, with the types of their keys and values",
		Long: `Lists the tables of the database in a directory, with the names of the Key and the
Codec that programs open them with, and their index: race of a hash table, blink of
an ordered one. Behind that come its secondary indexes with their keys, and whether
they are unique, or not built yet; txnode stats has their sizes. The directory stays as
it is. No other process may have it open for writing.

With the address of a catalog, as unix:PATH, the tables are those of that cluster, which
processes may have open.`,
		Example:           "  txnode tables data\n  txnode tables unix:/tmp/catalog",
		Args:              exactly(1, "name a directory or the address of a catalog"),
		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.reading(cmd.Context(), w, args[0], func(db *txn.DB, out *bufio.Writer) error {
				tables, err := some(db, nil)
				if err != nil {
					return err
				}
				t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
				if o.output == "text" {
					head := "table\tkey\tvalue\tindex"
					if slices.ContainsFunc(tables, func(i txn.TableInfo) bool { return i.Indexes != nil }) {
						head += "\tsecondary indexes"
					}
					_, _ = fmt.Fprintln(t, head)
				}
				for _, i := range tables {
					if o.output == "json" {
						if err := line(out, lineOf(i)); err != nil {
							return err
						}
						continue
					}
					_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s%s\n", shown(i.Name), shown(i.Key), shown(i.Value), i.Index,
						secondary(i.Indexes))
				}
				return t.Flush()
			})
		},
	}
	o.output.addFlag(cmd)
	o.addFlags(cmd)
	return cmd
}

type tableLine struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	Value string `json:"value"`
	Index string `json:"index"`
	// MaxKey is that of an ordered table.
	MaxKey  int         `json:"max_key_bytes,omitempty"`
	Indexes []indexLine `json:"secondary_indexes,omitempty"`
}

type indexLine struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Unique bool   `json:"unique"`
	Built  bool   `json:"built"`
}

func lineOf(i txn.TableInfo) tableLine {
	l := tableLine{Table: i.Name, Key: i.Key, Value: i.Value, Index: i.Index, MaxKey: i.MaxKey}
	for _, x := range i.Indexes {
		l.Indexes = append(l.Indexes, indexLine{x.Name, x.Key, x.Unique, x.Built})
	}
	return l
}

// secondary is the cell of secondary indexes, if there are any.
func secondary(list []txn.IndexInfo) string {
	var out []string
	for _, x := range list {
		s := shown(x.Name) + "(" + shown(x.Key)
		if x.Unique {
			s += ", unique"
		}
		if !x.Built {
			s += ", not built"
		}
		out = append(out, s+")")
	}
	if out == nil {
		return ""
	}
	return "\t" + strings.Join(out, " ")
}

func newStats(w *World) *cobra.Command {
	var o struct {
		listOptions
		output textOrJSON
	}
	cmd := &cobra.Command{
		Use:   "stats directory|address [table ...]",
		Short: "Count the records of tables, their bytes, and the load of the index",
		Long: `Counts, for the tables that are named or for all of them: records, the bytes of their
keys and values, of the largest record, of the blocks that the index leads to, and of
the index. Of a hash table also the buckets of the index, of seven slots each, and as
its load the part of the slots that is in use; of an ordered table the leaves of the
index, its height in levels, and as its load the part of the leaves' bytes that is in
use. Secondary indexes follow their table, as table.index: each is an ordered table, with
a record for each of its entries. Bytes are those of one copy. The directory stays as it is.

With the address of a catalog, as unix:PATH, the tables are those of that cluster. While
processes write to them, the figures are about right, and of no one moment.`,
		Example:           "  txnode stats data\n  txnode stats data accounts -o json",
		Args:              atLeast(1, "name a directory or the address of a catalog"),
		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.reading(cmd.Context(), w, args[0], func(db *txn.DB, out *bufio.Writer) error {
				return printStats(cmd.Context(), db, out, args[1:], o.output == "json")
			})
		},
	}
	o.output.addFlag(cmd)
	o.addFlags(cmd)
	return cmd
}

type statsLine struct {
	Table      string  `json:"table"`
	IndexOf    string  `json:"index_of,omitempty"`
	Rows       uint64  `json:"rows"`
	Bytes      uint64  `json:"bytes"`
	LargestRow uint64  `json:"largest_row_bytes"`
	Blocks     uint64  `json:"blocks"`
	BlockBytes uint64  `json:"block_bytes"`
	Buckets    uint64  `json:"buckets"`
	Load       float64 `json:"load"`
	SubTables  uint64  `json:"sub_tables"`
	Height     uint64  `json:"height,omitempty"`
	Leaves     uint64  `json:"leaves,omitempty"`
	InnerNodes uint64  `json:"inner_nodes,omitempty"`
	IndexBytes uint64  `json:"index_bytes"`
}

func printStats(ctx context.Context, db *txn.DB, out io.Writer, names []string, asJSON bool) error {
	tables, err := some(db, names)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if !asJSON {
		_, _ = fmt.Fprintln(t,
			"rows\tbytes\tlargest row\tblocks\tblock bytes\tbuckets\tleaves\theight\tload\tindex bytes\t  table")
	}
	if tables, err = withIndexes(db, tables); err != nil {
		return err
	}
	for _, i := range tables {
		r, err := txn.OpenAnyTable(db, i.Name)
		if err != nil {
			return err
		}
		st, err := r.Stats(ctx)
		if err != nil {
			return err
		}
		load := st.Load
		if i.Ordered {
			load = st.Fill
		}
		if asJSON {
			if err := line(out, statsLine{
				i.Name, i.Of, st.Rows, st.Bytes, st.Largest, st.Blocks, st.Stored, st.Buckets, load, st.SubTables,
				st.Height, st.Leaves, st.Inner, st.IndexBytes,
			}); err != nil {
				return err
			}
			continue
		}
		_, _ = fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%.2f\t%d\t  %s\n", st.Rows, st.Bytes, st.Largest,
			st.Blocks, st.Stored,
			orDash(st.Buckets), orDash(st.Leaves), orDash(st.Height), load, st.IndexBytes, shown(i.Name))
	}
	return t.Flush()
}

// withIndexes lists each table's secondary indexes behind it, but for those whose making a crash
// has ended before they had a table.
func withIndexes(db *txn.DB, tables []txn.TableInfo) (out []txn.TableInfo, err error) {
	for _, t := range tables {
		out = append(out, t)
		for _, x := range t.Indexes {
			i, err := db.TableInfo(x.Table)
			if errors.Is(err, txn.ErrNoTable) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out = append(out, i)
		}
	}
	return out, nil
}

// orDash is a number, or a dash for one that a table does not have.
func orDash(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// atLeast demands n arguments or more.
func atLeast(n int, complaint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return errors.New(complaint)
		}
		return nil
	}
}
