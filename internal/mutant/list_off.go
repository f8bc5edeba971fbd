//go:build !mutants

package mutant

// Built without the tag there are no mutations: the compiler drops what depends on
// these. The other build says what each of them breaks.
const (
	SkipValidation             = false
	ValidationIgnoresLocks     = false
	SkipAbsenceValidation      = false
	ReadLocked                 = false
	GuardNotCompared           = false
	ReleaseForeignLock         = false
	ForgetLocksBehindConflict  = false
	KeepLockOfStaleAddress     = false
	TrustStaleAddress          = false
	BelieveOtherKey            = false
	LateReadCertifiesAll       = false
	TrustBackup                = false
	LockByHope                 = false
	UnlockBeforeBackups        = false
	BackupImageBeforeLog       = false
	LogOnFBlades               = false
	AcknowledgeBeforeLog       = false
	NoFlush                    = false
	AbortChangesVersion        = false
	LogSpaceBeforeRelease      = false
	RingOverlap                = false
	KeepUnwrittenLocks         = false
	GuardBeforeBody            = false
	FirstBackupOnly            = false
	ReuseVersion               = false
	NoChecksum                 = false
	FordLogOnOneBlade          = false
	FordImageUnlocked          = false
	FordReleaseWithoutBackups  = false
	PlaceholderHasFinalVersion = false
	PlaceholderNotPlaced       = false
	PlaceholderUnlocked        = false
	AbortKeepsSlot             = false
	MoveUnlocked               = false
	MoveUnlocksBackupsLate     = false
	MoveKeepsOldBlock          = false
	ReclaimWithoutLock         = false
	SkipDuplicateCheck         = false
	BucketHeaderFirst          = false
	DropMarkedSlot             = false
	ClearBeforeSet             = false
	InsertIntoFilling          = false
	TrustStaleDirectory        = false
	AbsenceIgnoresHeaders      = false
	HeadersAfterMove           = false
	SkipSecondSubTable         = false
	SpillWithoutMark           = false
	MarkOnPrimaryOnly          = false
	MoveWithoutMark            = false
	AbsenceIgnoresMarks        = false
	TrustRecountedMark         = false
	RecountForgets             = false
	RemoveWithoutTrace         = false
	SlotOnPrimaryOnly          = false
	KeepKeys                   = false
	AdoptAnythingFree          = false
	RecycleCoordinator         = false
	LogAreaNotCleared          = false
)
