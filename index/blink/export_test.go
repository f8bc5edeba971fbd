package blink

// Lengths that tests count with.
const (
	HeaderSize   = headerSize
	SlotSize     = slotSize
	ChildPayload = childPayload
	RowPayload   = rowPayload
	MaxRoom      = maxRoom
)
