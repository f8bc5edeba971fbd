package channel

// Image is a slot with a value of a fixed size, as a member with that number writes it.
func Image(version uint64, owner MemberID, payload []byte) []byte {
	buf := make([]byte, slotBytes(uint32(len(payload))))
	copy(buf[16:], payload)
	images{size: uint32(len(payload))}.put(buf, version, owner)
	return buf
}
