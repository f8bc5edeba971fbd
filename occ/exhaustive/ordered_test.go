package exhaustive

import (
	"testing"

	"txnode/occ"
)

// ordered are the kinds of database, with a table whose index has nodes, which split at the third
// entry, ordered or of hashes: with -full all of them. Policy ford commits changes of ordered
// tables as the default one does.
func ordered() []config {
	kinds := configs()
	if !*full {
		kinds = []config{
			{policy: occ.PolicyDefault, backups: 1, caps: strong, reclaim: 1},
			{policy: occ.PolicyFORD, backups: 2, caps: weak, reclaim: 1},
		}
	}
	for i := range kinds {
		kinds[i].entries = 2
		leaves := kinds[i]
		leaves.hashed = true
		if i == 0 || *full {
			kinds = append(kinds, leaves)
		}
	}
	return kinds
}

// TestStopsOrdered is TestStops on an ordered table.
func TestStopsOrdered(t *testing.T) {
	eachCanonical(t, ordered(), (*stops).one, func(c config) func(s *stops) error {
		return func(s *stops) error {
			s.stride = byRun(6, 1, 1) * c.stride()
			return s.all()
		}
	})
}

// inRange are transactions that are in each other's way by what they range over, and by the nodes
// that they change: a, b, d and e have values, two to a node, and c has none.
var inRange = []txn{
	{"scan", []op{scan("")}},
	{"scan-half", []op{scan("c")}},
	{"scan-write", []op{scan("b"), put("a", "1")}},
	{"scan-insert", []op{scan(""), then(), insert("c", "2")}},
	{"read-absent-insert", []op{get("c"), then(), insert("bb", "3")}},
	{"insert", []op{insert("c", "4")}},
	{"insert-beside", []op{insert("bb", "5")}},
	{"insert-two", []op{insert("c", "6"), insert("cc", "6")}},
	{"put-absent", []op{put("c", "7")}},
	{"delete", []op{del("b")}},
	{"delete-reclaim", []op{del("b"), next(), rest()}},
	{"delete-insert", []op{del("b"), next(), put("b", "8")}},
	{"move", []op{put("b", big("m", 100))}},
	{"write", []op{put("b", "9")}},
	{"insert-roll-back", []op{insert("c", "10"), roll()}},
}

var rangeKeys = []string{k("a"), k("b"), k("bb"), k("c"), k("cc"), k("d"), k("e")}

func loadRange(s *client) error {
	return s.scatter(put("a", "a0"), put("b", "b0"), put("d", "d0"), put("e", "e0"), put("gone", "x"), del("gone"))
}

// TestPairsOrdered runs pairs of transactions of an ordered table in every order of their requests.
func TestPairsOrdered(t *testing.T) {
	each(t, ordered(), func(t *testing.T, c config) {
		w := newWorld(t, c, loadRange)
		for i, x := range inRange {
			for _, y := range inRange[i:] {
				for _, cold := range []bool{false, true} {
					name := x.name + "+" + y.name
					if cold {
						name += "/cold"
					}
					t.Run(name, func(t *testing.T) { pair(t, w, cold, byRun(5, 300, 2), x, y) })
				}
			}
		}
	})
}

// TestBladeLostOrdered is TestBladeLost on an ordered table.
func TestBladeLostOrdered(t *testing.T) {
	one, two := oneIn(31, 1, 997), oneIn(1499, 1, 997)
	eachCanonical(t, those(ordered(), config.promised), (*stops).oneBlade, func(c config) func(s *stops) error {
		cases := one.own(c)
		if c.backups > 1 {
			cases = two.own(c)
		}
		return func(s *stops) error { return s.blades(cases) }
	})
}

// TestBladeLostInRecoveryOrdered is TestBladeLostInRecovery on an ordered table.
func TestBladeLostInRecoveryOrdered(t *testing.T) {
	states, cases := oneIn(211, 13, 1999), oneIn(11, 23, 11)
	eachCanonical(t, those(ordered(), config.promised), (*stops).oneBlade, func(c config) func(s *stops) error {
		states, cases := states.own(c), cases.own(c)
		return func(s *stops) error { return s.bladesAgain(states, cases) }
	})
}
