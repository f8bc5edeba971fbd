package snapshot

import "errors"

// Errors of Open and Writer; wrapped with what is wrong and where in the file.
var (
	// ErrFormat: the file is no backup, or one of a later format.
	ErrFormat = errors.New("snapshot: not a backup of a format known here")
	// ErrDamaged: the file is a backup, but not as it was written: it was cut off
	// (the disk was full, the backup was interrupted) or changed since.
	ErrDamaged = errors.New("snapshot: damaged or incomplete backup; take another")
	// ErrTooLarge: a key or value does not fit the format.
	ErrTooLarge = errors.New("snapshot: too large")
	// ErrBehind: what the backup is written to is slower than transactions change the database.
	ErrBehind = errors.New("snapshot: the backup is not written as fast as transactions change the database: write " +
		"it to a faster file")

	errFinished = errors.New("snapshot: the backup is finished")
)
