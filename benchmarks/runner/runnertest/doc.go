// Package runnertest is a store for tests of what measures and reports: its
// clock is virtual and its workers take turns by it, so that every number that
// a run gives, throughput and percentiles included, is the same on every
// machine and at every call. Conflicts, stalls, lost writes and errors happen
// where the test says so. What it counts as verbs is made up.
package runnertest
