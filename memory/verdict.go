package memory

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

// merge is v with what a later recovery of the same coordinator has found: what
// was decided stays decided.
func (v Verdict) merge(w Verdict) Verdict {
	out := Verdict{Coordinator: v.Coordinator, Last: max(v.Last, w.Last), Committed: slices.Clone(v.Committed), Aborted: slices.Clone(v.Aborted)}
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

// Answer completes the verdict on a coordinator whose recoverer did not know of transactions whose
// clients were told that the outcome is unknown. If these had come to their logs, the verdict would
// list them: log space is not used again before a transaction has been acknowledged. So those that
// it does not list were aborted. A coordinator without a verdict is passed over.
func (s *Space) Answer(asked []uint64, coordinator uint32) error {
	return s.update(func() error {
		if err := s.writable(); err != nil {
			return err
		}
		i, ok := findVerdict(s.layout.Verdicts, coordinator)
		if _, err := s.findCoordinator(coordinator); !ok || err == nil {
			return nil
		}
		v := s.layout.Verdicts[i].merge(Verdict{Coordinator: coordinator, Aborted: asked})
		if len(v.Aborted) == len(s.layout.Verdicts[i].Aborted) {
			return nil
		}
		if err := s.commit(verdictEntry(&v)); err != nil {
			return err
		}
		all := slices.Clone(s.layout.Verdicts)
		all[i] = v
		s.layout.Verdicts = all
		return nil
	})
}

// Verdict returns the verdict on a coordinator that was recovered; ok is false for
// one that was not: it is open, was closed by itself, or never was.
func (s *Space) Verdict(coordinator uint32) (v Verdict, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := findVerdict(s.layout.Verdicts, coordinator)
	if !ok {
		return v, false
	}
	return s.layout.Verdicts[i], true
}

func findVerdict(all []Verdict, coordinator uint32) (int, bool) {
	return slices.BinarySearchFunc(all, coordinator, func(v Verdict, id uint32) int { return int(v.Coordinator) - int(id) })
}

func verdictEntry(v *Verdict) Entry {
	p := binary.LittleEndian.AppendUint64(nil, v.Last)
	for _, list := range [][]uint64{v.Committed, v.Aborted} {
		p = binary.AppendUvarint(p, uint64(len(list)))
		last := uint64(0)
		for _, seq := range list {
			p = binary.AppendUvarint(p, seq-last)
			last = seq
		}
	}
	return seal(keyOf(prefixVerdict, v.Coordinator), entryVerdict, p)
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

// sweepEntry says that dead coordinators were recovered and not all of the blades
// has been swept since; and besides, if anything: see Layout.Hollow and Layout.Spared.
func sweepEntry(hollow, spared bool) Entry {
	flags := byte(0)
	if hollow {
		flags |= sweepHollow
	}
	if spared {
		flags |= sweepSpared
	}
	if flags == 0 {
		return seal(keySweep, entrySweep, nil)
	}
	return seal(keySweep, entrySweep, []byte{flags})
}

func decodeSweep(d *payload) (hollow, spared bool) {
	if len(d.p) == 0 {
		return false, false
	}
	flags := d.u8()
	d.fail = d.fail || flags == 0 || flags > sweepHollow|sweepSpared
	return flags&sweepHollow != 0, flags&sweepSpared != 0
}

// looseEntry says that extents may be allocated which nothing leads to.
func looseEntry() Entry { return seal(keyLoose, entryLoose, nil) }
