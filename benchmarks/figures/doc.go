// Command figures writes the tables of docs/simulator-*.md anew, so that they are never
// older than the code. A table stands between two comments, of which the first names the
// command that prints it:
//
//	<!-- txnode sim hash --figure 14 -->
//	...
//	<!-- end -->
//
// figures runs each command with --markdown, and puts what it prints between the comments, which it
// leaves in place. "make figures" runs it; FIGURES is a pattern of the commands to run.
package main
