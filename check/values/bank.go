package values

// Snapshot is what one transaction read of all accounts of a bank.
type Snapshot struct {
	ID       uint64
	Balances []int64 // in the smallest unit of the currency
}

// Bank is a set of accounts between which transactions move money.
type Bank struct {
	// Accounts is how many balances a snapshot has.
	Accounts int
	// Total is the sum of all balances, at any time.
	Total int64
	// Overdraft allows negative balances.
	Overdraft bool
}

// Check checks that every snapshot has all accounts, the total, and no negative
// balance without Overdraft. Returns nil or an [*Error].
func (b Bank) Check(snapshots []Snapshot) error {
	e := &Error{Check: "bank"}
	for _, s := range snapshots {
		if len(s.Balances) != b.Accounts {
			e.add("T%d saw %d accounts, expected %d", s.ID, len(s.Balances), b.Accounts)
			continue
		}
		sum := int64(0)
		for i, x := range s.Balances {
			sum += x
			if x < 0 && !b.Overdraft {
				e.add("T%d saw a balance of %d in account %d", s.ID, x, i)
			}
		}
		if sum != b.Total {
			e.add("T%d saw a total of %d, expected %d (difference %+d)", s.ID, sum, b.Total, sum-b.Total)
		}
	}
	return e.err()
}
