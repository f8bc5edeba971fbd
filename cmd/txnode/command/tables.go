package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"txnode/txn"
)

// listOptions are the flags of all commands that list records.
type listOptions struct {
	access accessOptions
}

func (o *listOptions) addFlags(cmd *cobra.Command) { o.access.addFlags(cmd) }

// listAttempts is how many attempts a transaction has that reads beside others. With more of them it would begin to lock what it reads.
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
func (o *listOptions) reading(ctx context.Context, w *World, from string, fn func(db *txn.DB, out *bufio.Writer) error) (err error) {
	db, err := o.open(ctx, from)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	out := bufio.NewWriter(w.Stdout)
	err = fn(db, out)
	if errors.Is(err, txn.ErrConflict) {
		err = fmt.Errorf("others have written to what is read, in each of %d attempts: read less of it, or have the state at one moment from txnode backup %s FILE: %w", listAttempts, from, err)
	}
	if flushed := out.Flush(); !errors.Is(err, flushed) { // else it is what fn has met already
		err = errors.Join(err, flushed)
	}
	if err != nil {
		return interruptedOr(ctx, err)
	}
	return nil
}

// viewing runs fn in a transaction that reads. What fn writes comes out once, however many attempts there are: beside other processes
// it is kept in a file until one of them counts.
func viewing(ctx context.Context, db *txn.DB, out *bufio.Writer, fn func(tx *txn.Tx, out *bufio.Writer) error) (err error) {
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

// some returns the tables of these names, or all; one that is not there is an error that lists them.
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
		Use: "tables directory|address", Short: "List the tables of a database, with the types of their keys and values",
		Long: `Lists the tables of the database in a directory, with the names of the Key and the
Codec that programs open them with, and their index: race of a hash table, blink of
an ordered one. Behind that come its secondary indexes with their keys, and whether
they are unique, or not built yet; txnode stats has their sizes. The directory stays as
it is. No other process may have it open for writing.

With the address of a catalog, as unix:PATH, the tables are those of that cluster, which
processes may have open.`,
		Example: "  txnode tables data\n  txnode tables unix:/tmp/catalog",
		Args:    exactly(1, "name a directory or the address of a catalog"), ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
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
					_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s%s\n", shown(i.Name), shown(i.Key), shown(i.Value), i.Index, secondary(i.Indexes))
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
		Use: "stats directory|address [table ...]", Short: "Count the records of tables, their bytes, and the load of the index",
		Long: `Counts, for the tables that are named or for all of them: records, the bytes of their
keys and values, of the largest record, of the blocks that the index leads to, and of
the index. Of a hash table also the buckets of the index, of seven slots each, and as
its load the part of the slots that is in use; of an ordered table the leaves of the
index, its height in levels, and as its load the part of the leaves' bytes that is in
use. Secondary indexes follow their table, as table.index: each is an ordered table, with
a record for each of its entries. Bytes are those of one copy. The directory stays as it is.

With the address of a catalog, as unix:PATH, the tables are those of that cluster. While
processes write to them, the figures are about right, and of no one moment.`,
		Example: "  txnode stats data\n  txnode stats data accounts -o json",
		Args:    atLeast(1, "name a directory or the address of a catalog"), ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
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
		_, _ = fmt.Fprintln(t, "rows\tbytes\tlargest row\tblocks\tblock bytes\tbuckets\tleaves\theight\tload\tindex bytes\t  table")
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
				i.Name, i.Of, st.Rows, st.Bytes, st.Largest, st.Blocks, st.Stored, st.Buckets, load, st.SubTables, st.Height, st.Leaves, st.Inner, st.IndexBytes,
			}); err != nil {
				return err
			}
			continue
		}
		_, _ = fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%.2f\t%d\t  %s\n", st.Rows, st.Bytes, st.Largest, st.Blocks, st.Stored,
			orDash(st.Buckets), orDash(st.Leaves), orDash(st.Height), load, st.IndexBytes, shown(i.Name))
	}
	return t.Flush()
}

// withIndexes lists each table's secondary indexes behind it, but for those whose making a crash has ended before they
// had a table.
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

