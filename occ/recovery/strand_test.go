package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/rdma"
)

// TestStrandBesideLoss: as TestRecoverBesideDamage, and who recovers is stopped, too, when
// requests of his to one blade may arrive that he posted later than others, which do not; and
// then a blade is lost.
func TestStrandBesideLoss(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			step := 29
			if s.backups == 1 && s.caps == strong {
				step = 12
			}
			step *= byRun(2, 1, 5)
			for at := step; ; at += step {
				left := 0
				for stopped := true; stopped; left++ {
					stopped = false
					next := -1 // which blade the next request is to
					for late := range rdma.BladeID(3) {
						for lost := range rdma.BladeID(3) {
							if late == lost || int(late) == next { // if it arrives, that is as if one more were left
								continue
							}
							to := strandBesideLoss(t, s, at, left, late, lost)
							stopped, next = stopped || to >= 0, max(next, to)
						}
					}
				}
				if left == 1 || t.Failed() { // nobody has been stopped
					break
				}
			}
		})
	}
}

// strandBesideLoss is TestStrandBesideLoss of a client that dies after so many verbs, and a
// recoverer of whose verbs, after some that are left to it, only those to one blade arrive. It
// returns to which blade the first of these was; negative: there was none, or all were to that one.
func strandBesideLoss(t *testing.T, s setting, at, left int, late, lost rdma.BladeID) (next int) {
	t.Helper()
	d := dieBesides(t, s, at)
	if d == nil {
		return -1
	}
	w, spoilt := d.world, d.second
	next = -1
	what := fmt.Sprintf("stopped after %d verbs, and who recovers after %d, but for those to blade %d; "+
		"blade %d is lost", at, left, late, lost)
	mended := w.spoil(spoilt)
	w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		if left--; left == -1 {
			next = int(wr.Blade)
		}
		return left < 0 && wr.Blade != late
	}}
	_, _ = recovery.Recover(w.newThread().Plain(), w.eng.Recovery(), d.victim.Coordinator())
	if !w.disarm() {
		next = -1
	}
	w.loseBlade(lost)
	ours, own := w.session()
	want := d.before
	if w.values(ours, own, "k")[0] == "2" {
		want = d.now
	} else if d.told == nil {
		t.Errorf("%s: an acknowledged transaction is lost", what)
	}
	must(t, ours.Close())
	mended()
	if damage := w.sweepAlone(); damage != nil {
		t.Fatalf("%s: swept when it was mended: %v", what, damage)
	}
	w.table = spoilt
	ours, own = w.session()
	if got := w.values(ours, own, d.keys...); !slices.Equal(got, want) {
		t.Errorf("%s: %.4q", what, got)
	}
	return next
}

// stranded returns the blocks of the record whose move could not be finished: which it was to
// leave, and to which it goes; 0: none.
func (w *world) stranded() (from, to layout.Addr) {
	w.t.Helper()
	l, v := w.space.Layout(), w.space.View()
	for id := range l.Segments {
		g := &l.Segments[id]
		if g.Kind != layout.KindBlocks || g.Placement.N == 0 {
			continue
		}
		for off := uint32(0); off+g.Class.Size() <= l.SegmentSize; off += g.Class.Size() {
			a := layout.MakeAddr(layout.SegmentID(id), off)
			at := v.At(a, 0)
			switch record.Image(w.f.Memory(at.Blade)[at.Off:][:record.LineSize]).Lock().Seq() {
			case record.MaxSequence:
				from = a
			case record.MaxSequence + 1:
				to = a
			}
		}
	}
	return from, to
}

// dieStranded is dieBesides of a client behind which a move is to be finished: its table is
// repaired, and all sessions are closed. stop is from how many verbs on such a one is looked for,
// and then of how many it is.
func dieStranded(t *testing.T, s setting, stop *int) (d *besides, from, to layout.Addr) {
	t.Helper()
	for ; ; *stop++ {
		d := dieBesides(t, s, *stop)
		if d == nil {
			t.Fatal("no move is to be finished")
		}
		mended := d.spoil(d.second)
		d.decideUntil(d.victim.Coordinator(), -1)
		if from, to := d.stranded(); from != 0 && to != 0 {
			must(t, d.ours.Close())
			mended()
			return d, from, to
		}
	}
}

