package exhaustive

import (
	"testing"

	"txnode/rdma/steptest"
)

// TestStopsWithFullLog stops a coordinator whose log holds one transaction at a time.
func TestStopsWithFullLog(t *testing.T) {
	keys := []string{k("a"), k("b")}
	// Of policy ford, a transaction is at rest when it is over.
	each(t, those(configs(), config.promised, config.byDefault), func(t *testing.T, c config) {
		w := newWorld(t, c, func(s *client) error {
			return s.do(put("a", big("a", 40_000)), next(), put("between", big("b", 40_000)), next(), put("b", big("b", 40_000)))
		})
		w.look(keys)
		s := &stops{world: w, keys: keys, grain: fineOr(steptest.Verbs), stride: c.stride(),
			ops: []op{put("a", big("c", 40_000)), next(), put("b", big("d", 40_000)), next(), put("a", "e")}}
		s.allOrOne(t, s.all, s.one)
	})
}
