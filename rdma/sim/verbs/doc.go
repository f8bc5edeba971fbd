// Package verbs is the micro-benchmark of the SMART paper (section 3.1) on the
// simulated RNIC: each thread posts k work requests, rings the doorbell, and
// waits for all of them, at random addresses, again and again. Figures 3, 4 and
// 13 and table 1 of that paper are runs of it.
package verbs