// sweepAlone sweeps as who opens the database.
func (w *world) sweepAlone() (damage error) {
	w.t.Helper()
	o := recovery.Options{Space: w.space, Steal: true, Alone: true}
	rep, err := recovery.Sweep(w.ctl.Plain(), o)
	must(w.t, err)
	_, err = recovery.PruneSlots(w.ctl.Plain(), o, rep)
	must(w.t, err)
	return rep.Damage
}

// armChanges is arm of so many verbs that change something.
func (w *world) armChanges(n int) {
	w.stop = stop{left: -1, pick: func(wr *rdma.WR) bool {
		if wr.Op != rdma.OpRead {
			n--
		}
		return n < 0
	}}
}

// TestStrandedTwice: who leaves a move to be finished dies after any change that he makes, somebody
// else goes on, and then a blade is lost.
func TestStrandedTwice(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			stop := 0
			dieStranded(t, s, &stop)
			for lost := range rdma.BladeID(3) {
				for n, died := 0, true; died; n++ {
					d := dieBesides(t, s, stop)
					what := fmt.Sprintf("stop %d, dies after %d changes, blade %d is lost", stop, n, lost)
					mended := d.spoil(d.second)
					d.armChanges(n)
					_, err := recovery.Recover(d.newThread().Plain(), d.eng.Recovery(), d.victim.Coordinator())
					if died = d.disarm(); !died {
						must(t, err)
					}
					d.decideUntil(d.victim.Coordinator(), -1)
					d.loseBlade(lost)
					mended()
					if damage := d.sweepAlone(); damage != nil {
						t.Errorf("%s: swept: %v", what, damage)
					}
					d.table = d.second
					d.mended(what, d.keys, d.now)
				}
			}
		})
	}
}

// TestStrandFinishedInSteps: who finishes a move dies after any change that he makes, and perhaps a
// blade is lost then. Whoever opens the database next finishes it.
func TestStrandFinishedInSteps(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.String(), func(t *testing.T) {
			first := 0
			for lost := -1; lost < 3 && (lost < 0 || s.backups > 0); lost++ {
				for n, died := 0, true; died; n++ {
					d, _, _ := dieStranded(t, s, &first)
					what := fmt.Sprintf("stop %d, dies after %d changes, blade %d is lost", first, n, lost)
					d.armChanges(n)
					_, err := recovery.Sweep(d.newThread().Plain(),
						recovery.Options{Space: d.space, Steal: true, Alone: true})
					if died = d.disarm(); !died {
						must(t, err)
					}
					if lost >= 0 {
						d.loseBlade(rdma.BladeID(lost))
					}
					if damage := d.sweepAlone(); damage != nil {
						t.Errorf("%s: swept: %v", what, damage)
					}
					d.table = d.second
					d.mended(what, d.keys, d.now)
				}
			}
		})
	}
}

// eachStrandedBit has a record whose move is to be finished, in each of its two blocks, either way,
// with a bit of the first line of its primary damaged, or, -1, all of it. After fn, whose first
// argument says which way, it is repaired, and has its new value.
func eachStrandedBit(t *testing.T, bits []int,
	fn func(t *testing.T, way bool, d *besides, line record.Image, bit int, what string)) {
	for _, s := range settings(t) {
		if s.backups == 0 || s.caps == weak {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			stop := 0
			for _, leaves := range []bool{false, true} {
				for _, way := range []bool{false, true} {
					for _, bit := range bits {
						d, a, to := dieStranded(t, s, &stop)
						if !leaves {
							a = to
						}
						at := d.space.View().At(a, 0)
						line := d.f.Memory(at.Blade)[at.Off:][:record.LineSize]
						if bit < 0 {
							clear(line)
						} else {
							line[bit/8] ^= 1 << (bit % 8)
						}
						what := fmt.Sprintf("stop %d, bit %d, leaves %v, %v", stop, bit, leaves, way)
						fn(t, way, d, line, bit, what)
						d.table = d.second
						d.mended(what, d.keys, d.now)
					}
				}
			}
		})
	}
}

