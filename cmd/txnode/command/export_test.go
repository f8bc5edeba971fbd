package command

import (
	"context"
	"time"

	"txnode/txn"
)

// ReplaceLost is what check --replace-lost does before the check, with another patience.
func ReplaceLost(ctx context.Context, w World, dir string, patience time.Duration) (code int, err error) {
	if err = rebuildLost(ctx, &w, dir, patience); err != nil {
		code = exitCode(err)
	}
	return code, err
}

// AwaitLooks is whether who waits for copies with a patience gives up, who looks every so often and
// sees one after the other of what there is to be seen.
func AwaitLooks(patience, every time.Duration, seen ...txn.Redundancy) error {
	now := time.Now()
	wait := newCopyWait(seen[0], patience, now)
	for i := range seen {
		if err := wait.look(seen[i], now.Add(time.Duration(i)*every)); err != nil {
			return err
		}
	}
	return nil
}

// SetOpenDatabase replaces what opens the database that is copied until the function that it
// returns is called.
func SetOpenDatabase(fn func(context.Context, txn.Options) (*txn.DB, error)) (restore func()) {
	was := openDatabase
	openDatabase = fn
	return func() { openDatabase = was }
}

// WriteFile writes a file by a function.
var WriteFile = writeFile
