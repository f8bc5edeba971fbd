// Package tcp is a network card in software: a fabric over TCP and unix sockets. A [Server]
// executes verbs on the regions of a process, with package region, and knows nothing of records. A
// [Fabric] is the client's side.
//
//	process of transactions                              process of blades
//	Thread -> port: a queue pair to each blade   <->     session: a lane of region.Set
//	Fabric: control connections                  <->     control: Provision, Grant, Revoke, blades
//	Caller: a connection to a service            <->     service: a function of the program
//
// # Data path
//
// A queue pair is one connection. Its frames are requests in one direction and replies in the
// other, in order; frame.go draws them, and testdata/frames.txt has each in bytes. Post encodes
// requests into the queue pair's buffer. The thread's next Wait writes the buffers, so the batches
// of all coroutines of a thread go to a blade in one write. The blade executes whatever requests a
// read has brought and answers in one write.
//
// On the blade's side the buffers are the arena of the lane. A WRITE's payload is copied from the
// receive buffer to the region, and a READ's from the region to the send buffer. On the client's
// side a payload of 4 KiB and more is received right where the READ wants it. A shorter one is
// copied once, which costs less than to receive it apart. Neither side allocates for a verb.
//
// A request of more than 128 KiB travels in pieces that end where a line of the region ends. The
// first piece tells the length of all, so a request that goes past the end of the region has no
// effect. If a key changes or a blade stops between two pieces of a WRITE, the request fails with
// StatusInternal, since a part of it has taken effect.
//
// # Services
//
// A server can have services besides blades: [Service] is a function from request to reply, of
// bytes that this package does not understand. Messages are drawn in message.go. They share
// ports, hellos, secrets, TLS and deadlines with the blades. Package memory/catalog/remote is a
// catalog behind one.
//
// # Waiting
//
// A thread waits for all its connections at once. On Linux they are in an epoll descriptor of the
// port, which is in Go's network poller, so a waiting thread is a parked goroutine. Elsewhere it is
// a call of poll(2), which keeps a thread of the system. Wait looks once before it parks and does
// not spin: where blades and threads share processors, spinning takes them from the peer.
//
// # Flow control
//
// A queue pair has at most Caps.MaxBatch frames under way; Post reaps when it is full. A client
// that cannot write reads meanwhile, so two sides never wait for each other. A blade that cannot
// write does not read: a client that takes no replies stops its own connection only, and loses it
// after ServerOptions.Timeout.
//
// # Errors and deadlines
//
// A verb that a blade refuses breaks the queue pair on the blade, and Reset repairs it there. A
// connection that breaks, or a reply that has not come within Options.Verb, breaks the queue pair
// on the client: whatever is outstanding ends with StatusTimeout, since it may have taken effect,
// or may still, until the access key changes. Reset connects anew. Dial, calls of the control path
// and connections have deadlines too, so no call waits for ever for a peer that is gone or silent.
//
// # Security
//
//   - TCP to other hosts needs TLS 1.3 with certificates of both sides. Without TLS a server
//     listens on loopback only, and a client connects to loopback only: ErrInsecure.
//   - On a unix socket the system tells which user connects. By default that must be the server's
//     own, or root. It tells the client which user serves, which must be one of Options.Users
//     unless there is a secret.
//   - A shared secret may be demanded besides. Each side proves by an HMAC over both sides'
//     random numbers that it has the secret. It does not encrypt, so it replaces no TLS.
//   - Without a secret, any user of a host can connect to a server on its loopback.
//
// A client that may connect may use all blades of the server, and all services: the control path
// tells the keys and changes them. So one server belongs to one database, and its clients trust
// each other with the data. What holds against a client that is hostile all the same:
//
//   - It cannot crash the server. Every length is compared with a limit before it is used, and
//     FuzzSession, FuzzReplies and FuzzHellos test both decoders.
//   - It reaches the regions, by verbs that pass the checks of clause 6 of the contract, and no
//     other memory of the process. What it gets beside payloads is zeros.
//   - Memory that was never written is zero. Memory that the database has freed is readable by
//     its clients, as on every fabric.
//   - It has bounded buffers (Memory bytes a connection) and a bounded number of connections. It
//     executes at most 256 requests, or 256 KiB of replies, at one go; then others have their
//     turn. It can use up all connections, and what the processor and the disk give.
//   - A request to a service takes memory as its bytes come, up to MaxMessage and twice that while
//     it grows. FuzzService tests it.
package tcp
