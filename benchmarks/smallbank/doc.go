// Package smallbank is the SmallBank benchmark (Alomari, Cahill, Fekete, Röhm:
// "The cost of serializability on platforms that use snapshot isolation",
// ICDE 2008) with the parameters of FORD's evaluation as defaults, written once
// against package workload. Unlike FORD's, its money is exact, and the books
// are checked.
//
// # Data
//
// Customers are numbered from 0; customer c has one record with key c in each of
// two tables:
//
//	table 0  savings     0  balance, int64 little endian, in units of 0.0001
//	table 1  checking    8  padding (Options.RecordPadding bytes, a fixed pattern)
//
// Amounts are decimal strings in Options and in reports (parsed and printed
// with apd) and scaled integers everywhere else. See [Money].
//
// # Transactions
//
// Each draws one or two distinct customers: with Options.HotProbability all of
// them from the hot ones (the lowest numbers), else all from everybody. Every
// key is staged before the first is used, so that one round trip can fetch,
// and lock, all of them.
//
//	type             share  read only          read and written
//	Amalgamate         15   -                  savings a, checking a, checking b
//	Balance            15   savings a, checking a   -
//	DepositChecking    15   -                  checking a
//	SendPayment        25   -                  checking a, checking b
//	TransactSaving     15   -                  savings a
//	WriteCheck         15   savings a          checking a
//
// Amalgamate moves all money of a to b's checking account, whatever its sign.
// Balance adds up a's two accounts. DepositChecking adds an amount.
// SendPayment moves an amount from a to b, or rolls back with
// [ErrInsufficientFunds] if a's checking balance is less than the amount.
// TransactSaving adds an amount to the savings; the amount may be negative in
// Options, and then the transaction rolls back rather than overdraw (with
// FORD's amount, 20.2, it never does). WriteCheck subtracts an amount from the
// checking balance if the two balances together cover it, and the amount plus a
// penalty if they do not: it always commits, and this is how checking balances
// become negative.
//
// # How often funds are insufficient
//
// Half of the customers were the source, rather than the target, of their last
// Amalgamate, and have little. About 56 % of SendPayments, 14.1 % of all
// transactions, roll back in the long run (tens of millions of transactions),
// which is also what FORD's program shows. From 100 up, the initial balance
// has no influence on that: with exact money and default options the rate is
// 5.8 % over the first 30,000 transactions, 12.9 % around 500,000, 13.6 % at 5
// million, for 100 as for FORD's 1,000,000,000. The default is 10,000, which
// leaves room for 2^62 units in all even with tens of millions of accounts.
//
// # Exactness
//
// Three types bring money in or take it out. Each client counts its committed
// transactions of those; [Driver.Verify] reads all accounts and compares their
// sum with what was loaded, or found by Load in a database that existed, plus
// deposits minus withdrawals. There is no tolerance.
package smallbank
