//go:build race

package raced

// Enabled says whether the program is built with the race detector.
const Enabled = true
