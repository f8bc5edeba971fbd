// Command hunt runs the suites that are to keep the engine correct against wrong
// versions of it: every mutation of package mutant, each until the first test fails.
// It prints which one that was, and fails itself if none did: then a test is missing.
//
//	go run ./internal/mutant/hunt [-only pattern] [-jobs n] [-list] [-show]
//
// It has to be run in the root of the module, whose files it does not change: patches are
// applied to copies, and the compiler takes those instead (go build -overlay). Each test
// binary is compiled once, with all mutations in it, so a mutation may change bodies of functions
// only; an environment variable says which one a process has. A patch that does not apply any
// more, and a mutation that does not compile, end the hunt before it begins.
//
// A change of the engine may require patches to be made anew, and a new test is best tried on a
// new mutation:
//
//	go run ./internal/mutant/hunt [-only pattern] -refresh
//	go run ./internal/mutant/hunt -edit name [file ...]
//	go run ./internal/mutant/hunt -save name
//
// With -refresh a patch whose context has changed is applied with less of it, and written
// again. If that is not possible the command leaves copies of the files to be edited, as -edit
// does, in which the hunks are changed that still apply; -save writes the patch from them.
package main
