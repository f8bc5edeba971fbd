package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"txnode/txn"
)

func newGet(w *World) *cobra.Command {
	var o struct {
		listOptions
		output textOrJSON
	}
	cmd := &cobra.Command{
		Use: "get directory|address table key", Short: "Print the value of a key",
		Long: `Prints the value of a key: text and JSON as they are, other values in hexadecimal.
The key is a number, a text, a time as RFC 3339 has it, or for a tuple a JSON array
of these, as the table's keys are; or 0x and the bytes of any key. A text that
begins with 0x is given in JSON, in quotation marks, as dump prints it. The directory
stays as it is. With the address of a catalog, as unix:PATH, it is read in that cluster.`,
		Example: "  txnode get data accounts 42\n  txnode get data posts '[\"ann\", " +
			"\"2026-01-02T03:04:05Z\"]'",
		Args:              exactly(3, "name a directory or the address of a catalog, a table and a key"),
		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
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
	cmd.Flags().StringVar(&o.Prefix, "prefix", "",
		"only keys that begin so: a `text` for keys of text or bytes, or 0x and the first bytes of\n"+
			"encoded keys; default: all keys")
	cmd.Flags().StringVar(&o.From, "from", "",
		"of an ordered table, begin with this `key`, as for txnode get; default: the smallest")
	cmd.Flags().StringVar(&o.To, "to", "", "of an ordered table, end before this `key`; default: behind the largest")
	cmd.Flags().BoolVar(&o.Desc, "desc", false,
		"of an ordered table, begin with the largest key; default: with the smallest")
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
func (o *scanOptions) bound(i txn.TableInfo, flag, text string, of func([]byte) txn.Bound[[]byte]) (b txn.Bound[[]byte],
	err error) {
	if !o.given(flag) {
		return b, nil
	}
	key, err := txn.ParseKey(i.Key, text)
	if err != nil {
		return b, &usageError{cause: fmt.Errorf("--%s: %w", flag, err)}
	}
	return of(key), nil
}

// records are the records of a table that are asked for, but for the prefix and the
// limit of a hash table.
func (o *scanOptions) records(tx *txn.Tx, r *txn.RawTable, i txn.TableInfo, prefix []byte) (iter.Seq2[[]byte, []byte],
	error) {
	if !i.Ordered {
		if o.given("from") || o.given("to") || o.Desc {
			return nil, usagef("table %q is a hash table: its keys have no order, and --from, --to and --desc are "+
				"for ordered tables; --prefix reads all of it", i.Name)
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
		return nil, usagef("--prefix is %q: table %q has keys of type %s: give the first bytes of their "+
			"encoding, behind 0x", o.Prefix, i.Name, i.Key)
	}
	if s := ""; strings.HasPrefix(o.Prefix, `"`) && json.Unmarshal([]byte(o.Prefix), &s) == nil { // as dump prints it
		return []byte(s), nil
	}
	return []byte(o.Prefix), nil
}

// each has fn write the records of a table that are asked for, in the order in which they are
// found.
func (o *scanOptions) each(ctx context.Context, db *txn.DB, out *bufio.Writer, i txn.TableInfo,
	fn func(out *bufio.Writer, key, value []byte) error) error {
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

// print calls fn for the records of tables: of those that args name behind a directory or an
// address, or of all.
func (o *scanOptions) print(ctx context.Context, w *World, args []string, fn func(out *bufio.Writer, i txn.TableInfo,
	key, value []byte) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return o.reading(ctx, w, args[0], func(db *txn.DB, out *bufio.Writer) error {
		tables, err := some(db, args[1:])
		if err != nil {
			return err
		}
		for _, i := range tables {
			if err := o.each(ctx, db, out, i, func(out *bufio.Writer, key, value []byte) error {
				return fn(out, i, key,
					value)
			}); err != nil {
				return err
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
		Example: "  txnode scan data accounts\n  txnode scan data users --prefix a --limit 0 --keys\n" +
			"  txnode scan data orders --from 1000 --to 2000 --desc",
		Args:              exactly(2, "name a directory or the address of a catalog, and a table"),
		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.print(cmd.Context(), w, args, func(out *bufio.Writer, i txn.TableInfo, key, value []byte) error {
				_, err := out.WriteString(shownKey(i.Key, key))
				if err == nil && !o.Keys {
					_, err = out.WriteString("\t" + shownValue(i.Value, value))
				}
				return errors.Join(err, out.WriteByte('\n'))
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
		Example:           "  txnode dump data > data.jsonl\n  txnode dump data accounts --limit 10",
		Args:              atLeast(1, "name a directory or the address of a catalog"),
		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.print(cmd.Context(), w, args, func(out *bufio.Writer, i txn.TableInfo, key, value []byte) error {
				r := rowOf(i, key, value)
				if o.Keys {
					r.Value, r.ValueBase64 = nil, nil
				}
				return line(out, r)
			})
		},
	}
	o.addFlags(cmd, 0, "print at most so many records of each table; 0, the default: all")
	return cmd
}
