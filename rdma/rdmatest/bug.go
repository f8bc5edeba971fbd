package rdmatest

// Bug is a way to break the contract, for tests of tests: a conformance suite
// must find each of them.
type Bug string

// Bugs, by the clause of the contract that they break.
const (
	TornWords            Bug = "words are copied in parts"                      // 1
	LinesDownwards       Bug = "lines are read downwards"                       // 1
	WritesReordered      Bug = "WRITEs of a queue pair become visible anyhow"   // 2
	ReadsOvertake        Bug = "READs do not see earlier WRITEs"                // 2, 3
	AtomicsOvertake      Bug = "atomics do not see earlier WRITEs"              // 2, 3
	FenceFlagIgnored     Bug = "FlagFence is ignored"                           // 2
	CompletionsReordered Bug = "requests complete out of order"                 // 2
	FlushIgnored         Bug = "FLUSH does nothing"                             // 3
	AtomicsSplit         Bug = "atomics read and write at different times"      // 4
	MasksIgnored         Bug = "masked CAS compares and swaps the whole word"   // 4
	WholeWords           Bug = "WRITEs rewrite the whole words that they touch" // 4
	NoErrorState         Bug = "requests behind a failed one are executed"      // 5
	NoRecovery           Bug = "Reset leaves the error state"                   // 5
	OneErrorState        Bug = "an error breaks the queue pairs to all blades"  // 5
	BoundsOverflow       Bug = "offset and length are added without care"       // 6
	BoundsLate           Bug = "bounds are checked after execution"             // 6
	KeysUnchecked        Bug = "access keys are not checked"                    // 6
	KeysCheckedEarly     Bug = "access keys are checked when posted"            // 6
	LandingAfterRevoke   Bug = "Revoke leaves WRITEs that have arrived"         // 6
	OlderKeysStay        Bug = "Revoke leaves the keys before"                  // 6
	NewerKeysEnd         Bug = "Revoke ends the keys behind, too"               // 6
	StaleRevoke          Bug = "Revoke by a key that is gone ends all others"   // 6
	KeysRepeat           Bug = "Grant gives a key that the blade has had"       // 6
	KeysWithoutBound     Bug = "a blade has any number of keys"                 // 6
	LocalUnchecked       Bug = "requests may leave the arena: they are cut"     // 6
	AlignmentUnchecked   Bug = "atomics may be anywhere"                        // 6
	ResultsMixedUp       Bug = "an atomic gets the result of the one before"
	LongRequestsCut      Bug = "only 64 KiB of a request are copied"
	BlindToOddLengths    Bug = "lengths are rounded to words"
)
