// Package raced keeps tests that have nothing for it to find away from the race detector, under
// which they would take five to ten times as long.
package raced
