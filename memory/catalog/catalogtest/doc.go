// Package catalogtest has what every layout.Catalog must pass: call Test from a
// test of the implementation. And it has catalogs that fail as tests want it.
package catalogtest
