//go:build mutants

package mutant

// Every mutation, by what it breaks. Exactly the one that was chosen is true.
var (
	SkipValidation = mutation("skip-validation",
		"What a transaction has only read is not read again before it is believed: two reads need not be of one moment.")
	ValidationIgnoresLocks = mutation("validation-ignores-locks",
		"Validation compares versions and not locks (FORD's second mistake): two writers may each read what the other replaces.")
	SkipAbsenceValidation = mutation("skip-absence-validation",
		"An absent key is not looked up again: another transaction may have inserted it meanwhile (phantom).")
	ReadLocked = mutation("read-locked",
		"A reader accepts an image whose guard is held: its writer may have been acknowledged with the next one.")
	GuardNotCompared = mutation("guard-not-compared",
		"A reader accepts an image whose guard has another version: a value that was replaced before the read was over.")
	ReleaseForeignLock = mutation("release-foreign-lock",
		"A conflict releases the lock that it ran into (FORD's first mistake).")
	ForgetLocksBehindConflict = mutation("forget-locks-behind-conflict",
		"After the first conflict of a batch the locks that the rest of it took are not noted, and never released.")
	KeepLockOfStaleAddress = mutation("keep-lock-of-stale-address",
		"A lock that was taken by a stale address on another key's block is kept.")
	TrustStaleAddress = mutation("trust-stale-address",
		"The key of a block that the address cache led to is not compared.")
	BelieveOtherKey = mutation("believe-other-key",
		"A candidate that holds another key proves the absence of the key, although it may have been used again since its slot was read.")
	AtEndForgotten = mutation("at-end-forgotten",
		"What a transaction reads that validates at its end is never validated.")
	LateReadCertifiesAll = mutation("late-read-certifies-all",
		"A single record that is read last is taken to prove that the earlier ones still are what they were.")
	TrustBackup = mutation("trust-backup",
		"A record that was read from a backup is not validated at the primary.")
	LockByHope = mutation("lock-by-hope",
		"Locking at commit does not compare the version: an update between read and lock is lost.")
	UnlockBeforeBackups = mutation("unlock-before-backups",
		"The primary is published and unlocked while the backup images are under way: the next writer may overtake them.")
	BackupImageBeforeLog = mutation("backup-image-before-log",
		"Images go to the backups in front of the log record: a stop between the two leaves an image that no log explains.")
	LogOnFBlades = mutation("log-on-f-blades",
		"The log record is on f blades, not f+1, when the commit is acknowledged: f failures lose it.")
	AcknowledgeBeforeLog = mutation("acknowledge-before-log",
		"The commit is acknowledged when the log is posted, not when it has arrived.")
	NoFlush = mutation("no-flush",
		"On a fabric where completion is not placement, locks are released before the backup images are placed.")
	AbortChangesVersion = mutation("abort-changes-version",
		"An aborted transaction releases its locks with its own id for a version.")
	LogSpaceBeforeRelease = mutation("log-space-before-release",
		"The log space of a transaction is given back while its locks are still being released.")
	LogSpaceOfUnknown = mutation("log-space-of-unknown",
		"A broken session goes on writing its log, over the records of transactions whose outcome nobody knows yet.")
	BlockOfCommitted = mutation("block-of-committed",
		"A session that rejoins takes back the block of its insert when it is free, although the insert had taken effect and somebody else has deleted the record since.")
	ReclaimedUndone = mutation("reclaimed-undone",
		"A transaction is undone because a record that it has deleted, and that was being reclaimed, is free on a backup.")
	NeverHadIsSince = mutation("never-had-is-since",
		"Of an insert whose record its own transaction has deleted, recovery takes a copy that never had the placeholder for one that was reclaimed since.")
	PlaceholderMoves = mutation("placeholder-moves",
		"A record that is inserted, and outgrows its block in the same transaction, moves as one that was there before.")
	BackupReadsUndecided = mutation("backup-reads-undecided",
		"A backup goes on with what the copies of a lost blade have, before everything is decided that was under way.")
	TapMayPanic = mutation("tap-may-panic",
		"A transaction is rolled back, after it has written its log, because a backup that copies what it has written panics.")
	DeadOneCloses = mutation("dead-one-closes",
		"A coordinator that was declared dead is closed, its logs are cleared, and others get its log areas, while it is recovered.")
	UndoAsEdited = mutation("undo-as-edited",
		"An undo record has what the user has made of a value that he was given, instead of what was there.")
	FreedSinceIgnored = mutation("freed-since-ignored",
		"After the loss of a blade, an insert that was at rest, and whose record somebody has deleted since, is finished once more where the key was about to be inserted again.")
	HalvesLeftAlone = mutation("halves-left-alone",
		"Who opens the database after a crash does not look for blocks that are free on some copies only.")
	AbandonedUndecided = mutation("abandoned-undecided",
		"A sweep reclaims deleted records while it is undecided what was under way when a blade was lost.")
	DecidedOneByOne = mutation("decided-one-by-one",
		"Of the coordinators that were declared dead together with a blade, one is recovered without the others.")
	RemnantLeft = mutation("remnant-left",
		"Recovery does not free what another recoverer has left of an undone insert when he died.")
	ResolvingForgotten = mutation("resolving-forgotten",
		"A sweep forgets free blocks of nobody's of which somebody was just looking whose lock they have.")
	BuiltCopyLags = mutation("built-copy-lags",
		"Copies that are being built are not compared again when verbs have failed of somebody who goes on in the same epoch.")
	TornImageAtRest = mutation("torn-image-at-rest",
		"After the loss of a blade, half an image of a new record is taken for something that its transaction has nothing to do with.")
	MoveUnlocksFirst = mutation("move-unlocks-first",
		"The lock of a record that has moved is released while copies of the block that it has left are not free yet.")
	LockedNotFreed = mutation("locked-not-freed",
		"The block that a record has left counts as not freed if somebody has locked it since, who has come too late.")
	ThinForgotten = mutation("thin-forgotten",
		"What a lost blade alone had of a coordinator's log counts as never logged.")
	NewestOverwritten = mutation("newest-overwritten",
		"A log record is written over the newest one of its coordinator, of which nothing but that says that it was committed.")
	NewerOverwritten = mutation("newer-overwritten",
		"The record of a transaction at rest is written over the last copy of a newer one, when recovery brings records to f+1 blades.")
	OverlapUndecided = mutation("overlap-undecided",
		"Of two log records that overlap, of transactions that began before either was written, none is taken for the newer one, and recovery leaves it on too few blades.")
	HalfLockKept = mutation("half-lock-kept",
		"Who gives up taking a lock of an index, since a copy does not follow, keeps it on the primary, though he is alive and nobody takes it over.")
	BusyInsertForgotten = mutation("busy-insert-forgotten",
		"An insert that has given up waiting for a change of the index frees its block, though the slot may be set.")
	ClaimNotRenewed = mutation("claim-not-renewed",
		"Who recovers is taken for dead when that takes longer than a lease.")
	RingOverlap = mutation("ring-overlap",
		"The log ring does not look at what is in use: a record is overwritten while its transaction is under way.")
	KeepUnwrittenLocks = mutation("keep-unwritten-locks",
		"A commit releases the locks of what it has written, and not of what it has only locked.")
	GuardBeforeBody = mutation("guard-before-body",
		"Of an image of several lines the one with the guard is written first.")
	FirstBackupOnly = mutation("first-backup-only",
		"Only the first backup gets the image.")
	ReuseVersion = mutation("reuse-version",
		"Two transactions in a row get the same id, and so the same version.")
	NoChecksum = mutation("no-checksum",
		"The checksum of an image is not compared: a torn read is taken for a record.")
	FordLogOnOneBlade = mutation("ford-log-on-one-blade",
		"Policy ford: the undo log is written to one blade only.")
	FordImageUnlocked = mutation("ford-image-unlocked",
		"Policy ford: images are written with the lock off, before the commit is decided.")
	FordReleaseWithoutBackups = mutation("ford-release-without-backups",
		"Policy ford: only the primary's lock is released.")
	PlaceholderHasFinalVersion = mutation("placeholder-has-final-version",
		"The block that an insert links carries the version that the commit will install.")
	PlaceholderNotPlaced = mutation("placeholder-not-placed",
		"A slot leads to the block of an insert before the block is placed.")
	PlaceholderUnlocked = mutation("placeholder-unlocked",
		"The block that an insert links is not locked.")
	AbortKeepsSlot = mutation("abort-keeps-slot",
		"An insert that aborts frees its block and leaves the slot that leads to it.")
	MoveUnlocked = mutation("move-unlocked",
		"A record that moves is unlocked in its new block before the move is over.")
	MoveUnlocksBackupsLate = mutation("move-unlocks-backups-late",
		"The backups of a record that moves are unlocked together with the primary, not before it.")
	MoveToCopyFirst = mutation("move-to-copy-first",
		"A record moves into a new block on the copy that is being built before, or while, it is locked on the primary: the copier may overwrite it with the free block.")
	MoveKeepsOldBlock = mutation("move-keeps-old-block",
		"The block that a record has left is given back and still says that it is the record.")
	ReclaimWithoutLock = mutation("reclaim-without-lock",
		"The block of a deleted record is freed without its lock, although the key may have been inserted again.")
	NewerTombstoneDropped = mutation("newer-tombstone-dropped",
		"A session that was declared dead forgets others' deleted records in segments that have come since.")
	TombstonesNotBequeathed = mutation("tombstones-not-bequeathed",
		"A session that is closed forgets the deleted records of others that it could not reclaim.")
	LastResignsAtOnce = mutation("last-resigns-at-once",
		"The last session to be closed does not try again what others had locked, who have ended since.")
	OneStepEach = mutation("one-step-each",
		"A worker that was idle for long does one step of a sweep each time that it sees to maintenance.")
	ClaimUnwound = mutation("claim-unwound",
		"Who is unwound while he recovers somebody keeps the claim, for ever if there are no leases.")
	RejoinStarves = mutation("rejoin-starves",
		"A coroutine waits to have its session rejoin, which another one has done, for as long as that is at work.")
	UnwoundPosts = mutation("unwound-posts",
		"What a coroutine that is unwound in the middle of something rolls back is posted.")
	UnwoundRollsBack = mutation("unwound-rolls-back",
		"A coroutine that is unwound rolls its transaction back, and so writes in the arena of what it has posted.")
	UnwoundForgets = mutation("unwound-forgets",
		"A session whose thread is unwound while it reclaims a deleted record forgets it.")
	UnwoundCloses = mutation("unwound-closes",
		"A session whose coroutines were unwound in the middle of something is closed in order.")
	ClosingInheritsNothing = mutation("closing-inherits-nothing",
		"A session that is being closed is not given the deleted records of others that are closed.")
	ReclaimStopsAtDamage = mutation("reclaim-stops-at-damage",
		"A deleted record of a table whose index is damaged keeps a session from reclaiming others, and from being closed.")
	SkipDuplicateCheck = mutation("skip-duplicate-check",
		"An insert does not look for other slots of its key: two inserts of one key both succeed.")
	BucketHeaderFirst = mutation("bucket-header-first",
		"A lookup reads the header of a bucket before its slots, as the paper does: it may miss slots that a split moves between the two.")
	DropMarkedSlot = mutation("drop-marked-slot",
		"A split clears a marked slot that it has not set in the new sub-table.")
	LateSlotForgotten = mutation("late-slot-forgotten",
		"Who undoes an insert looks for its slot only where lookups of the key come by, and not in a sub-table whose split was over before the slot was set.")
	LateSlotIsDamage = mutation("late-slot-is-damage",
		"A split that meets the slot of an insert which came too late takes it for damage.")
	LeftBlockGiven = mutation("left-block-given",
		"A sweep gives a free block away to which a slot leads that it could not empty, since somebody else was at it.")
	VacatedAgain = mutation("vacated-again",
		"A slot that was emptied since nobody had its block, and that is back with the copy of a blade that was lost, is taken for one that was only marked.")
	MarksOfNobody = mutation("marks-of-nobody",
		"Who recovers an index does not look for marks in sub-tables that nobody has locked.")
	UnmarkUndecided = mutation("unmark-undecided",
		"Who recovers an index takes the mark off a slot that leads to a free block, although it is not decided whether somebody has that.")
	TwinElsewhere = mutation("twin-elsewhere",
		"Who recovers an index looks for another slot of a marked slot's block in the same sub-table alone.")
	ChildTakenTwice = mutation("child-taken-twice",
		"Who recovers an index gives back the memory of a sub-table that an old one names and that no directory entry leads to, although somebody else has done so.")
	DamageCopied = mutation("damage-copied",
		"Who recovers an index brings a damaged word of the primary to the copies, from which it could be repaired.")
	EmptinessCopied = mutation("emptiness-copied",
		"Who recovers an index empties the copies of a slot that damage has emptied on the primary, though its record is there and has no other slot.")
	DepthCopied = mutation("depth-copied",
		"Who recovers an index brings a damaged depth of a bucket to the copies, though no split is under way.")
	SplitByPrimary = mutation("split-by-primary",
		"A split leaves the slot of a record that is damaged on the primary where lookups of its key do not come by any more, although another copy tells of which key it is.")
	SweepAwaitsDamage = mutation("sweep-awaits-damage",
		"A sweep beside a damaged index waits for copies of a slot to be equal, which nobody makes equal there.")
	LostSlotBreaks = mutation("lost-slot-breaks",
		"A session that is to reclaim a deleted record whose slot damage has emptied is broken by that.")
	VacantWithoutBackups = mutation("vacant-without-backups",
		"Without backups, a slot is emptied whose block is free, as if a placeholder had been lost and its slot not.")
	SpoiltAwaited = mutation("spoilt-awaited",
		"A split waits for a block that is free, though it has had a record, which is damaged on every other copy.")
	DamagedIsVacant = mutation("damaged-is-vacant",
		"A slot is emptied whose block says that it is free, though its checksum does not match.")
	DamagedIsFree = mutation("damaged-is-free",
		"A sweep takes a block for free whose first words say so, though its checksum does not match and a copy has a record.")
	ZeroedIsFree = mutation("zeroed-is-free",
		"A record of which the primary is zero is freed on the copies, though a slot leads there: by a sweep, and by who recovers the client that has inserted it.")
	DamagedLockAtRest = mutation("damaged-lock-at-rest",
		"A transaction whose log says that it is committed counts as at rest for a guard that says so, though the record is still the one that it was to replace.")
	DamagedLineAtRest = mutation("damaged-line-at-rest",
		"A record whose line is damaged on the primary counts as at rest, though a copy has still what a committed transaction was to replace.")
	SlotNotPinned = mutation("slot-not-pinned",
		"Who recovers an index makes a copy of a slot equal to the primary without marking it first, although it may hold the same once more by then.")
	TwinsBothGo = mutation("twins-both-go",
		"Of two marked slots that lead to one block, whoever finishes a split empties both.")
	AstrayUnmarked = mutation("astray-unmarked",
		"Who recovers an index takes the mark off a slot that no lookup of the block's key comes by, although the block may be that of an insert under way.")
	TwoSlotsWait = mutation("two-slots-wait",
		"An insert that finds two slots of its block, neither of them marked, waits for one to go.")
	BusyNotBuilt = mutation("busy-not-built",
		"Who gives a change of an index up, since a backup does not follow, does not bring it to copies that are being built.")
	FreedUnlocked = mutation("freed-unlocked",
		"Who recovers a move that is undone makes the new block free before its guard, which nobody has locked.")
	FreeInOneWrite = mutation("free-in-one-write",
		"Without OrderedLine a block is made free by one WRITE, of which the guard may arrive first.")
	CopyInTheWay = mutation("copy-in-the-way",
		"A copy that a dead client's placeholder has come to keeps a slot from being emptied whose block is free on the primary.")
	LockOfDeadInTheWay = mutation("lock-of-dead-in-the-way",
		"A free block on which somebody who has died has left a lock counts as one that somebody has: the split of a sub-table with a slot that leads there waits for a sweep, which waits for the split.")
	UsedPlaceTaken = mutation("used-place-taken",
		"An insert into a sub-table that is being split takes a place whose like in the new one has been used: what it puts there seems to have been carried.")
	LockedNotLeft = mutation("locked-not-left",
		"A sweep passes over a slot whose free block somebody has locked who is reading it, and gives the block away when he has.")
	ReadBlockForgotten = mutation("read-block-forgotten",
		"A sweep passes over a free block that somebody has locked who is reading it, and is the last.")
	HollowBesideDamage = mutation("hollow-beside-damage",
		"After the loss of a blade a sweep gives free blocks away although slots of a damaged index may lead to them.")
	RecoveryStopsAtDamage = mutation("recovery-stops-at-damage",
		"Recovery goes no further than what a dead coordinator has begun in a table whose index is damaged.")
	ScrubByLooking = mutation("scrub-by-looking",
		"What is zero in the memory of a blade that is taken in again is taken to be zero on its disk.")
	HollowForgotten = mutation("hollow-forgotten",
		"Who opens a database does not know that a blade was lost, and gives free blocks away although slots of a damaged index may lead to them.")
	CopyAwaitsJunk = mutation("copy-awaits-junk",
		"The copier waits for what looks locked by nobody who ever was, for ever.")
	CopyLiveLock = mutation("copy-live-lock",
		"The copier copies what stays locked without asking whether its owner is alive.")
	CopyAwaitsSweep = mutation("copy-awaits-sweep",
		"Copies of everything are not built while there are locks of nobody's in a table whose index is damaged.")
	SweepStopsAtLost = mutation("sweep-stops-at-lost",
		"A sweep goes no further than what is linked in an index of which a part is lost.")
	StrandedUnlocked = mutation("stranded-unlocked",
		"A record that could not be moved, since the index of its table was damaged, is unlocked as it was.")
	StrandedBeforeImage = mutation("stranded-before-image",
		"A record that could not be moved, since the index of its table was damaged, is said to have left its block before its image is in the other one.")
	StrandedByPrimary = mutation("stranded-by-primary",
		"A record whose move is to be finished is unlocked for a guard of the primary that is damaged, without a look at the other copies.")
	CarriedAgain = mutation("carried-again",
		"A slot that a split had carried, and that is back with the copy of a blade that was lost, is taken for one that the split has only marked.")
	DirectoryOutlivesEpoch = mutation("directory-outlives-epoch",
		"A directory that was read before a blade was lost is used on, although the split that it does not know of, or knows of, may be at another point now.")
	ClearPrimaryFirst = mutation("clear-primary-first",
		"A split clears the slots that it has carried over on the primary first: when that is lost, they are back, and what they lead to is something else.")
	LikeIgnored = mutation("like-ignored",
		"While a sub-table is filled, an insert goes into a slot of the old one whose place in the new one is taken.")
	PassedIsMarked = mutation("passed-is-marked",
		"A copy of a bucket's header that is ahead of the primary counts as having a mark, whatever a lost primary has left there.")
	ExtentWhileUncertain = mutation("extent-while-uncertain",
		"An extent is used again although a verb to it has failed that may still arrive.")
	LateSlotInTheWay = mutation("late-slot-in-the-way",
		"A split waits until a slot whose insert came too late is taken back, though its client is dead, and others look after that only when the split is finished.")
	MarkNotBuilt = mutation("mark-not-built",
		"An insert that relies on another one's mark does not bring it to copies that are being built.")
	HollowLeftBehind = mutation("hollow-left-behind",
		"A split leaves a slot where it is whose block is free, and may yet get a record, whose key may belong to the new sub-table.")
	ClearBeforeSet = mutation("clear-before-set",
		"A split clears a slot in the old sub-table before it sets it in the new one.")
	InsertIntoFilling = mutation("insert-into-filling",
		"Inserts go to the new sub-table as soon as the directory names it.")
	TrustStaleDirectory = mutation("trust-stale-directory",
		"A lookup does not compare the headers of the buckets with the directory that led to them.")
	AbsenceIgnoresHeaders = mutation("absence-ignores-headers",
		"The validation of an absence does not compare the headers of the buckets.")
	HeadersAfterMove = mutation("headers-after-move",
		"A split carries the slots before it changes the headers.")
	SkipSecondSubTable = mutation("skip-second-sub-table",
		"A lookup in a sub-table that is being filled reads the old one only.")
	SpillWithoutMark = mutation("spill-without-mark",
		"An insert into the second choice makes no mark in the first.")
	MarkOnPrimaryOnly = mutation("mark-on-primary-only",
		"A mark is made on the primary alone.")
	MoveWithoutMark = mutation("move-without-mark",
		"A split makes no marks for the slots that it carries to the new sub-table.")
	AbsenceIgnoresMarks = mutation("absence-ignores-marks",
		"The validation of an absence does not look whether the first choice has got a mark.")
	TrustRecountedMark = mutation("trust-recounted-mark",
		"An insert does not look whether a split has taken back the mark that it relies on.")
	RecountForgets = mutation("recount-forgets",
		"A split takes back all marks, also those that slots need which stay.")
	RemoveWithoutTrace = mutation("remove-without-trace",
		"A slot that is emptied holds what it held before anything was in it.")
	SlotOnPrimaryOnly = mutation("slot-on-primary-only",
		"A change of a slot is not copied to the backups.")
	KeepKeys = mutation("keep-keys",
		"A new epoch leaves the blades' access keys as they are: late verbs of the fenced land.")
	AdoptAnythingFree = mutation("adopt-anything-free",
		"A scan hands out free blocks that this session has freed itself: one block in two hands.")
	RecycleCoordinator = mutation("recycle-coordinator",
		"The number of a coordinator is used again: its transaction ids repeat.")
	LogAreaNotCleared = mutation("log-area-not-cleared",
		"The log area of a closed coordinator goes to the next one as it is.")
	ClaimUnmarked = mutation("claim-unmarked",
		"Recovery without a claim: the epoch moves, and the catalog does not say that somebody decides the transactions of the dead; others do, too.")
	ClaimKeepsEpoch = mutation("claim-keeps-epoch",
		"A claim does not move the epoch: late verbs of the dead land in the middle of their recovery, or after it.")
	ClaimInSameEpoch = mutation("claim-in-same-epoch",
		"A claim that takes over somebody else's keeps his epoch: two recoverers write at once.")
	VerdictNotKept = mutation("verdict-not-kept",
		"What recovery decides is not made durable before it is done: whoever asks is told that he was answered, or aborted.")
	UndoCommitted = mutation("undo-committed",
		"Policy ford: a transaction whose images are in place everywhere is undone, although its client may have been told.")
	DismissLoneLog = mutation("dismiss-lone-log",
		"A redo record that is not on f+1 blades is not taken for a decision, although backups may have its images.")
	LogNotReplicated = mutation("log-not-replicated",
		"Recovery installs images whose log record is on fewer than f+1 blades: the loss of one, and of the recoverer, halves the transaction.")
	VerdictBeforeLog = mutation("verdict-before-log",
		"Recovery makes it durable that a transaction is committed whose log record is on fewer than f+1 blades: with one of them, and the recoverer, it vanishes.")
	ClearBeforeFinish = mutation("clear-before-finish",
		"Recovery clears the logs before what they decide is in place.")
	BackupNotRepaired = mutation("backup-not-repaired",
		"Recovery writes images to the primaries and not to the backups.")
	PrimariesBeforeBackups = mutation("primaries-before-backups",
		"Recovery unlocks primaries before the backups have their images: who recovers next finds nothing to do.")
	RecoveryNotPlaced = mutation("recovery-not-placed",
		"Recovery unlocks, clears and forgets while what it has written is not placed yet.")
	SlotNotMended = mutation("slot-not-mended",
		"A slot that the dead has switched on some of its copies is left like that.")
	MoveFreedTwice = mutation("move-freed-twice",
		"The block that a complete move has left is freed once more by recovery, although somebody may have it by then.")
	StealLiveLock = mutation("steal-live-lock",
		"A lock that is met is taken for an orphan although its owner is alive.")
	SweepLeavesLocks = mutation("sweep-leaves-locks",
		"A sweep counts as complete although somebody else was resolving a lock that it met, who may have failed.")
	VacateUnmarked = mutation("vacate-unmarked",
		"A slot whose block was free is emptied without a mark: the block may have been linked there again since.")
	VacateUndecided = mutation("vacate-undecided",
		"A slot whose block is free is emptied while transactions are undecided that may have lost their placeholders with a blade.")
	SlotsNotScoured = mutation("slots-not-scoured",
		"After the loss of a blade nobody looks for slots of dead inserters that lead to free blocks.")
	SlotSwitchedByAnybody = mutation("slot-switched-by-anybody",
		"Policy ford: after the loss of a blade a slot that does not lead to the old block of a record is taken for switched by whoever was about to move it.")
	StraysLeftAlone = mutation("strays-left-alone",
		"A sweep does not look for free blocks that nobody has: those of the dead are lost until the database is opened again.")
	StraysOnLists = mutation("strays-on-lists",
		"A sweep gives free blocks to the pool that are on the list of a live session.")
	StraysOnTheirWay = mutation("strays-on-their-way",
		"A sweep gives free blocks to the pool that a live session has taken, and is about to use, or to free.")
	StraysNotReadAgain = mutation("strays-not-read-again",
		"A sweep gives blocks to the pool that were free when it came by, and may have been taken and used since.")
	StraysWhileUndecided = mutation("strays-while-undecided",
		"A sweep gives blocks to the pool while transactions of the dead are undecided whose blocks they may be.")
	StraysReturnedTwice = mutation("strays-returned-twice",
		"Two sweeps that find the same blocks both give them to the pool.")
	LateOwnerKeepsBlocks = mutation("late-owner-keeps-blocks",
		"A session that was declared dead and wakes up goes on with the blocks that a sweep has given to others.")
	TombstoneLeftBehind = mutation("tombstone-left-behind",
		"A sweep leaves deleted records alone whose sessions are dead: nobody reclaims their blocks.")
	PromotedAsFound = mutation("promoted-as-found",
		"A backup that becomes the primary is taken as it is found: it never carried the locks, so nothing seems to be left to decide.")
	CopyUndecided = mutation("copy-undecided",
		"Copies are built while it is undecided what was under way when a blade was lost.")
	FreeingNotCopied = mutation("freeing-not-copied",
		"A copy that is built does not get the numbers of free blocks.")
	CopyCountsAtOnce = mutation("copy-counts-at-once",
		"A new copy of a segment counts as one before it has been filled.")
	CopySkipsLocked = mutation("copy-skips-locked",
		"The copier does not come back to blocks that were locked, or had changed, when it came by.")
	NewCopyNotWritten = mutation("new-copy-not-written",
		"Commits do not write to copies that are being built.")
	LogNotFlushed = mutation("log-not-flushed",
		"DurabilityPower: a commit is acknowledged before its log is durable.")
	CheckpointWithoutFlush = mutation("checkpoint-without-flush",
		"DurabilityPower: a checkpoint does not flush the blocks.")
	CheckpointDoesNotWait = mutation("checkpoint-does-not-wait",
		"DurabilityPower: a checkpoint does not wait for transactions that are installing their images.")
	LogSpaceBeforeCheckpoint = mutation("log-space-before-checkpoint",
		"DurabilityPower: log space is used again when its transaction is at rest, without a checkpoint.")
	WaitsForTheDead = mutation("waits-for-the-dead",
		"DurabilityPower: who needs log space, or closes, waits for a commit of somebody who has died instead of recovering him.")
	WaitsForItself = mutation("waits-for-itself",
		"DurabilityPower: who recovers others waits for a commit of its own session, which its recovery has broken, and which is decided after it.")
	TombstonesUnweighed = mutation("tombstones-unweighed",
		"Deleted records are kept by their number alone, however large they are.")
	BlocksToMeasure = mutation("blocks-to-measure",
		"A record gets a block of its own size, or none, though larger ones are free.")
	SpreadLate = mutation("spread-late",
		"Blocks of a size lie on one blade until there are many, however much room there is.")
	StockOfTheDead = mutation("stock-of-the-dead",
		"An allocator without room takes the free blocks of one whose coordinator was declared dead.")
	LostStockKept = mutation("lost-stock-kept",
		"Allocators keep free blocks of segments that are lost, for others to get.")
	CandidatesToTheEnd = mutation("candidates-to-the-end",
		"Of several candidates for a key, one of which is long, all are read to the ends of their blocks.")
	RejoinGivesUp = mutation("rejoin-gives-up",
		"DurabilityPower: who rejoins beside somebody whose commit takes longer than a checkpoint waits stays broken.")
	IgnoreGenerations = mutation("ignore-generations",
		"DurabilityPower: log records from before the last checkpoint are replayed.")
	FoundLogNotFlushed = mutation("found-log-not-flushed",
		"DurabilityPower: recovery decides by log records that it has found and that may not be durable.")
	BuiltNotFlushed = mutation("built-not-flushed",
		"DurabilityPower: what is written to a copy while it is being built is not flushed, neither by checkpoints nor before it is a full one.")
	LossOfNobody = mutation("loss-of-nobody",
		"When a blade is lost and no coordinator is open, no sweep is due, and slots are not looked at that lead to lost placeholders.")
	LostIsAbsent = mutation("lost-is-absent",
		"DurabilityPower: indexes are built again without records whose every copy was lost with blades: their keys are absent.")
	PromiseOfOthers = mutation("promise-of-others",
		"DurabilityPower: who opens a database without it, and recovers one that was open with it, does not flush the words of extents.")
	ChangedFileBelieved = mutation("changed-file-believed",
		"A region file that was changed since it was closed is not written again before a promise is based on it.")
	KeyForRestarted = mutation("key-for-restarted",
		"A blade that has restarted gets the key of the next epoch like all others: what it has lost counts as if it were there.")
	RestartUnnoticed = mutation("restart-unnoticed",
		"A blade that has restarted and answers counts as the one that it was, and is not declared dead.")
	VacantByPrimary = mutation("vacant-by-primary",
		"A slot is taken for nobody's when its block is free on the primary, whatever the other copies say.")
	ResolveTogether = mutation("resolve-together",
		"Two who meet an orphan lock resolve it both: the second one frees what somebody has put there since.")
	MendTogether = mutation("mend-together",
		"Two recover one index at the same time, under numbers that both take for left over.")
	ForgetAhead = mutation("forget-ahead",
		"The verdict on a coordinator forgets the ids that were drawn before its last log record: acknowledged transactions count as aborted.")
	SweepGoesOn = mutation("sweep-goes-on",
		"A sweep that meets a half-done change of an index goes on where it was, and never comes to the index again.")
	ChildOfLiving = mutation("child-of-living",
		"Indexes: who takes a split over goes on although the new sub-table is locked by somebody who is not dead, who has failed while giving the split up.")
	AbandonKeepsLocks = mutation("abandon-keeps-locks",
		"Who gives up a change of an index in the middle leaves its locks in its own name: nobody takes over those of somebody alive.")
	NobodyIsAlive = mutation("nobody-is-alive",
		"The recovery of an index does not take over locks that somebody has left who has given up.")
	LogPartUnread = mutation("log-part-unread",
		"Recovery reads only the first part of a log area that has grown.")
	GrowUnrecorded = mutation("grow-unrecorded",
		"The catalog does not learn how much of its log areas a coordinator uses.")
	GateOpen = mutation("gate-open",
		"Sessions begin again before everything is decided that was under way when a blade was lost.")
	StayUncertain = mutation("stay-uncertain",
		"Recovery keeps the epoch although a verb of the coordinator may still arrive.")
	ChoresUncounted = mutation("chores-uncounted",
		"A session becomes another coordinator while it recovers others in the name of the old one.")
	AnswerForgotten = mutation("answer-forgotten",
		"Who rejoins does not complete the verdict that somebody else has made of its transactions.")
	BusyKeepsClaim = mutation("busy-keeps-claim",
		"A session whose own recovery waits for a change of an index keeps its claim on itself, and who made the change may be waiting for it.")
	RejoinsAlone = mutation("rejoins-alone",
		"A session whose own recovery waits for somebody dead does not recover him with itself.")
	PauseUnanswered = mutation("pause-unanswered",
		"A coroutine lets others of its thread go on between a commit and its answer.")
	DoubtKept = mutation("doubt-kept",
		"A change of the catalog that is said to have failed, and was made, stays when the catalog answers again.")
	LateChangeTaken = mutation("late-change-taken",
		"A change of the catalog that has failed, and was not made, may be made later.")
	ClaimsAlike = mutation("claims-alike",
		"Who has had a claim takes it over again from whoever has claimed since, in one epoch with him.")
	ClaimsImpatient = mutation("claims-impatient",
		"A claim that somebody has lost because it expired is no longer good for longer when it is made again.")
	UnlinkedUnlocked = mutation("unlinked-unlocked",
		"Who fails after he has unlinked a deleted record of a dead client leaves its block unlocked, as he found it.")
	ReaderSetsKeys = mutation("reader-sets-keys",
		"Who opens a database to read it gives the blades the keys of the epoch that he knows, though somebody else is in another one.")
	OthersOverlooked = mutation("others-overlooked",
		"Who asks what has become of a change of the catalog goes on, although somebody else has changed it meanwhile.")
	FreeingStranded = mutation("freeing-stranded",
		"A move whose old block is being freed is left as unfinished, since the index is damaged.")
	OpenIsAtRest = mutation("open-is-at-rest",
		"A session that is asked counts its open transactions as ended.")
	AdmitUncleared = mutation("admit-uncleared",
		"A blade is taken in again with what its memory held.")
	PromotionForgotten = mutation("promotion-forgotten",
		"Who recovers next does not know that a blade was lost, and with it locks.")
	StraightTrustsAddress = mutation("straight-trusts-address",
		"The straight path takes whatever block the address cache led to.")
	StraightIgnoresHolder = mutation("straight-ignores-holder",
		"The straight path takes a record for locked without looking whether the lock was free.")
	StraightReadsLocked = mutation("straight-reads-locked",
		"The straight path reads a record that is locked, or whose guard has another version.")
	StraightSkipsValidation = mutation("straight-skips-validation",
		"What the straight path has only read is not validated.")
	StraightWithoutLog = mutation("straight-without-log",
		"The straight path publishes without a log record.")
	StraightLogUnsealed = mutation("straight-log-unsealed",
		"The log record of the straight path has a checksum that leaves out its entries.")
	TornOverLock = mutation("torn-over-lock",
		"Who reclaims a placeholder that a dead coordinator has locked does not ask whether somebody was just writing it.")
	TornFreeAdopted = mutation("torn-free-adopted",
		"Who looks for free blocks of earlier sessions takes one that somebody is just freeing, when a part of that has arrived.")
	TornTombstone = mutation("torn-tombstone",
		"A sweep that has locked a deleted record of nobody's does not look whether it was one.")
	FreesUnwound = mutation("frees-unwound",
		"Extents that were being freed when a panic ended that are nobody's until the database is opened again.")
	CopierUnwound = mutation("copier-unwound",
		"Who takes over from a copier that a panic has ended in the middle of a step goes on with what is left on its list.")
	DeadExtentTwice = mutation("dead-extent-twice",
		"What a dead coordinator had allocated is freed by whoever has found it, whoever has the place meanwhile.")
	BereftBelieved = mutation("bereft-believed",
		"A deleted record found by its cached address is believed, though its lock may have been lost with a blade.")
)
