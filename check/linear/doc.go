// Package linear checks single keys of a history with Porcupine, which searches
// for a linearization instead of a cycle: an independent and much slower twin of
// [txnode/check.Check]. What a strictly serializable store does to one key is
// linearizable, so every violation found here is one; anomalies over several keys
// (write skew, for one) cannot be seen this way.
//
// It is a package of its own so that programs that embed the checker do not
// depend on Porcupine.
//
// # Windows
//
// The search is exponential in the worst case, so the operations of a key are cut into windows
// at moments when none is under way. The version that a window ends with is carried into the next
// if there is only one candidate; otherwise the next window begins with any
// version, and a contradiction between the two windows may be missed.
package linear
