package check_test

import (
	"errors"
	"fmt"
	"os"

	"txnode/check"
	"txnode/history"
)

// Two doctors are on call, and each transaction takes one off call because it
// saw the other on call.
func ExampleCheck() {
	const alice, bob = history.Key(1), history.Key(2)
	names := map[history.Key]string{alice: "alice", bob: "bob"}

	var rec history.Recorder
	first, second := rec.Session(), rec.Session()
	first.Op(history.Op{Kind: history.Read, Key: bob, Version: 2})
	first.Op(history.Op{Kind: history.Write, Key: alice, Prev: 1, Version: 11})
	first.End(11, 0, 20, history.Committed)
	second.Op(history.Op{Kind: history.Read, Key: alice, Version: 1})
	second.Op(history.Op{Kind: history.Write, Key: bob, Prev: 2, Version: 12})
	second.End(12, 10, 30, history.Committed)

	r := check.Check(rec.Txns(), check.Options{KeyName: func(k history.Key) string { return names[k] }})
	fmt.Println(errors.Is(r.Err(), check.ErrViolation), r.Violations[0].Class)
	fmt.Print(r)
	// Output:
	// true write skew
	// transactions: 2, operations: 4, edges: 0 ww, 0 wr, 2 rw, 0 rt
	// violations of strict serializability: 1
	//
	// write skew (G2-item): 2 transactions, each of which must come before the next
	//   T11 -rw-> T12: T11 read version 2 of bob, then T12 installed 12
	//   T12 -rw-> T11: T12 read version 1 of alice, then T11 installed 11
	//   recorded:
	//     T11 0 20 ok r(bob)=2 w(alice)=1->11
	//     T12 10 30 ok r(alice)=1 w(bob)=2->12
}

// The second transaction saw the append of the first, which started when it had ended.
func ExampleCheckLists() {
	r := check.CheckLists([]check.ListTxn{
		{ID: 1, Start: 20, End: 30, Outcome: history.Committed, Ops: []check.ListOp{{Key: 5, Append: 7}}},
		{ID: 2, Start: 0, End: 10, Outcome: history.Committed, Ops: []check.ListOp{{Key: 5, List: []uint64{7}}}},
	}, check.Options{})
	fmt.Println(r.Err())
	// Output:
	// check: 1 violation(s) of strict serializability in 2 transactions, the first:
	// future read (G1c-realtime): 2 transactions, each of which must come before the next
	//   T2 -rt-> T1: T2 ended at 10, T1 started at 20
	//   T1 -wr-> T2: T1 left key 0x5 up to element 7, and T2 read that
	//   recorded:
	//     T2 0 10 ok r(key 0x5)=[7]
	//     T1 20 30 ok append(key 0x5)=7
}

func ExampleWriteElle() {
	txns := []history.Txn{{ID: 1, Start: 100, End: 200, Outcome: history.Committed, Ops: []history.Op{
		{Kind: history.Write, Key: 5, Version: 7},
	}}}
	if err := check.WriteElle(os.Stdout, txns); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {:index 0, :time 100, :type :invoke, :process 0, :f :txn, :value [[:r 5 nil] [:w 5 7]]}
	// {:index 1, :time 200, :type :ok, :process 0, :f :txn, :value [[:r 5 nil] [:w 5 7]]}
}
