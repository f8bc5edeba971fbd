package layout

import (
	"encoding/binary"
	"slices"
)

// Verdict is what became of the last transactions of a coordinator that was
// recovered. It is kept for ever. Numbers are sequence numbers.
type Verdict struct {
	Coordinator uint32
	// Last bounds the numbers that the coordinator had drawn when it wrote the last record to its
	// logs. A larger number that is not listed never got as far: it was aborted. One that is not
	// larger, and not listed, had its answer before the coordinator died, or was under way beside
	// others of its thread.
	Last      uint64
	Committed []uint64 // in order
	Aborted   []uint64 // in order
}

// Outcome is how a transaction ended.
type Outcome uint8

// Outcomes.
const (
	OutcomeUnknown   Outcome = iota // the verdict does not tell
	OutcomeCommitted                // it has taken effect
	OutcomeAborted                  // it has had no effect
)

// String names the outcome.
func (o Outcome) String() string { return [...]string{"unknown", "committed", "aborted"}[o%3] }

// Of says what became of the transaction with a sequence number.
func (v *Verdict) Of(seq uint64) Outcome {
	if _, ok := slices.BinarySearch(v.Committed, seq); ok {
		return OutcomeCommitted
	}
	if _, ok := slices.BinarySearch(v.Aborted, seq); ok || seq > v.Last {
		return OutcomeAborted
	}
	return OutcomeUnknown
}

// Merge is v with what a later recovery of the same coordinator has found: what
// was decided stays decided.
func (v Verdict) Merge(w Verdict) Verdict {
	out := Verdict{
		Coordinator: v.Coordinator, Last: max(v.Last, w.Last), Committed: slices.Clone(v.Committed),
		Aborted: slices.Clone(v.Aborted),
	}
	add := func(list *[]uint64, seq uint64) {
		if _, ok := slices.BinarySearch(out.Committed, seq); ok {
			return
		}
		if _, ok := slices.BinarySearch(out.Aborted, seq); ok {
			return
		}
		i, _ := slices.BinarySearch(*list, seq)
		*list = slices.Insert(*list, i, seq)
	}
	for _, seq := range w.Committed {
		add(&out.Committed, seq)
	}
	for _, seq := range w.Aborted {
		add(&out.Aborted, seq)
	}
	return out
}

// FindVerdict is where the verdict on a coordinator is, or would be.
func FindVerdict(all []Verdict, coordinator uint32) (int, bool) {
	return slices.BinarySearchFunc(all, coordinator, func(v Verdict, id uint32) int {
		return int(v.Coordinator) - int(id)
	})
}

// EntryOfVerdict is the entry of a verdict.
func EntryOfVerdict(v *Verdict) Entry {
	p := binary.LittleEndian.AppendUint64(nil, v.Last)
	for _, list := range [][]uint64{v.Committed, v.Aborted} {
		p = binary.AppendUvarint(p, uint64(len(list)))
		last := uint64(0)
		for _, seq := range list {
			p = binary.AppendUvarint(p, seq-last)
			last = seq
		}
	}
	return seal(KeyOf(prefixVerdict, v.Coordinator), entryVerdict, p)
}

func decodeVerdict(d *payload, coordinator uint32) Verdict {
	v := Verdict{Coordinator: coordinator, Last: d.u64()}
	for _, list := range []*[]uint64{&v.Committed, &v.Aborted} {
		last := uint64(0)
		for n := d.uvarint(); n > 0 && !d.fail; n-- {
			step := d.uvarint()
			if step == 0 && len(*list) > 0 || last+step < last {
				d.fail = true
				break
			}
			last += step
			*list = append(*list, last)
		}
	}
	return v
}

// uvarint reads a number in the form of binary.AppendUvarint.
func (d *payload) uvarint() uint64 {
	v, n := binary.Uvarint(d.p)
	if d.fail || n <= 0 {
		d.fail = true
		return 0
	}
	d.p = d.p[n:]
	return v
}

// What a sweep entry says besides.
const (
	sweepHollow = 1 << iota
	sweepSpared
)

// EntryOfSweep says that dead coordinators were recovered and not all of the blades
// has been swept since; and besides, if anything: see Layout.Dangling and Layout.OnlyDamage.
func EntryOfSweep(dangling, onlyDamage bool) Entry {
	flags := byte(0)
	if dangling {
		flags |= sweepHollow
	}
	if onlyDamage {
		flags |= sweepSpared
	}
	if flags == 0 {
		return seal(KeySweep, entrySweep, nil)
	}
	return seal(KeySweep, entrySweep, []byte{flags})
}

func decodeSweep(d *payload) (dangling, onlyDamage bool) {
	if len(d.p) == 0 {
		return false, false
	}
	flags := d.u8()
	d.fail = d.fail || flags == 0 || flags > sweepHollow|sweepSpared
	return flags&sweepHollow != 0, flags&sweepSpared != 0
}

// EntryOfLeaked says that extents may be allocated which nothing leads to.
func EntryOfLeaked() Entry { return seal(KeyLeaked, entryLeaked, nil) }
