// Package mutant is wrong versions of the protocol, for testing the tests: each
// mutation takes one step of it away, or does it too early, and a suite that lets
// one of them pass has a hole.
//
// A mutation is a constant false, so that normal builds contain no trace of it. In
// a build with the tag "mutants" it is a variable, and the environment variable
// TXNODE_MUTANT, which names one of them, makes it true:
//
//	TXNODE_MUTANT=skip-validation go test -tags mutants ./txn -run TestWriteSkew
//
// Package hunt below it runs the suites against all of them ("make mutants").
package mutant
