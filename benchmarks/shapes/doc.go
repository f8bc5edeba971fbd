// Command shapes measures the engine in shapes of load that the benchmarks do not
// have, on tables in this process:
//
//   - keys: what a key costs in transactions that take thousands of them;
//   - contention: a thousand goroutines that write ten keys, or one; those that hold a
//     lock for long; a View of many keys that others write;
//   - inserts, churn, tables, values: time and memory when tables fill, when what they
//     hold is replaced for ever, when there are thousands of them, and when values
//     change their size;
//   - directory: how long it takes to open and close a directory, also after its process
//     was killed;
//   - commit: durable commits of many goroutines, by the number of workers.
//
// Each of them looks afterwards whether the tables hold what was committed, and fails if
// they do not. docs/performance.md has the figures. Memory is measured on Linux only, as
// that of the process: of one measurement when --only names one.
package main
