package depcheck

// A Debt is an import that [Layers] or [Restrictions] forbid, and that there is all the same.
type Debt struct {
	File    string
	Imports string // as a directory of this module
	Until   string // what ends it
}

// What ends debts.
const (
	onePath  = "occ and its recovery have one path for all kinds of tables"
	contract = "a tree is walked by the contract of package index"
	programs = "blades for a test are started by a package below cmd"
)

// Debts only become fewer: TestRepository fails for one that is paid, until it is taken off the
// list.
var Debts = []Debt{
	{"benchmarks/peers/contenders.go", "cmd/txnode/command", programs},
	{"benchmarks/peers/main.go", "cmd/txnode/command", programs},
	{"occ/recovery/recovery.go", "index/tree", onePath},
	{"txn/bulk.go", "index/tree", onePath},
	{"txn/bulk_leaves.go", "index/tree", onePath},
	{"txn/convert.go", "index/tree", onePath},
	{"txn/copier.go", "index/tree", onePath},
	{"txn/info.go", "index/tree", onePath},
	{"txn/open_table.go", "index/tree", onePath},
	{"txn/restore.go", "index/tree", onePath},
	{"verify/dump_node.go", "index/blink", contract},
	{"verify/dump_node.go", "index/bucket", contract},
	{"verify/dump_node.go", "index/tree", contract},
	{"verify/link.go", "index/blink", contract},
	{"verify/link.go", "index/bucket", contract},
	{"verify/link.go", "index/tree", contract},
	{"verify/tree.go", "index/blink", contract},
	{"verify/tree.go", "index/bucket", contract},
	{"verify/tree.go", "index/tree", contract},
}
