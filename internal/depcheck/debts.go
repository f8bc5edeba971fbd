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
	slots    = "hash tables are guarded blocks, and package race has no slots"
	programs = "blades for a test are started by a package below cmd"
)

// Debts only become fewer: TestRepository fails for one that is paid, until it is taken off the
// list.
var Debts = []Debt{
	{"benchmarks/peers/contenders.go", "cmd/txnode/command", programs},
	{"benchmarks/peers/main.go", "cmd/txnode/command", programs},
	{"occ/recovery/extents.go", "index/race", slots},
	{"occ/recovery/power.go", "index/race", slots},
	{"occ/recovery/prune.go", "index/race", slots},
	{"occ/recovery/recovery.go", "index/race", slots},
	{"occ/recovery/recovery.go", "index/tree", onePath},
	{"occ/recovery/strand.go", "index/race", slots},
	{"occ/recovery/sweep.go", "index/race", slots},
	{"txn/backup_shared.go", "index/race", slots},
	{"txn/bulk.go", "index/race", slots},
	{"txn/bulk.go", "index/tree", onePath},
	{"txn/bulk_leaves.go", "index/tree", onePath},
	{"txn/convert.go", "index/tree", onePath},
	{"txn/copier.go", "index/race", slots},
	{"txn/copier.go", "index/tree", onePath},
	{"txn/copy_ordered.go", "index/tree", onePath},
	{"txn/drop.go", "index/race", slots},
	{"txn/info.go", "index/race", slots},
	{"txn/info.go", "index/tree", onePath},
	{"txn/maintain.go", "index/race", slots},
	{"txn/repair.go", "index/race", slots},
	{"txn/open_table.go", "index/race", slots},
	{"txn/open_table.go", "index/tree", onePath},
	{"txn/options.go", "index/race", slots},
	{"txn/restore.go", "index/tree", onePath},
	{"txn/room.go", "index/race", slots},
	{"verify/dump.go", "index/race", slots},
	{"verify/dump_index.go", "index/race", slots},
	{"verify/dump_node.go", "index/blink", contract},
	{"verify/dump_node.go", "index/bucket", contract},
	{"verify/dump_node.go", "index/tree", contract},
	{"verify/dump_record.go", "index/race", slots},
	{"verify/indexes.go", "index/race", slots},
	{"verify/layout.go", "index/race", slots},
	{"verify/orphans.go", "index/race", slots},
	{"verify/slots.go", "index/race", slots},
	{"verify/tree.go", "index/blink", contract},
	{"verify/tree.go", "index/bucket", contract},
	{"verify/tree.go", "index/tree", contract},
}
