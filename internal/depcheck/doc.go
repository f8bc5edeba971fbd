// Package depcheck enforces the architecture of this repository as a test:
// which package may import which, what the data path may not touch, and that
// every package is documented.
//
// It reads source files and nothing else: no build, no go list, every file
// whatever its build constraints, so a rule cannot hide behind a tag. [Load]
// collects the packages below a root, and these rules look at them:
//
//   - [Layering]: imports go downwards only. The order is the table [Layers];
//     a package that is in no layer is a finding too, so that a new top-level
//     directory cannot slip in without a decision. [Restrictions] say which
//     packages may import what is large, such as etcd's client, and which may
//     not import what has alternatives, such as one index of several. [Debts]
//     are the imports against these rules that there are.
//   - [Determinism]: what lies below txn gets time, waiting, randomness and
//     I/O from its fabric, so that it runs unchanged and repeatably under a
//     simulator. The data path therefore names no clock, no timer, no global
//     random source, no file, no socket, and starts no goroutine.
//   - [Documentation]: every package has a doc.go whose comment says what the
//     package is, no package is named after what it is not about, and no
//     comment begins with the name of something else.
//
// Test files (_test.go) and packages that exist only for tests (named with
// the suffix "test", after testing/fstest) are free of the first two rules:
// they stand outside the layers that they exercise.
//
// A [Finding] names file, line, rule and what to do instead; the rules
// themselves are tested on small sources that break them one by one.
package depcheck
