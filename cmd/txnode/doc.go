// Command txnode runs, measures and explains the transaction engine. Every
// command explains itself: txnode help, txnode help bench smallbank.
//
// Results go to standard output, in tables, JSON or CSV; progress and warnings
// go to standard error, progress only if that is a terminal.
//
// Exit codes:
//
//	0    success
//	1    failure: one line on standard error says of what
//	2    wrong usage: an unknown command, flag or value
//	3    verification failed: the books do not balance, the history is not
//	     strictly serializable, or a check has found damage
//	130  interrupted (Ctrl-C): results until then are printed
package main
