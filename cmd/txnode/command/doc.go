// Package command is the command line of txnode. Each command has a file: an
// options struct that registers its flags (AddFlags) and finds every fault in
// them (Validate), the function that does the work, and, apart from both, the
// cobra command that joins them. What the commands need from the outside world
// is in [World], so that tests run them in their own process.
package command
