package command

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"txnode/memory/layout"
	"txnode/rdma"
	"txnode/verify"
)

// inspectOptions are the flags of all commands under txnode inspect.
type inspectOptions struct {
	Copy  int
	Limit int
	Blade int
	Table string
	Key   string
}

// addFlags registers the flags that all of them have.
func (o *inspectOptions) addFlags(cmd *cobra.Command, copies bool) {
	if copies {
		cmd.Flags().IntVar(&o.Copy, "copy", 0, "number of the replica to show; 0, the default, is the primary")
	}
	cmd.Flags().IntVarP(&o.Limit, "limit", "n", 256,
		"number of entries of a list, and of bytes of a value, to show; 0: all")
}

// Validate finds faults.
func (o *inspectOptions) Validate() error {
	if o.Limit < 0 || o.Copy < 0 || o.Blade < 0 {
		return usagef("--limit is %d, --copy %d, --blade %d; none may be negative", o.Limit, o.Copy, o.Blade)
	}
	return nil
}

func newInspect(w *World) *cobra.Command {
	return choose("inspect", "Show the bytes of a database, annotated",
		`Shows parts of the database in a directory, which no other process may have open
for writing: offset, bytes, and what they mean. Damaged bytes are shown, too.
Addresses are written as txnode check prints them, seg 3 +0x40, or 3+0x40.`,
		inspectCommand(w, "region", "directory blade", "Show the header of a blade, and the segments on it",
			"  txnode inspect region data 0", false, nil,
			func(d *verify.Dump, _ *offline, _ *inspectOptions, arg string) error {
				n, err := number(arg, 16, "blade")
				if err != nil {
					return err
				}
				return d.Region(rdma.BladeID(n))
			}),
		inspectCommand(w, "segment", "directory segment", "Show where a segment is, and what is in it",
			"  txnode inspect segment data 3 --limit 0", true, nil,
			func(d *verify.Dump, _ *offline, _ *inspectOptions, arg string) error {
				n, err := number(arg, layout.SegmentBits, "segment")
				if err != nil {
					return err
				}
				return d.Segment(layout.SegmentID(n))
			}),
		inspectCommand(w, "bucket", "directory address",
			"Show a bucket, the first line of a sub-table, or the root of an index",
			"  txnode inspect bucket data seg 2 +0x8040", true, nil,
			func(d *verify.Dump, _ *offline, _ *inspectOptions, arg string) error {
				a, err := verify.ParseAddr(arg)
				if err != nil {
					return err
				}
				return d.Bucket(a)
			}),
		inspectCommand(w, "record", "directory [address]", "Show a record, by its address or its key",
			"  txnode inspect record data seg 5 +0x3600\n  txnode inspect record data --table accounts --key 42", true,
			func(o *inspectOptions, cmd *cobra.Command) {
				cmd.Flags().StringVar(&o.Table, "table", "",
					"`name` of the table in which --key is looked up; by default an address is expected")
				cmd.Flags().StringVar(&o.Key, "key", "",
					"`key` to look up: a number or text, as the table's keys are, or 0x and its bytes;\n"+
						"by default an address is expected")
			},
			func(d *verify.Dump, db *offline, o *inspectOptions, arg string) error {
				return byKey(d.Record, d.Key, db, o, arg)
			}),
		inspectCommand(w, "node", "directory [address]",
			"Show a node of the index of an ordered table, by its address or by a key",
			"  txnode inspect node data seg 4 +0x600\n  txnode inspect node data --table orders --key 42", true,
			func(o *inspectOptions, cmd *cobra.Command) {
				cmd.Flags().StringVar(&o.Table, "table", "",
					"`name` of the ordered table whose leaf for --key is shown; by default an address is expected")
				cmd.Flags().StringVar(&o.Key, "key", "",
					"`key` whose leaf to show: a number or text, as the table's keys are, or 0x and its bytes;\n"+
						"by default an address is expected")
			},
			func(d *verify.Dump, db *offline, o *inspectOptions, arg string) error {
				return byKey(d.Node, d.NodeOf, db, o, arg)
			}),
		inspectCommand(w, "log", "directory coordinator", "Show the log records of a coordinator that was not closed",
			"  txnode inspect log data 7 --blade 1", false,
			func(o *inspectOptions, cmd *cobra.Command) {
				cmd.Flags().IntVar(&o.Blade, "blade", 0, "number of the blade whose log area to show; 0 is the default")
			},
			func(d *verify.Dump, _ *offline, o *inspectOptions, arg string) error {
				n, err := number(arg, 24, "coordinator")
				if err != nil {
					return err
				}
				return d.Log(uint32(n), rdma.BladeID(min(o.Blade, 1<<16-1)))
			}),
		inspectCommand(w, "tx", "directory transaction",
			"Show what is left of a transaction: log records, blocks with its version or lock",
			"  txnode inspect tx data c7.42", false, nil,
			func(d *verify.Dump, _ *offline, _ *inspectOptions, arg string) error {
				id, err := verify.ParseTx(arg)
				if err != nil {
					return err
				}
				return d.Tx(id)
			}),
	)
}

