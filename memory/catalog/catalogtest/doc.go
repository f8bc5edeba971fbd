// Package catalogtest has what every memory.Catalog must pass: call Test from a
// test of the implementation.
package catalogtest
