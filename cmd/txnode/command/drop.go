package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"txnode/txn"
)

// dropOptions are the flags of txnode drop.
type dropOptions struct {
	listOptions
	Yes bool
}

func newDrop(w *World) *cobra.Command {
	o := &dropOptions{}
	cmd := &cobra.Command{
		Use: "drop directory|address table", Short: "Drop a table of a database, with its secondary indexes",
		Long: `Drops a table, with its records and its secondary indexes, for good: there is no way back but
a backup. It says what the table has, and drops it if the answer on standard input is yes;
--yes does not ask. Of a cluster, named by the address of its catalog as unix:PATH, other
processes may have the database open: the command waits until they have ended the transactions
that they had begun, and says for which it waits. Of a database in a directory none may have it
open. Other tables stay as they are. After an interruption the table is dropped all the same, and
the next drop or opening gives its room back.`,
		Example:           "  txnode drop data accounts\n  txnode drop unix:/tmp/catalog accounts --yes",
		Args:              exactly(2, "name a directory or the address of a catalog, and a table"),
		ValidArgsFunction: completeArguments(cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return interruptedOr(cmd.Context(), o.run(cmd.Context(), w, args[0], args[1]))
		},
	}
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	o.addFlags(cmd)
	return cmd
}

func (o *dropOptions) run(ctx context.Context, w *World, from, name string) (err error) {
	db, err := o.openToChange(ctx, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	has, err := contents(ctx, db, name)
	if err != nil {
		return err
	}
	if !o.Yes {
		if err := confirmed(ctx, w, fmt.Sprintf("drop table %s of %s (%s) for good?", shown(name), shown(from), has),
			"nothing was dropped"); err != nil {
			return err
		}
	}
	told := tellWaits(ctx, w, db)
	err = db.DropTable(ctx, name)
	told()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w.Stdout, "table %s is dropped: %s\n", shown(name), has)
	return err
}

// waitTold is how often it is told what is waited for.
const waitTold = time.Second

// tellWaits tells on standard error which processes a change of tables waits for, until the
// function is called that it returns.
func tellWaits(ctx context.Context, w *World, db *txn.DB) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for last := ""; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(waitTold):
			}
			if r := db.WaitsFor(); r != nil && r.String() != last {
				last = r.String()
				_, _ = fmt.Fprintf(w.Stderr, "waiting for %s\n", last) // nothing depends on it
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// openToChange opens the database in a directory, or of a cluster, which must be there.
func (o *listOptions) openToChange(ctx context.Context, from string) (*txn.DB, error) {
	if ofCluster(from) {
		return openCluster(ctx, from, &o.access, txn.Options{Workers: 1})
	}
	if err := databaseIn(from); err != nil {
		return nil, err
	}
	return openDatabase(ctx, txn.Options{Dir: from, Workers: 1})
}

// contents says in words what a table has. One that cannot be counted, as it is damaged, can be
// dropped.
func contents(ctx context.Context, db *txn.DB, name string) (string, error) {
	tables, err := some(db, []string{name})
	if err != nil {
		return "", err
	}
	text := "records that cannot be counted"
	t, err := txn.OpenAnyTable(db, name)
	if err == nil {
		var st txn.TableStats
		if st, err = t.Stats(ctx); err == nil {
			text = count(int(st.Rows), "record") // it is printed
		}
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		text += " (" + shown(oneLine(err)) + ")"
	}
	var indexes []string
	for _, x := range tables[0].Indexes {
		indexes = append(indexes, shown(x.Name))
	}
	if indexes != nil {
		text += ", secondary indexes " + strings.Join(indexes, ", ")
	}
	return text, nil
}

// confirmed asks a question on standard error, and fails, saying that nothing was done, unless the
// answer on standard input is yes.
func confirmed(ctx context.Context, w *World, question, nothing string) error {
	if _, err := fmt.Fprintf(w.Stderr, "%s yes or no: ", question); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() { // a read of a terminal does not end with ctx
		line, _ := bufio.NewReader(w.Stdin).ReadString('\n') // what came before an error is no yes, unless it is one
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a := <-answer:
		switch strings.TrimSpace(a) {
		case "yes":
			return nil
		case "":
			return failf("%s: there was no answer on standard input; answer yes, or give --yes", nothing)
		}
		return failf("%s: the answer was %q, and not yes", nothing, strings.TrimSpace(a))
	}
}