// byKey shows something by its address, or by the key of a table.
func byKey(show func(layout.Addr) error, find func(layout.Table, []byte) error, db *offline,
	o *inspectOptions, arg string) error {
	switch {
	case (o.Table == "") != (o.Key == ""):
		return usagef("--table and --key belong together")
	case (arg == "") == (o.Key == ""):
		return usagef("give the address, or --table and --key")
	case arg != "":
		a, err := verify.ParseAddr(arg)
		if err != nil {
			return err
		}
		return show(a)
	}
	t, err := db.Table(o.Table)
	if err != nil {
		return err
	}
	key, err := db.ParseKey(t, o.Key)
	if err != nil {
		return err
	}
	return find(t, key)
}

// inspectCommand is a command that attaches to the directory of its first argument;
// what follows, joined by spaces, is what to show.
func inspectCommand(w *World, name, args, short, example string, copies bool,
	more func(*inspectOptions, *cobra.Command),
	run func(*verify.Dump, *offline, *inspectOptions, string) error) *cobra.Command {
	o := &inspectOptions{}
	optional := strings.Contains(args, "[")
	cmd := &cobra.Command{
		Use: name + " " + args, Short: short, Example: example,
		Args: func(_ *cobra.Command, given []string) error {
			if len(given) < 2 && !(optional && len(given) == 1) {
				return fmt.Errorf("want: %s", args)
			}
			return nil
		},
		ValidArgsFunction: completeDirectory,
		RunE: func(_ *cobra.Command, given []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return runInspect(w, o, given[0], strings.Join(given[1:], " "), run)
		},
	}
	o.addFlags(cmd, copies)
	if more != nil {
		more(o, cmd)
	}
	return cmd
}

func runInspect(w *World, o *inspectOptions, dir, arg string, run func(*verify.Dump, *offline, *inspectOptions,
	string) error) error {
	if ofCluster(dir) {
		return usagef("%s is a cluster, and txnode inspect shows the bytes of a directory: use txnode check, scan or "+
			"get, or restore a backup to a directory", dir)
	}
	db, err := attachOffline(dir, false)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w.Stdout)
	d := db.NewDump(out)
	d.Copy, d.Limit = o.Copy, o.Limit
	err = run(d, db, o, arg)
	if errors.Is(err, verify.ErrSyntax) {
		err = &usageError{cause: err}
	}
	flushed := out.Flush()
	if errors.Is(err, flushed) { // it is what run has met already
		flushed = nil
	}
	return errors.Join(err, flushed, db.Close())
}

// number reads a number of so many bits.
func number(s string, bits int, what string) (uint64, error) {
	n, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		return 0, usagef("%q is no number of a %s", s, what)
	}
	return n, nil
}
