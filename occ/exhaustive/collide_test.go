package exhaustive

import (
	"fmt"
	"testing"

	"txnode/memory/record"
	"txnode/occ"
)

// TestPairsOfColliding: a key is looked up whose only candidate is another key's block;
// meanwhile that block is freed, and used for the key.
func TestPairsOfColliding(t *testing.T) {
	t.Cleanup(func() { t.Log(done.of(t.Name())) })
	const other = "other..."
	for i, found := 0, 0; found < 4; i++ {
		key := k(fmt.Sprintf("k%d", i))
		if record.Hash(1, []byte(key))>>56 != record.Hash(1, []byte(other))>>56 {
			continue
		}
		found++
		t.Run(key[:len(key)-1], func(t *testing.T) {
			w := newWorld(t, config{
				policy: occ.PolicyDefault, backups: 1, caps: strong, groups: 2, reclaim: 1,
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
