// Package mutant holds wrong versions of the engine, for testing the tests. Each mutation
// leaves one step out, or does it too early. A suite that lets a mutation pass has a hole.
//
// A mutation is a file patches/NAME.patch: a sentence that says what the mutation does wrong,
// and a unified diff of the engine with three lines of context. The engine itself contains no
// trace of mutations. To run a test against one:
//
//	git apply internal/mutant/patches/skip-validation.patch
//	go test ./txn -run TestWriteSkew
//	git apply -R internal/mutant/patches/skip-validation.patch
//
// Command hunt, below this package, runs the suites against all of them ("make mutants"). It
// applies the patches to copies of the files, so the working tree stays as it is. A patch changes
// bodies of functions only: so hunt can compile all mutations at once.
//
// To add a mutation, name it and the files that it changes; edit the copies that hunt leaves, and
// write the sentence into the file SENTENCE beside them; save the patch; and let hunt find the test
// that catches it:
//
//	go run ./internal/mutant/hunt -edit late-log occ/default.go
//	go run ./internal/mutant/hunt -save late-log
//	go run ./internal/mutant/hunt -only '^late-log$' -learn internal/mutant/hunt/catchers.txt
//
// A patch applies only where its context stands unchanged, at the line that it names or at
// the only other place in the file with the same lines. A change of the engine can break
// that: TestPatchesApply then names the patch, the file and the hunk, and
// "go run ./internal/mutant/hunt -refresh" makes the patch anew, or leaves copies of the files
// to be edited by hand.
package mutant
