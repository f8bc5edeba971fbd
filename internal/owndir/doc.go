// Package owndir keeps data in directories of this user, for this user alone.
//
// A user that can read a file of a database can lock it (flock), so nobody else may. A user that
// can write to a directory can put links there, through which a daemon would empty files of its own
// user. So directories of other users are refused, and links; what is this user's and has a wider
// mode than 700, or 600, gets that.
package owndir
