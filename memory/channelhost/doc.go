// Package channelhost is the host of a database for package channel: members may be in any of the
// processes that have the database open.
//
//	m, err := channel.Join(ctx, c, channelhost.New(db.Space()), channel.Identity{Name: "worker"})
//
// An object is a reservation of the catalog ([layout.Reservation]): its name, its
// specification, and an extent on a blade, which is given back when the object is forgotten.
// Names begin with "channel/" there. Another one, "channel/.host", counts members, and
// "channel/.host/NUMBER" is one of them.
//
// # Members
//
// A member belongs to the process that has enrolled it. It is alive as long as the catalog has it,
// and its process is registered. A process that is taken for dead takes its members with it, in the
// epoch that ends its registration.
//
// Fence takes a member off the catalog in the same change of the catalog that moves the epoch.
// A view first takes keys, and then looks whether the member is there. So a member that is
// fenced has keys of an earlier epoch alone, which open nothing, and the changes of the catalog
// that it asks for are refused. The catalog also says in which epoch a member was taken off it
// last, because it left or its process was gone: another member that fences it moves the epoch
// if that one is not over.
//
// # Objects
//
// An object has one copy: that on the primary of its segment. When the segment gets another
// primary, because the blade is lost or drained, the object is gone for good, and
// channel.ErrIncarnation says so; opened again, it is blank, and lies on another blade. So it is
// when the last process has closed the database. A blade that was declared dead keeps its keys. If
// it is alive after all, a member whose process has not heard of the new epoch yet goes on there
// for as long, alone.
//
// An object is at most memory.Space.MaxExtent bytes large.
package channelhost
