// Package mum is the hash by which structures on blades and entries of the
// catalog verify themselves: one 64x64 to 128 bit multiplication per word, its
// halves folded together. It detects damage; it is no defence against forgery.
package mum
