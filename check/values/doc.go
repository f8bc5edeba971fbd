// Package values checks what transactions computed, without a look at the
// versions that the engine reports about itself: a counter whose increments must
// all be there, and accounts whose total must be conserved. (Lists that are
// appended to, which show the order of transactions in their values, are
// [txnode/check.CheckLists].)
//
// The checks are pure functions and accept every history that a strictly
// serializable store can produce; they do not catch everything else.
package values
