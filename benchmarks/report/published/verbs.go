package published

// Layout is what the number of verbs depends on besides the transaction.
type Layout struct {
	Backups int // f, per record
	Blades  int // M
}

// Phases of a transaction, in FORD's order.
const (
	Read     = iota // read, and lock what will be written
	Validate        // read again what was only read
	Log             // write the undo log
	Commit          // write all replicas, and flush
	Release         // unlock, in the background
	NumPhases
)

// Cost is work requests and round trips. A round trip that phases share is
// counted in the later one.
type Cost struct {
	Verbs      float64
	RoundTrips float64
}

// Transaction is a transaction type as FORD runs it, if it commits.
type Transaction struct {
	Name  string
	Share float64 // percent of FORD's mix
	Read  int     // records only read (r)
	Write int     // records written (n)
	Steps int     // round trips until everything is read and locked
	// More is how many further records may be read, of which some transactions
	// read fewer. Then Cost is a range.
	More int
}

// Transactions returns the types of a workload in the order of its mix; nil if
// the workload is none of FORD's.
func Transactions(workload string) []Transaction { return transactions[workload] }

// Lookup returns the type of that name.
func Lookup(workload, name string) (Transaction, bool) {
	for _, t := range transactions[workload] {
		if t.Name == name {
			return t, true
		}
	}
	return Transaction{}, false
}

var transactions = map[string][]Transaction{
	"smallbank": {
		{Name: "Amalgamate", Share: 15, Write: 3, Steps: 1},
		{Name: "Balance", Share: 15, Read: 2, Steps: 1},
		{Name: "DepositChecking", Share: 15, Write: 1, Steps: 1},
		{Name: "SendPayment", Share: 25, Write: 2, Steps: 1},
		{Name: "TransactSaving", Share: 15, Write: 1, Steps: 1},
		{Name: "WriteCheck", Share: 15, Read: 1, Write: 1, Steps: 1},
	},
	"tatp": {
		{Name: "GetSubscriberData", Share: 35, Read: 1, Steps: 1},
		{Name: "GetAccessData", Share: 35, Read: 1, Steps: 1},
		{Name: "GetNewDestination", Share: 10, Read: 2, Steps: 2, More: 2},
		{Name: "UpdateSubscriberData", Share: 2, Write: 2, Steps: 1},
		{Name: "UpdateLocation", Share: 14, Read: 1, Write: 1, Steps: 2},
		{Name: "InsertCallForwarding", Share: 2, Read: 2, Write: 1, Steps: 3},
		{Name: "DeleteCallForwarding", Share: 2, Read: 1, Write: 1, Steps: 2},
	},
}

// FORD returns what FORD posts and waits for in each phase: for reads a READ
// each and another to validate, for writes CAS and READ, a log record to every
// blade, two WRITEs to each replica, a flush READ from each backup of the last
// record, and a WRITE to each replica to release it: 2r + 2n + M + 3n(f+1) + f.
// One record that is only read needs no validation. Validation and log share a
// round trip. Steps that read one after the other take a round trip each.
func (t Transaction) FORD(l Layout) [NumPhases]Cost {
	r, n, f := float64(t.Read), float64(t.Write), float64(l.Backups)
	c := [NumPhases]Cost{Read: {r + 2*n, float64(t.Steps)}}
	if n == 0 {
		if r > 1 {
			c[Validate] = Cost{r, 1}
		}
		return c
	}
	c[Validate] = Cost{r, 0}
	c[Log] = Cost{float64(l.Blades), 1}
	c[Commit] = Cost{2*n*(f+1) + f, 1}
	c[Release] = Cost{n * (f + 1), 0}
	return c
}

// Bound returns the most that our default policy may post and wait for: a log
// record to each of f+1 blades ahead of the data, one image per replica, and a
// WRITE to each primary: 2r + 2n + (f+1) + n(f+1) + n. The log takes no round
// trip of its own; validation does.
func (t Transaction) Bound(l Layout) Cost {
	r, n, f := float64(t.Read), float64(t.Write), float64(l.Backups)
	if n == 0 {
		return Sum(t.FORD(l))
	}
	c := Cost{2*r + 2*n + (f + 1) + n*(f+1) + n, float64(t.Steps) + 1}
	if r > 0 {
		c.RoundTrips++
	}
	return c
}

// Most returns the type with all the records that it may read.
func (t Transaction) Most() Transaction {
	t.Read, t.More = t.Read+t.More, 0
	return t
}

// Sum adds the phases up.
func Sum(phases [NumPhases]Cost) Cost {
	var c Cost
	for _, p := range phases {
		c.Verbs += p.Verbs
		c.RoundTrips += p.RoundTrips
	}
	return c
}

// PerAttempt is the mean work requests of an attempt of FORD's mix, with those
// that end without a commit: FORD's, as measured at one thread (figure 10), where
// hardly one ends in a conflict, but 14 % of SmallBank's for lack of funds and 25 %
// of TATP's for lack of a row; and the most that the default policy may need by
// design, 0 where that has not been said. Two blades and one backup.
func PerAttempt(workload string) (ford, bound float64) {
	p, ok := At(Curve(workload, FORDPlus), 1)
	if !ok {
		return 0, 0
	}
	if workload == "tatp" {
		bound = 2.9
	}
	return p.VerbsPerAttempt, bound
}
