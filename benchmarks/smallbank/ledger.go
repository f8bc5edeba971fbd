package smallbank

import (
	"fmt"
	"strings"
)

// flow is how a transaction changes the money in the bank.
type flow uint8

const (
	noFlow    flow = iota // it does not
	deposited             // DepositChecking
	saved                 // TransactSaving
	checked               // WriteCheck, covered
	overdrawn             // WriteCheck, not covered
	numFlows
)

var flowNames = [numFlows]string{"moved", "deposits", "savings transacted", "checks", "checks not covered"}

// ledger counts the transactions of one client by flow. The client alone
// writes it; it is read while no client runs.
type ledger struct {
	committed [numFlows]int64
	uncertain [numFlows]int64 // may have committed or not
	_         [128 - 2*numFlows*8]byte
}

func (l *ledger) add(m *ledger) {
	for f := range numFlows {
		l.committed[f] += m.committed[f]
		l.uncertain[f] += m.uncertain[f]
	}
}

// values returns what one transaction of each flow adds to the money in the bank.
func (a *amounts) values() [numFlows]Money {
	return [numFlows]Money{
		deposited: a.deposit,
		saved:     a.savings,
		checked:   -a.check,
		overdrawn: -a.check - a.penalty,
	}
}

// expected returns baseline plus the committed flows.
func (l *ledger) expected(baseline Money, value [numFlows]Money) Money {
	for f, n := range l.committed {
		baseline += Money(n) * value[f]
	}
	return baseline
}

// explains reports whether some of the uncertain transactions, from flow f up,
// if they committed, account for missing.
func (l *ledger) explains(missing Money, value [numFlows]Money, f flow) bool {
	if f == numFlows {
		return missing == 0
	}
	if f == numFlows-1 && value[f] != 0 {
		n := int64(missing / value[f])
		return missing%value[f] == 0 && n >= 0 && n <= l.uncertain[f]
	}
	for n := range l.uncertain[f] + 1 {
		if l.explains(missing-Money(n)*value[f], value, f+1) {
			return true
		}
	}
	return false
}

// statement writes the books out: baseline + flows = expected.
func (l *ledger) statement(baseline Money, value [numFlows]Money) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at the start", baseline)
	uncertain := int64(0)
	for f := deposited; f < numFlows; f++ {
		uncertain += l.uncertain[f]
		if n := l.committed[f]; n > 0 {
			fmt.Fprintf(&b, ", %d %s of %s", n, flowNames[f], value[f])
		}
	}
	if uncertain > 0 {
		fmt.Fprintf(&b, ", %d transactions of unknown outcome", uncertain)
	}
	fmt.Fprintf(&b, "; %s expected", l.expected(baseline, value))
	return b.String()
}
