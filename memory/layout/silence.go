package layout

// Holder is the process that a coordinator, or the claim on it, belongs to. A claim is in the name of a process, or of one of its
// coordinators.
func (l *Layout) Holder(c CoordinatorEntry) uint32 {
	if !c.Recovering {
		return c.Process
	}
	if by := l.Coordinator(c.By); by != nil {
		return by.Process
	}
	return c.By
}
