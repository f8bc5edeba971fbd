package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"

	"txnode/txn/snapshot"
)

// A copy that is made while somebody writes is the state at the cut: of a key that was
// changed by then, the last change.
func Example() {
	var file bytes.Buffer
	w, err := snapshot.NewWriter(&file, snapshot.Header{Blades: 2, Backups: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	step := func(err error) {
		if err != nil {
			fmt.Println(err)
		}
	}
	step(w.Base(1, []byte("ada"), []byte("100")))
	step(w.Commit(7, []snapshot.Change{
		{Table: 1, Key: []byte("ada"), Value: []byte("70")}, {Table: 1, Key: []byte("bob"), Value: []byte("30")},
	}))
	step(w.Commit(8, []snapshot.Change{{Table: 1, Key: []byte("bob"), Deleted: true}})) // past the cut
	_, err = w.Finish(7, []snapshot.Table{{ID: 1, Name: "accounts", Options: []byte(`{}`)}})
	step(err)

	r, err := snapshot.Open(bytes.NewReader(file.Bytes()), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	step(r.Records(nil, func(_ uint16, key, value []byte) error {
		fmt.Printf("%s has %s\n", key, value)
		return nil
	}))

	_, err = snapshot.Open(bytes.NewReader(file.Bytes()[:file.Len()-20]), nil)
	fmt.Println("cut off:", errors.Is(err, snapshot.ErrDamaged))
	// Unordered output:
	// ada has 70
	// bob has 30
	// cut off: true
}