func newGet(w *World) *cobra.Command {
	var o struct {
		listOptions
		output textOrJSON
	}
	cmd := &cobra.Command{
		Use: "get directory|address table key", Short: "Print the value of a key",
		Long: `Prints the value of a key: text and JSON as they are, other values in hexadecimal.
The key is a number, a text, a time as RFC 3339 has it, or for a tuple a JSON array
of these, as the table's keys are; or 0x and the bytes of any key. The directory
stays as it is. With the address of a catalog, as unix:PATH, it is read in that cluster.`,
		Example: "  txnode get data accounts 42\n  txnode get data posts '[\"ann\", \"2026-01-02T03:04:05Z\"]'",
		Args:    exactly(3, "name a directory or the address of a catalog, a table and a key"), ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.reading(cmd.Context(), w, args[0], func(db *txn.DB, out *bufio.Writer) error {
				return printValue(cmd.Context(), db, out, args[1], args[2], o.output == "json")
			})
		},
	}
	o.output.addFlag(cmd)
	o.addFlags(cmd)
	return cmd
}

func printValue(ctx context.Context, db *txn.DB, out *bufio.Writer, table, text string, asJSON bool) error {
	tables, err := some(db, []string{table})
	if err != nil {
		return err
	}
	i := tables[0]
	key, err := txn.ParseKey(i.Key, text)
	if err != nil {
		return &usageError{cause: err}
	}
	r, err := txn.OpenAnyTable(db, table)
	if err != nil {
		return err
	}
	return viewing(ctx, db, out, func(tx *txn.Tx, out *bufio.Writer) error {
		v, err := r.Get(tx, key)
		if errors.Is(err, txn.ErrNotFound) {
			return failf("table %q has no key %s", table, text)
		}
		if err != nil {
			return err
		}
		if asJSON {
			return line(out, rowOf(i, key, v))
		}
		switch {
		case i.Value == "string", i.Value == "json":
			_, err = fmt.Fprintf(out, "%s\n", v)
		default:
			_, err = fmt.Fprintf(out, "0x%x\n", v)
		}
		return err
	})
}

// scanOptions are the flags of txnode scan and txnode dump.
type scanOptions struct {
	Limit    int
	Prefix   string
	Keys     bool
	From, To string
	Desc     bool

	listOptions
	cmd *cobra.Command
}

func (o *scanOptions) addFlags(cmd *cobra.Command, limit int, what string) {
	o.listOptions.addFlags(cmd)
	cmd.Flags().IntVarP(&o.Limit, "limit", "n", limit, what)
	cmd.Flags().StringVar(&o.Prefix, "prefix", "", "only keys that begin so: a `text` for keys of text or bytes, or 0x and the first bytes of\nencoded keys; default: all keys")
	cmd.Flags().StringVar(&o.From, "from", "", "of an ordered table, begin with this `key`, as for txnode get; default: the smallest")
	cmd.Flags().StringVar(&o.To, "to", "", "of an ordered table, end before this `key`; default: behind the largest")
	cmd.Flags().BoolVar(&o.Desc, "desc", false, "of an ordered table, begin with the largest key; default: with the smallest")
	o.cmd = cmd
	cmd.Flags().BoolVar(&o.Keys, "keys", false, "print keys without values; default: both")
}

// Validate finds faults.
func (o *scanOptions) Validate() error {
	if o.Limit < 0 {
		return usagef("--limit is %d; it may not be negative", o.Limit)
	}
	if o.Prefix != "" && (o.given("from") || o.given("to")) {
		return usagef("--prefix and --from or --to exclude each other")
	}
	return nil
}

// given reports whether a flag was set, perhaps to nothing.
func (o *scanOptions) given(flag string) bool { return o.cmd.Flags().Changed(flag) }

// bound is a bound that a flag asks for.
func (o *scanOptions) bound(i txn.TableInfo, flag, text string, of func([]byte) txn.Bound[[]byte]) (b txn.Bound[[]byte], err error) {
	if !o.given(flag) {
		return b, nil
	}
	key, err := txn.ParseKey(i.Key, text)
	if err != nil {
		return b, &usageError{cause: fmt.Errorf("--%s: %w", flag, err)}
	}
	return of(key), nil
}

