package exhaustive

import (
	"fmt"
	"testing"

	"txnode/occ"
)

// TestPairsOfColliding: a key is looked up whose only candidate is another key's block;
// meanwhile that block is freed, and used for the key.
func TestPairsOfColliding(t *testing.T) {
	t.Cleanup(func() { t.Log(done.of(t.Name())) })
	for _, x := range [][2]string{ // in table 1 their hashes are the same
		{"0983400.", "1596203."}, {"0667054.", "1675407."}, {"2779782.", "2949064."}, {"2340949.", "3003099."},
	} {
		key, other := x[0], x[1]
		t.Run(key[:len(key)-1], func(t *testing.T) {
			w := newWorld(t, config{
				policy: occ.PolicyDefault, backups: 1, caps: strong, reclaim: 1,
			}, func(s *client) error {
				return s.do(put("a", "a0"), put(other, "x"), put("dummy", "x"))
			})
			reader := txn{"read", []op{get(key), then(), get("a")}}
			writer := txn{"reuse", []op{
				del(other), del("dummy"), next(), rest(), next(), put(key, "1"), next(), put("a", "1"),
			}}
			var clients []*client
			w.orders(t, byRun(400, 20_000, 50), func() { clients = w.startPair(true, writer, reader) },
				func(schedule) error {
					w.content(w.client(), []string{k("a"), key, other})
					if err := w.consistent(); err != nil {
						return fmt.Errorf("%w\ntold: %v, %v", err, clients[0].told, clients[1].told)
					}
					return nil
				})
		})
	}
}
