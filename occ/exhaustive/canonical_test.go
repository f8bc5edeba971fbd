package exhaustive

import (
	"testing"

	"txnode/rdma/steptest"
)

// canonical are the transactions that are stopped, on the database of load: every type
// of SmallBank (account c, checking and savings as keys) and TATP, and what they do not do.
var canonical = []txn{
	{"Amalgamate", []op{put("a", "1"), put("b", "1"), put("c", "1")}},
	{"Balance", []op{get("a"), get("b")}},
	{"DepositChecking", []op{put("a", "2")}},
	{"SendPayment", []op{put("a", "3"), put("b", "3")}},
	{"TransactSaving", []op{put("b", "4")}},
	{"WriteCheck", []op{get("a"), put("b", "5")}},
	{"GetSubscriberData", []op{get("a")}},
	{"GetNewDestination", []op{get("a"), then(), get("b"), get("c")}},
	{"GetAccessData-absent", []op{get("none")}},
	{"UpdateSubscriberData", []op{put("b", "6"), put("c", "6")}},
	{"UpdateLocation", []op{get("a"), then(), put("c", "7")}},
	{"InsertCallForwarding", []op{get("a"), then(), get("b"), then(), insert("none", "8")}},
	{"InsertCallForwarding-exists", []op{get("a"), then(), insert("c", "8")}},
	{"DeleteCallForwarding", []op{get("a"), then(), del("c")}},
	{"insert", []op{insert("none", "9")}},
	{"put-absent", []op{put("none", "9")}},
	{"insert-large", []op{insert("none", big("i", 200))}},
	{"insert-roll-back", []op{insert("none", "9"), put("a", "9"), roll()}},
	{"put-reclaimed", []op{put("gone", "10")}},
	{"insert-over-tombstone", []op{gone("c"), insert("c", "10")}},
	{"delete", []op{del("a")}},
	{"late", []op{get("b"), late("a", "11")}},
	{"lock-only", []op{lock("a"), put("b", "12")}},
	{"large-update", []op{put("large", big("l", 180))}},
	{"move", []op{put("a", big("m", 100))}},
	{"move-and-more", []op{put("a", big("m", 100)), put("b", "13"), del("c"), insert("none", "13")}},
	{"move-two", []op{put("a", big("m", 100)), put("b", big("n", 100))}},
	{"two", []op{put("a", "14"), put("b", "14"), next(), put("b", "15"), put("c", "15")}},
	{"three-apart", []op{put("a", "14"), next(), put("b", "15"), next(), put("c", "16")}},
	{"delete-insert", []op{del("a"), next(), put("a", "16")}},
	{"move-back-and-forth", []op{put("a", big("m", 100)), next(), put("a", big("n", 300))}},
	{"move-then-insert", []op{put("a", big("m", 100)), next(), insert("none", "18")}},
	{"move-into-left", []op{put("a", big("m", 100)), next(), put("a", big("n", 300)), next(), put("b", big("o", 100))}},
	{"edit", []op{edit("a", "2"), edit("b", "2")}},
	{"insert-and-grow", []op{insert("none", "9"), then(), put("none", big("g", 100))}},
	{"delete-insert-grow", []op{del("a"), next(), put("a", big("g", 100))}},
	{"insert-delete", []op{insert("none", "9"), then(), del("none")}},
	{"insert-delete-insert", []op{insert("none", "9"), then(), del("none"), then(), put("none", "19")}},
	{"grow-delete", []op{put("a", big("m", 100)), then(), del("a")}},
	{"reclaim", []op{del("a"), del("b"), next(), rest(), next(), put("c", "17")}},
}

var stopKeys = []string{k("a"), k("b"), k("c"), k("none"), k("gone"), k("large")}

func loadStops(s *client) error {
	return s.scatter(put("a", "a0"), put("b", "b0"), put("c", "c0"), put("large", big("x", 200)),
		put("gone", "x"), del("gone"))
}

// eachCanonical runs what begin returns for every canonical transaction that the kinds of
// database try; begin is called for each of these. one repeats the case of the flags.
func eachCanonical(t *testing.T, kinds []config, one func(s *stops) error, begin func(c config) func(s *stops) error) {
	each(t, kinds, func(t *testing.T, c config) {
		w := newWorld(t, c, loadStops)
		w.look(stopKeys)
		all := begin(c)
		for _, x := range canonical {
			if !c.tries(x) {
				continue
			}
			t.Run(x.name, func(t *testing.T) {
				s := &stops{world: w, keys: stopKeys, ops: x.ops, grain: fineOr(steptest.Verbs)}
				s.allOrOne(t, func() error { return all(s) }, func() error { return one(s) })
			})
		}
	})
}
