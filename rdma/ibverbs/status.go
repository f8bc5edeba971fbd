package ibverbs

import (
	"fmt"

	"txnode/rdma"
)

// Statuses of completions (enum ibv_wc_status).
const (
	wcSuccess        = 0
	wcFlushed        = 5
	wcRemoteInvalid  = 9
	wcRemoteAccess   = 10
	wcRemoteOperate  = 11
	wcRetryExceeded  = 12
	wcNotReadyPassed = 13
)

// refused reports whether a status is that of a request that the blade's device has refused: the
// request has had no effect, and those behind it have none.
func refused(wc uint32) bool {
	return wc == wcRemoteInvalid || wc == wcRemoteAccess || wc == wcRemoteOperate
}

// statusOf is how a request ends that is the first to fail on its queue pair. Post has checked
// bounds, rights, alignment and verb, so what the blade's device refuses is the key.
func statusOf(wc uint32) rdma.Status {
	switch wc {
	case wcSuccess:
		return rdma.StatusOK
	case wcRemoteAccess:
		return rdma.StatusKey
	case wcRemoteInvalid:
		return rdma.StatusBadOp
	case wcFlushed, wcRetryExceeded, wcNotReadyPassed:
		return rdma.StatusTimeout
	}
	return rdma.StatusInternal
}

// words are what a status of a completion means, and what to do.
func words(wc uint32) string {
	all := map[uint32]string{
		1:               "a local buffer is too small for what came: a fault of this program",
		2:               "the request does not fit the queue pair: a fault of this program",
		4:               "a local buffer is not registered: a fault of this program",
		wcFlushed:       "the queue pair was in the error state",
		7:               "an answer that fits no request: look for a faulty link or device",
		8:               "a local buffer may not be accessed: a fault of this program",
		wcRemoteInvalid: "the blade's device does not accept such a request: compare txnode doctor on both hosts",
		wcRemoteAccess:  "the key opens nothing: it was revoked",
		wcRemoteOperate: "the blade's device could not execute it: look at the blade's log and kernel",
		wcRetryExceeded: "no answer after all retries: the host, its port, or the way to it is down; on RoCE look at " +
			"MTU and flow control of the switches, too",
		wcNotReadyPassed: "the blade does not take requests: is it another program?",
		21:               "a fault of the device: look at the kernel's log",
	}
	if text, ok := all[wc]; ok {
		return fmt.Sprintf("status %d: %s", wc, text)
	}
	return fmt.Sprintf("status %d: look it up as ibv_wc_status of libibverbs", wc)
}

// event is an asynchronous event of a device.
type event struct{ kind uint32 }

// Kinds of events (enum ibv_event_type).
const (
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortError   = 10
)

// fatal reports whether the device is of no use after the event.
func (e event) fatal() bool { return e.kind == eventDeviceFatal }

// String says what has happened, and what to do.
func (e event) String() string {
	all := map[uint32]string{
		0:                "a completion queue has overflowed: a fault of this program",
		1:                "a queue pair has failed: its thread connects anew",
		2:                "a queue pair has refused a request of its partner: a fault of the partner",
		3:                "a queue pair has refused an access of its partner: its key was revoked",
		eventDeviceFatal: "the device was removed or has failed: look at the kernel's log, and start the process again",
		eventPortActive:  "the port is up",
		eventPortError:   "the port is down: look at cable and switch, and ip link",
		11:               "the LID of the port has changed: connections are made anew",
		12:               "the partition keys of the port have changed",
		13:               "the subnet manager has changed",
		17:               "the subnet manager asks for registration again",
		18:               "the GIDs of the port have changed: addresses of its network interface were set anew",
	}
	if text, ok := all[e.kind]; ok {
		return text
	}
	return fmt.Sprintf("event %d: look it up as ibv_event_type of libibverbs", e.kind)
}
