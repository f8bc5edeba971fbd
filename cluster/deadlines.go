package cluster

import (
	"txnode/rdma/tcp"
	"txnode/txn"
)

// tcp are the options of connections, with the deadlines that follow from the lease term
// where none are set:
//
//	Connect  half of the term   a host without power answers nothing: an opening, a status and a
//	                            question about it wait so long, once
//	Verb     half of the term   so that a blade is suspected, and asked once more, within one
//	Control  the term           a disk of the other side may be behind it
//
// Of a term shorter than the default they are those of the default: that a process gives itself up
// early says nothing about servers.
func (o Options) tcp() tcp.Options {
	term, t := max(o.Term, txn.DefaultLeaseTerm), o.TCP
	if t.Connect == 0 {
		t.Connect = term / 2
	}
	if t.Verb == 0 {
		t.Verb = term / 2
	}
	if t.Control == 0 {
		t.Control = term
	}
	return t
}