// records are the records of a table that are asked for, but for the prefix and the limit of a hash table.
func (o *scanOptions) records(tx *txn.Tx, r *txn.RawTable, i txn.TableInfo, prefix []byte) (iter.Seq2[[]byte, []byte], error) {
	if !i.Ordered {
		if o.given("from") || o.given("to") || o.Desc {
			return nil, usagef("table %q is a hash table: its keys have no order, and --from, --to and --desc are for ordered tables; --prefix reads all of it", i.Name)
		}
		return r.All(tx), nil
	}
	options := []txn.RangeOption{txn.Limit(o.Limit)}
	if o.Desc {
		options = append(options, txn.Descending())
	}
	if o.Prefix != "" {
		return r.Prefix(tx, prefix, options...), nil
	}
	from, err := o.bound(i, "from", o.From, txn.Including[[]byte])
	if err != nil {
		return nil, err
	}
	to, err := o.bound(i, "to", o.To, txn.Excluding[[]byte])
	if err != nil {
		return nil, err
	}
	return r.Range(tx, from, to, options...), nil
}

// prefix is the beginning of encoded keys that is asked for.
func (o *scanOptions) prefix(i txn.TableInfo) ([]byte, error) {
	if h, ok := strings.CutPrefix(o.Prefix, "0x"); ok {
		p, err := hex.DecodeString(h)
		if err != nil {
			return nil, usagef("--prefix is %q: behind 0x there must be bytes in hexadecimal", o.Prefix)
		}
		return p, nil
	}
	if o.Prefix != "" && i.Key != txn.String.Name && i.Key != txn.BytesKey.Name {
		return nil, usagef("--prefix is %q: table %q has keys of type %s: give the first bytes of their encoding, behind 0x", o.Prefix, i.Name, i.Key)
	}
	return []byte(o.Prefix), nil
}

// each has fn write the records of a table that are asked for, in the order in which they are found.
func (o *scanOptions) each(ctx context.Context, db *txn.DB, out *bufio.Writer, i txn.TableInfo, fn func(out *bufio.Writer, key, value []byte) error) error {
	prefix, err := o.prefix(i)
	if err != nil {
		return err
	}
	r, err := txn.OpenAnyTable(db, i.Name)
	if err != nil {
		return err
	}
	return viewing(ctx, db, out, func(tx *txn.Tx, out *bufio.Writer) error {
		n := 0
		records, err := o.records(tx, r, i, prefix)
		if err != nil {
			return err
		}
		for key, value := range records {
			if !bytes.HasPrefix(key, prefix) {
				continue
			}
			if err := fn(out, key, value); err != nil {
				return err
			}
			if n++; n == o.Limit {
				break
			}
		}
		return nil
	})
}

func newScan(w *World) *cobra.Command {
	o := &scanOptions{}
	cmd := &cobra.Command{
		Use: "scan directory|address table", Short: "Print records of a table, a line each",
		Long: `Prints records of a table, a line each: the key, a tab, the value. Numbers, times and
tuples are written as they are read, text as it is or quoted, JSON on one line, and
anything else in hexadecimal, of which the first 64 bytes are shown. Records of an
ordered table come in the order of their keys, and no more of them are read than are
asked for. Those of a hash table come in no order, and --prefix reads all of them. For
programs there is txnode dump. The directory stays as it is.

With the address of a catalog, as unix:PATH, the table is that of a cluster. The records are
those of one moment, and printed when all are read. If others write to them in each of 32
attempts, the command fails: it takes no locks.`,
		Example: "  txnode scan data accounts\n  txnode scan data users --prefix a --limit 0 --keys\n  txnode scan data orders --from 1000 --to 2000 --desc",
		Args:    exactly(2, "name a directory or the address of a catalog, and a table"), ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return o.reading(cmd.Context(), w, args[0], func(db *txn.DB, out *bufio.Writer) error {
				tables, err := some(db, args[1:])
				if err != nil {
					return err
				}
				i := tables[0]
				return o.each(cmd.Context(), db, out, i, func(out *bufio.Writer, key, value []byte) error {
					_, err := out.WriteString(shownKey(i.Key, key))
					if err == nil && !o.Keys {
						_, err = out.WriteString("\t" + shownValue(i.Value, value))
					}
					return errors.Join(err, out.WriteByte('\n'))
				})
			})
		},
	}
	o.addFlags(cmd, 100, "print at most so many records; 0: all")
	return cmd
}

