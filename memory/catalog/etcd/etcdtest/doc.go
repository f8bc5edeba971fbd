// Package etcdtest has etcds for tests: [StandIn], which is in the process of the test and fails as
// the test wants, and [Server], a process of a real etcd.
package etcdtest
