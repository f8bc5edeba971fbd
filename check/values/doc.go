// Package values checks what transactions computed, without a look at the
// versions that the engine reports about itself: a counter whose increments must
// all be there. (Lists that are appended to, which show the order of transactions
// in their values, are [txnode/check.CheckLists].)
//
// The check is a pure function and accepts every history that a strictly
// serializable store can produce; it does not catch everything else.
package values