// sweptWhenRepaired repairs the database, and finds nothing that is damaged any more.
func (w *world) sweptWhenRepaired(what string) {
	w.repair()
	if damage := w.sweepAlone(); damage != nil {
		w.t.Errorf("%s: swept when it was repaired: %v", what, damage)
	}
}

// TestStrandedDamaged: a bit of a record whose move is to be finished is damaged, too. What it says
// of itself is believed neither by who finishes the move nor by the other copies: when it is
// repaired from these, it is the new value.
func TestStrandedDamaged(t *testing.T) {
	// version, lengths, state, checksum, value, the line
	bits := []int{1, 42, 64 + 3, 64 + 34, 64 + 36, 128, 8*record.KeyOff + 16, -1}
	eachStrandedBit(t, bits, func(t *testing.T, first bool, d *besides, _ record.Image, _ int, what string) {
		if !first {
			if damage := d.sweepAlone(); damage != nil && !errors.Is(damage, layout.ErrCorrupt) {
				t.Errorf("%s: swept: %v", what, damage)
			}
		}
		d.sweptWhenRepaired(what)
	})
}

// TestStrandedGuard: a bit of the guard of a record whose move is to be finished is damaged. No
// sweep takes that for the lock of nobody's: the record has not its old value again. If it is a bit
// of the client's number, or that by which the two blocks differ, who opens the database finishes
// the move; else when it is repaired.
func TestStrandedGuard(t *testing.T) {
	const differ, client = 8*record.GuardOff + 1, 8*record.GuardOff + 41
	bits := []int{8 * record.GuardOff, differ, 8*record.GuardOff + 20, client, 8*record.MetaOff + 36}
	eachStrandedBit(t, bits, func(t *testing.T, alone bool, d *besides, line record.Image, bit int, what string) {
		was := line.Guard()
		if alone {
			damage := d.sweepAlone()
			if bit == client || bit == differ {
				if damage != nil {
					t.Errorf("%s: swept: %v", what, damage)
				}
				return
			}
		} else if _, err := recovery.Sweep(d.ctl.Plain(), d.eng.Recovery()); !errors.Is(err, layout.ErrCorrupt) {
			t.Errorf("%s: swept beside others: %v", what, err)
		}
		if g := line.Guard(); g != was {
			t.Errorf("%s: the guard is %#x, and was %#x", what, uint64(g), uint64(was))
		}
		d.sweptWhenRepaired(what)
	})
}

// TestStrandedBehindZero: a client has died in a transaction that moves a record, in a table whose
// index is damaged, and the line of the block that it was to leave is zero on the primary, or junk,
// before it is recovered.
func TestStrandedBehindZero(t *testing.T) {
	for _, s := range settings(t) {
		if s.backups == 0 || s.policy == occ.PolicyFORD {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			for _, junk := range []byte{0, 0xa6} {
				for stop := 0; ; stop++ {
					d := dieBesides(t, s, stop)
					if d == nil {
						break
					}
					d.table = d.second
					line := d.blockOf("x")[:record.LineSize]
					if record.Image(line).Lock() != d.tx.ID() || record.Image(line).Meta().State() != record.Live {
						continue
					}
					mended := d.spoil(d.second)
					clear(line)
					for i := range line {
						line[i] = junk
					}
					d.decideUntil(d.victim.Coordinator(), -1)
					_, _ = recovery.Sweep(d.ctl.Plain(), d.eng.Recovery())
					must(t, d.ours.Close())
					mended()
					d.repair()
					what := fmt.Sprintf("stop %d, junk %#x, told %v", stop, junk, d.told)
					if damage := d.sweepAlone(); damage != nil {
						t.Errorf("%s: swept: %v", what, damage)
					}
					want := d.now
					s, tx := d.session()
					if d.values(s, tx, "y")[0] == "1" && d.told != nil {
						want = d.before
					}
					must(t, s.Close())
					d.mended(what, d.keys, want)
				}
			}
		})
	}
}
