// Package embedded opens a database within the process: blades of package
// inproc, a catalog, and the space over them.
//
// Without a directory, everything is anonymous memory and gone after Close. With
// one, it holds
//
//	LOCK              locked while the database is open; names the process that has it
//	catalog.db        the catalog, a bbolt file
//	blade-000.region  the region of blade 0, a sparse file; and so on
//	settled.json      which regions need not be written again, so as to survive a loss of
//	                  power, when they are opened next; it may be removed
//
// Directory and files are for the user that opens the database for writing: modes 700 and 600,
// which they get if they had wider ones (package owndir). A directory of another user is refused,
// and so are links in it. Another user that can read a file of it could lock it.
//
// The directory is locked with flock: exclusively, or shared by read-only
// openers. A later opener gets [ErrLocked] at once. A read-only opener makes and changes no file.
// Where it finds no LOCK it has the lock on the catalog alone, which all others have, too.
//
// # Caveats
//
// Region files are as long as BladeSize but take only the disk that has been used; copy them with a
// tool that knows sparse files, all of them, with the catalog, while no process has the database
// open for writing: files of several moments are no database, which is not always noticed. What is
// in use gets its disk blocks back when a copy is opened. flock is advisory, and on some network
// file systems local to the host: do not put a database there.
package embedded