func newDump(w *World) *cobra.Command {
	o := &scanOptions{}
	cmd := &cobra.Command{
		Use: "dump directory|address [table ...]", Short: "Print all records of tables as lines of JSON",
		Long: `Prints the records of the tables that are named, or of all of them, as lines of JSON:

  {"table":"accounts","key":42,"value":{"owner":"ann"}}

Keys are numbers, texts, times as RFC 3339 has them, or arrays of these for tuples;
values are texts or JSON, by the table's types. Bytes in a tuple are base64. What is
neither, or is no UTF-8, comes as key_base64 or value_base64, encoded as it is stored.
Records of an ordered table come in the order of their keys, those of a hash table in
none. The directory stays as it is. A copy to restore from is made by txnode backup.

With the address of a catalog, as unix:PATH, the tables are those of a cluster. The records
of each table are those of one moment, and printed when all are read, from a temporary file.
If others write to them in each of 32 attempts, the command fails: it takes no locks. A
backup has one moment for all tables, however much is written.`,
		Example: "  txnode dump data > data.jsonl\n  txnode dump data accounts --limit 10",
		Args:    atLeast(1, "name a directory or the address of a catalog"), ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return o.reading(cmd.Context(), w, args[0], func(db *txn.DB, out *bufio.Writer) error {
				tables, err := some(db, args[1:])
				if err != nil {
					return err
				}
				for _, i := range tables {
					err := o.each(cmd.Context(), db, out, i, func(out *bufio.Writer, key, value []byte) error {
						r := rowOf(i, key, value)
						if o.Keys {
							r.Value, r.ValueBase64 = nil, nil
						}
						return line(out, r)
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	o.addFlags(cmd, 0, "print at most so many records of each table; 0, the default: all")
	return cmd
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

// rowLine is a record as JSON.
type rowLine struct {
	Table       string          `json:"table"`
	Key         any             `json:"key,omitempty"`
	KeyBase64   []byte          `json:"key_base64,omitempty"`
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 *[]byte         `json:"value_base64,omitempty"`
}

func rowOf(i txn.TableInfo, key, value []byte) rowLine {
	r := rowLine{Table: i.Name}
	if k, ok := txn.KeyNamed(i.Key); ok && i.Key != txn.BytesKey.Name {
		if v, err := k.Decode(key); err == nil {
			r.Key, _ = keyJSON(v)
		}
	}
	if r.Key == nil {
		r.KeyBase64 = key
	}
	switch {
	case i.Value == "json" && json.Valid(value):
		r.Value = value
	case i.Value == "string" && utf8.Valid(value):
		r.Value, _ = json.Marshal(string(value)) // a string has JSON
	default:
		r.ValueBase64 = &value
	}
	return r
}

// keyJSON is what a key is written as in JSON; ok is false for text that is no UTF-8.
func keyJSON(v any) (out any, ok bool) {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return nil, false
		}
	case time.Time:
		return v.Format(time.RFC3339Nano), true
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v), true
		}
	case []any:
		parts := make([]any, len(v))
		for i, p := range v {
			if parts[i], ok = keyJSON(p); !ok {
				return nil, false
			}
		}
		return parts, true
	}
	return v, true
}

// line writes a value as a line of JSON.
func line(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// shown is a text as it is, if it takes one line and shows, or else quoted.
func shown(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// shownKey is a key for people, given the name of its Key.
func shownKey(name string, p []byte) string {
	if k, ok := txn.KeyNamed(name); ok && name != txn.BytesKey.Name {
		if v, err := k.Decode(p); err == nil {
			switch v, ok := keyJSON(v); s := v.(type) {
			case string:
				return shown(s)
			default:
				if q, err := json.Marshal(v); ok && err == nil {
					return string(q)
				}
			}
		}
	}
	return shownBytes(p)
}

func shownValue(codec string, p []byte) string {
	switch codec {
	case "string":
		return shown(string(p))
	case "json":
		var b bytes.Buffer
		if json.Compact(&b, p) == nil {
			return b.String()
		}
	}
	return shownBytes(p)
}

// shownBytes are bytes in hexadecimal, the first ones if there are many.
func shownBytes(p []byte) string {
	const most = 64
	if len(p) > most {
		return fmt.Sprintf("0x%x... (%d bytes)", p[:most], len(p))
	}
	return fmt.Sprintf("0x%x", p)
}
