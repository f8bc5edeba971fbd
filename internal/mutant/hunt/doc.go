//go:build mutants

// Command hunt runs the suites that are to keep the engine correct against wrong
// versions of it: every mutation of package mutant, each until the first test fails.
// It prints which one that was, and fails itself if none did: then a test is missing.
//
//	go run -tags mutants ./internal/mutant/hunt [-only pattern] [-jobs n] [-list] [-show]
//
// It has to be run in the root of the module.
package main
