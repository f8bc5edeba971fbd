// Package report turns what package runner has measured into results that are
// kept and compared: a schema for JSON that later versions go on reading,
// tables for people, CSV for spreadsheets, a history file, and the comparison
// with published figures (sub-package published).
//
// # Schema
//
// [Result], [Explanation] and [Comparison] are what -o json prints. Each names
// its schema and the schema's version. Fields are added without a new version;
// a field that changes its meaning, or goes, raises it. Units stand last in
// names: _ns, _per_s, _bytes, _percent. Times are those of the store's clock,
// which on a simulated fabric is virtual.
//
// # Words
//
// A transaction ends in one of three ways: committed, rolled back (by a rule of
// the application), or row absent. Before that, attempts of it may have ended
// in a conflict. Attempts are therefore the transactions that ended and the
// conflicts. "Per committed" is the cost of the transactions that committed,
// with the retries before, per one of them; "per attempt" is the cost of
// everything per attempt, which is how FORD's and SMART's figures count.
//
// With several runs a table shows the median of each metric over the runs; the
// spread is the range of throughput relative to its median.
package report
