package layout

import "slices"

// complete is the payload of an entry of an earlier version as it would be written now; false:
// this program does not know the version. Versions 1 to 6 left out what had no value, each kind
// of entry in its own steps. They are read, so that databases of then open; what changes is
// written as of now.
func complete(kind entryKind, version uint8, p []byte) (now []byte, ok bool) {
	with := func(n int) []byte { return slices.Concat(p, make([]byte, n)) }
	n := len(p)
	switch (form{kind, version}) {
	case form{entryGeometry, 1}:
		return with(max(28-n, 0)), n >= 27
	case form{entryState, 1}:
		return with(max(25-n, 0)), n >= 21
	case form{entryCoordinator, 1}:
		return with(max(37-n, 0)), n == 4 || n == 17 || n == 21
	case form{entryBlade, 3}: // it leaves
		p = with(14)
		p[n+8] = 1
		return p, true
	case form{entryBlade, 4}: // it was not told of a revision
		n = min(n, 25)
		return slices.Concat(p[:n], make([]byte, 8), p[n:], make([]byte, 1)), true
	case form{entrySegment, 4}: // it is vacant
		p = with(5)
		p[n+4] = 1
		return p, true
	}
	if kind > entryCoordinator && kind != entryProcess {
		return p, version == 1
	}
	n, ok = lacking[form{kind, version}]
	return with(n), ok
}

type form struct {
	kind    entryKind
	version uint8
}

// lacking is how many bytes were left out, all zero.
var lacking = map[form]int{
	{entryBlade, 2}: 14, {entryBlade, 5}: 1, {entryBlade, 6}: 0,
	{entrySegment, 1}: 9, {entrySegment, 2}: 5, {entrySegment, 3}: 1,
	{entryTable, 1}: 4, {entryTable, 2}: 3, {entryTable, 3}: 0,
	{entryCoordinator, 2}: 12, {entryCoordinator, 3}: 4, {entryCoordinator, 4}: 0,
	{entryProcess, 1}: 16, {entryProcess, 2}: 8, {entryProcess, 3}: 0,
}
