// Package docscheck holds the Markdown pages of this repository to what is there, as a test.
//
// [Check] reads every page below a root and reports:
//
//   - links: a relative link leads to a file, and to a heading of it; every page of docs can be
//     reached from README.md by links;
//   - names: a path between backquotes whose first directory is one of the root is there, and a
//     test that a page names is declared somewhere;
//   - commands, between backquotes, in indented lines and in fenced blocks of a shell: make has the
//     target and the variable; go has the package, the packages have the tests of -run, -bench and
//     -fuzz, and a program or a test declares the flags; txnode has the command and its flags;
//   - shape: lines of at most 100 columns, outside of tables, code, comments and lines with a URL,
//     and pages of at most 16 KiB (README.md: 10 KiB).
//
// CHANGELOG.md has a form of its own, so its shape is free. A [Finding] names file and line.
// 'make docs-check' runs the test of this package, and so does 'make test'.
package docscheck
