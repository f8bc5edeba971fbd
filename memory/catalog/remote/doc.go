// Package remote has a catalog that several processes share. One process has the catalog and
// serves it with package rdma/tcp: [NewService]. The others use it through [Client], which
// is a layout.Catalog.
//
//	process of the catalog                        a process of transactions
//	layout.Catalog <- Service  <- connection <-   Client: Load, Apply, and what Await asks at once
//	                           <- connection <-   Client: one long poll for all that Await
//
// # Revisions
//
// A message has the identity of the catalog and a revision. Both are the catalog's, and outlive the
// process that serves it. So answers are ordered by what they say, in whatever order they arrive,
// and whichever of two connections, or processes one after the other, has given them.
//
// A catalog does not go back. An answer of an earlier revision than the latest that was known when
// it was asked for is of an old copy, which the process was started with: every call is a
// *layout.BehindError as long as that lasts. An answer with another identity is of another catalog:
// layout.ErrForeign.
//
// # Failures
//
// While the process of the catalog is away, Load and Apply fail with [ErrAway] within
// Options.Control. Await goes on waiting: it connects again, with pauses that grow to a second.
// When the process is back, all go on. An Apply whose connection breaks is not repeated, since it
// may have been made: the contract of layout.Catalog leaves that open.
//
// A long poll is answered after two seconds at most, so that a peer that is gone is noticed.
//
// # Limits
//
// A message has at most tcp.MaxMessage bytes, and so has what a catalog with clients can hold: a
// change that would be too much is refused with memory.ErrNoSpace. A length in a message is
// compared with the bytes that are there; entries take at most six times the bytes of their
// message. A client that may connect may change the catalog: it is trusted with the data.
package remote
