package race

import (
	"errors"
	"fmt"
	"testing"

	"txnode/index"
)

// TestSlotAgain: a slot comes to hold what it has held before, since its key was deleted and
// inserted once more, into the same block, or moved, and back. A recoverer meets the copy that was
// behind when the first of the two changes was made, and is so slow that he makes it equal when
// both are over; or he has begun to do so, and nobody can go on before he has done it. Before the
// copies are compared once more, the primary is lost. The key is there all the same, unless its
// change had to be given up.
func TestSlotAgain(t *testing.T) {
	for name, change := range map[string]func(r *rig) error{
		"insert": func(r *rig) error {
			if err := r.k[0].Delete(key(3)); err != nil {
				return err
			}
			return put(r, 0, 3)
		},
		"move": func(r *rig) error {
			if err := r.k[0].Move(key(3)); err != nil {
				return err
			}
			return r.k[0].Move(key(3))
		},
	} {
		for late := 1; late <= 2; late++ {
			t.Run(fmt.Sprintf("%s/%d", name, late), func(t *testing.T) { slotAgain(t, late, change) })
		}
	}
}

func slotAgain(t *testing.T, late int, change func(r *rig) error) {
	turned := 0
	for n := 0; ; n++ {
		r := newRig(t, 2, 8)
		var err error
		if r.turnLate(n, late, func() { err = change(r) }) <= n {
			break
		}
		var open []int
		if late > 1 && errors.Is(err, index.ErrBusy) {
			open = []int{3}
		} else if err != nil {
			t.Fatalf("verb %d: %v", n, err)
		}
		c := r.k[1].C
		d, err := r.ix[1].readDirectory(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p := r.m.Copies(t, c.Thread(), d.entries[0].Table(), r.ix[1].size); string(p[0]) == string(p[1]) &&
			open == nil {
			continue
		}
		turned++
		r.m.Lose(0)
		r.soundAfter(t, n, open...)
	}
	if turned == 0 {
		t.Error("no copy was turned back")
	}
}
