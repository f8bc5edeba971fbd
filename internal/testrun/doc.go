//go:build unix

// Command testrun runs 'go test -json' commands one after the other, shows what they do, and ends
// them when they are stuck. It is what 'make test' prints.
//
//	testrun [-silence 10m] :: go test -json ./... :: label=race go test -json -race ./txn ::
//	dir=peers go test -json ./...
//
// Every command begins behind a "::"; label=WORD is shown beside its packages, dir=PATH is where it
// runs. A line per package goes to stdout when it has ended, then the output of what has failed,
// the tests that were skipped, by reason, and the summary:
//
//	DONE 6515 tests, 64 skipped, 1 failure in 241.3s
//
// Counted are tests and subtests; a package that fails outside of any test (it does not compile,
// its TestMain panics) counts as one test. When stderr is a terminal, a line there says what runs.
// The exit code is 1 when something has failed. SIGINT ends the command that runs, and what is
// known so far is printed.
//
// # Stuck
//
// A limit in minutes is wrong on a slow or busy machine, where a test that works takes several
// times as long. Progress is what counts: the beginning and the end of every test, and every line
// that it logs. A command is stuck when it has made none for so long (-silence), and in this time
// has either used that much of a processor (it goes round in a circle) or hardly any (it waits for
// what does not come). Tests that work on a busy machine do neither. What is stuck gets SIGQUIT, on
// which test binaries print the stacks of all goroutines, and half a minute later SIGKILL; each
// command has a process group of its own for that.
package main
