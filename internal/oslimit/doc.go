// Package oslimit says of errors of the operating system which limit to raise.
//
// A full disk, a quota, or a limit of the process (ulimit) is no damage. Its bare text, "file too
// large" or "too many open files", does not say what to change.
package oslimit
