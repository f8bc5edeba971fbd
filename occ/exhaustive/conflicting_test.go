package exhaustive

import "slices"

// conflicting are transactions that are in each other's way: a and b have values, unless one
// of the two begins with b gone; none never had one.
var conflicting = []txn{
	{"read-ab", []op{get("a"), get("b")}},
	{"read-a-then-b", []op{get("a"), then(), get("b")}},
	{"read-b-next-read-a", []op{get("b"), next(), get("a")}},
	{"write-a", []op{put("a", "1")}},
	{"write-ab", []op{put("a", "2"), put("b", "2")}},
	{"read-a-write-b", []op{get("a"), put("b", "3")}},
	{"read-b-write-a", []op{get("b"), put("a", "4")}},
	{"late-a", []op{late("a", "5")}},
	{"lock-a-write-b", []op{lock("a"), put("b", "6")}},
	{"insert", []op{insert("none", "7")}},
	{"put-absent", []op{put("none", "8")}},
	{"read-absent-write-a", []op{get("none"), put("a", "9")}},
	{"delete", []op{del("a")}},
	{"insert-over-tombstone", []op{gone("b"), insert("b", "10")}},
	{"move", []op{put("a", big("m", 100))}},
	{"insert-roll-back", []op{insert("none", "11"), roll()}},
}

var pairKeys = []string{k("a"), k("b"), k("none"), k("gone")}

func loadPairs(s *client) error {
	return s.scatter(put("a", "a0"), put("b", "b0"), put("gone", "x"), del("gone"))
}

// named is one of them.
func named(name string) txn {
	for _, x := range conflicting {
		if x.name == name {
			return x
		}
	}
	panic("no transaction " + name)
}

// conflictingPairs are all pairs of them, in either order.
func conflictingPairs() (pairs [][2]txn) {
	for _, x := range conflicting {
		for _, y := range conflicting {
			pairs = append(pairs, [2]txn{x, y})
		}
	}
	return pairs
}

// morePairs are pairs of canonical transactions with these.
func morePairs() (pairs [][2]txn) {
	ofRecord := []string{"read-ab", "write-a", "late-a", "delete", "move"}
	ofAbsence := []string{"insert", "put-absent", "read-absent-write-a", "insert-roll-back"}
	for _, p := range []struct {
		name string
		with []string
	}{
		{"edit", ofRecord}, {"delete-insert-grow", ofRecord}, {"grow-delete", ofRecord},
		{"insert-and-grow", ofAbsence}, {"insert-delete", ofAbsence}, {"insert-delete-insert", ofAbsence},
	} {
		x := canonical[slices.IndexFunc(canonical, func(x txn) bool { return x.name == p.name })]
		for _, y := range p.with {
			pairs = append(pairs, [2]txn{x, named(y)})
		}
		pairs = append(pairs, [2]txn{x, x})
	}
	return pairs
}

// besides are pairs of them for recovery: that of the client who has stopped, and that of
// who is at work, or has stopped, beside its recovery.
func besides() (pairs [][2]txn) {
	for _, p := range [][2]string{
		{"write-a", "write-a"}, {"write-ab", "read-b-write-a"}, {"write-ab", "write-a"}, {"insert", "put-absent"},
		{"insert", "insert"},
		{"delete", "write-a"}, {"move", "write-a"}, {"move", "move"},
		{"insert-over-tombstone", "insert-over-tombstone"}, {"insert-roll-back", "insert"},
	} {
		pairs = append(pairs, [2]txn{named(p[0]), named(p[1])})
	}
	return pairs
}
