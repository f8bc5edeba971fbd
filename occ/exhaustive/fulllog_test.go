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
			s.w.spread(40_000)
			return s.do(put("a", big("a", 40_000)), next(), put("between", big("b", 40_000)), next(),
				put("b", big("b", 40_000)))
		})
		w.look(keys)
		s := &stops{world: w, keys: keys, grain: fineOr(steptest.Verbs), stride: c.stride(),
			ops: []op{put("a", big("c", 40_000)), next(), put("b", big("d", 40_000)), next(), put("a", "e")}}
		s.allOrOne(t, s.all, s.one)
	})
}

// TestStopsWithUsedLog stops a coordinator whose third log record lies where the first one
// was. One of the records that the first transaction writes has its primary on a blade that
// none of the logs is on, so that its release comes after the third log, if nobody waits for it.
func TestStopsWithUsedLog(t *testing.T) {
	each(t, those(configs(), config.promised, config.byDefault, config.oneBackup), func(t *testing.T, c config) {
		w := newWorld(t, c, loadStops)
		w.look(stopKeys)
		for _, once := range []string{"a", "b", "c"} {
			for _, thrice := range []string{"a", "b", "c"} {
				if once == thrice {
					continue
				}
				t.Run(once+thrice, func(t *testing.T) {
					s := &stops{world: w, keys: stopKeys, grain: fineOr(steptest.Verbs), stride: c.stride(),
						ops: []op{
							put(once, "14"), put(thrice, "14"), next(), put(thrice, "15"), next(), put(thrice, "16"),
						}}
					s.allOrOne(t, s.all, s.one)
				})
			}
		}
	})
}
