package channel

import (
	"fmt"

	"txnode/rdma"
)

// MemberID is the number of a member. A host gives each number once, from 1, so that a member that
// joins again under the same name has another one: the number is its incarnation. 0: none.
type MemberID uint32

// MaxMember is the greatest number of a member: words name members in 24 bits.
const MaxMember MemberID = 1<<memberBits - 1

const memberBits = 24

// Kind is what an object is.
type Kind uint8

// Kinds of objects.
const (
	KindMembers Kind = iota + 1
	KindVar
	KindOwned
	KindSST
	KindBarrier
	KindMutex
	KindTicketLock
	KindRing
	KindQueue
	KindKV
)

// String returns the kind's name.
func (k Kind) String() string {
	if k >= KindMembers && k <= KindKV {
		return [...]string{
			"members", "variable", "owned variable", "SST", "barrier", "mutex", "ticket lock", "ring", "queue", "map",
		}[k-1]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Spec is what all members that open an object must agree on.
type Spec struct {
	Kind  Kind
	Codec string // name of the codec of its values; "" where it has none
	Size  uint32 // bytes of one value
	Rows  uint32 // members that can take part, where the object has rows
	Slots uint32 // entries, where the object has them
	Bytes uint32 // of memory, all together; follows from the others
}

// Place is where an object lies.
type Place struct {
	Blade rdma.BladeID
	Off   uint64 // from the start of the blade's region, a multiple of 64
	// Incarnation is a greater number each time that an object is made, of any name. It is the
	// upper part of the tokens of a lock.
	Incarnation uint32
	// Life is that of the blade when the object was made: rdma.BladeInfo.Incarnation.
	Life uint64
	// Anew: an object of this name was there before, and is lost. What it has told its members is
	// not known any more.
	Anew bool `json:",omitempty"`
}

// Host is what the layer above provides: a catalog of objects, memory on blades, and the power to
// fence. It is one member's view. It belongs to the thread of the member. What several members must
// agree on, it keeps in a catalog that they share.
type Host interface {
	// Enroll makes this view that of a new member and returns the member's number, which no other
	// member has had.
	Enroll(c *rdma.Coro, name string) (MemberID, error)
	// Leave ends this view's member, which has no verb under way. Then it is dead, and the host may
	// forget it: Fence of its number moves the epoch once, at most.
	Leave(c *rdma.Coro) error
	// Declare returns the place of the object called name, and makes the object if there is none.
	// Its memory is then spec.Bytes zero bytes on one blade. A *SpecError if the object exists with
	// another specification. If the blade has begun anew since the object was made, Declare makes
	// another incarnation, when no verb that was posted by a view which has the earlier one takes
	// effect any more. ErrUnsettled, and nothing is done, while a member may use an earlier
	// incarnation of an object that it would find gone if it called Refresh: it may be on a blade
	// that was declared dead and is alive. Later the call succeeds.
	Declare(c *rdma.Coro, name string, spec Spec) (Place, error)
	// Forget ends an incarnation of an object. Later calls of Declare make another one. It moves
	// the epoch, so that members which have the object open learn of it. The memory may be used
	// again when no member's view is older. Nothing is done if the object has another incarnation.
	// ErrFenced, and nothing is done, if this member was declared dead.
	Forget(c *rdma.Coro, name string, incarnation uint32) error
	// Fence declares a member dead. When it has returned nil, none of that member's verbs takes
	// effect any more, whenever it was posted. Fencing a dead member again does nothing. For member
	// 0 Fence only moves the epoch: verbs of all members that were posted before, and have no
	// outcome yet, take effect before Fence returns or not at all. ErrFenced, and nothing is done,
	// if this member was declared dead.
	Fence(c *rdma.Coro, id MemberID) error
	// Refresh brings this view to the present epoch. ErrFenced if this member was declared dead.
	Refresh(c *rdma.Coro) error
	// Confirm is asked behind each batch. false: all objects that exist in this view have existed
	// up to now, so what the thread's verbs have done to them counts. Else it does what Refresh
	// does, and Valid says which of them exist. ErrFenced, and this member is dead, if that
	// cannot be found out.
	Confirm(c *rdma.Coro) (changed bool, err error)
	// Key is the access key of a blade in this view.
	Key(b rdma.BladeID) rdma.Key
	// Valid is nil if this incarnation of the object exists in this view, otherwise ErrIncarnation.
	Valid(name string, p Place) error
}
