package recovery_test

import (
	"errors"
	"testing"

	"txnode/memory"
	"txnode/memory/record"
	"txnode/occ"
)

// TestMakeRoomOfDead: a session that is short of space, and does not know yet that it was
// declared dead, takes the deleted records of all others upon itself, of which some are in a
// segment that has come since. It reclaims them when it has rejoined.
func TestMakeRoomOfDead(t *testing.T) {
	for _, s := range settings() {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t, s, occ.Options{ReclaimAfter: 100})
			ours, own := w.session()
			late, tx := w.session()
			w.sure(ours, own, put("a", "1"))
			w.sure(late, tx, put("b", "1"))
			w.decideUntil(late.Coordinator(), -1)
			before := w.space.View().Segments()
			w.sure(ours, own, put("long", long))
			if w.space.View().Segments() == before {
				t.Fatal("there is no new segment")
			}
			w.sure(ours, own, del("long"))
			own.Coro().Sleep(10_000) // until its lock is released
			if n, err := late.MakeRoom(tx.Coro()); n != 0 || !errors.Is(err, occ.ErrBroken) {
				t.Errorf("a dead one has reclaimed %d blocks: %v", n, err)
			}
			w.sure(late, tx, put("b", "2")) // it rejoins
			w.sweep()                       // which leaves the deleted records of those who live to them
			_, err := late.MakeRoom(tx.Coro())
			must(t, err)
			w.blocks(w.ctl.Plain(), func(a memory.Addr, line record.Image) {
				if string(line.Key()) == "long" {
					t.Errorf("block %v is a deleted record still, and nobody has it on his list", a)
				}
			})
			w.check("reclaimed")
		})
	}
}
