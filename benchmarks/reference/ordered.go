package reference

import (
	"slices"

	"txnode/benchmarks/workload"
)

// keySet is the keys of an ordered table, in order: short runs, so that an insert moves few of
// them. The lock of the table guards it.
type keySet struct {
	runs [][]uint64 // none is empty; each is below the next
}

// mostRun is the length at which a run is cut in two.
const mostRun = 512

// at returns the run that a key belongs to, and its place in it.
func (s *keySet) at(key uint64) (run, place int, found bool) {
	run, found = slices.BinarySearchFunc(s.runs, key, func(r []uint64, k uint64) int {
		switch {
		case r[len(r)-1] < k:
			return -1
		case r[0] > k:
			return 1
		}
		return 0
	})
	if run == len(s.runs) || !found {
		return run, 0, false
	}
	place, found = slices.BinarySearch(s.runs[run], key)
	return run, place, found
}

func (s *keySet) insert(key uint64) {
	run, place, found := s.at(key)
	switch {
	case found:
		return
	case len(s.runs) == 0:
		s.runs = append(s.runs, []uint64{key})
		return
	case run == len(s.runs): // behind all others
		run--
		place = len(s.runs[run])
	}
	r := slices.Insert(s.runs[run], place, key)
	s.runs[run] = r
	if len(r) > mostRun {
		half := len(r) / 2
		s.runs[run] = r[:half:half]
		s.runs = slices.Insert(s.runs, run+1, slices.Clone(r[half:]))
	}
}

func (s *keySet) delete(key uint64) {
	run, place, found := s.at(key)
	if !found {
		return
	}
	if s.runs[run] = slices.Delete(s.runs[run], place, place+1); len(s.runs[run]) == 0 {
		s.runs = slices.Delete(s.runs, run, run+1)
	}
}

// walk calls do for the keys from..to until it returns false.
func (s *keySet) walk(from, to uint64, descending bool, do func(key uint64) bool) {
	if from > to {
		return
	}
	if descending {
		run, place, found := s.at(to)
		if !found {
			place-- // the one before
		}
		for ; run >= 0; run-- {
			if run == len(s.runs) {
				place = -1
			}
			for ; place >= 0; place-- {
				if k := s.runs[run][place]; k < from || !do(k) {
					return
				}
			}
			if run > 0 {
				place = len(s.runs[run-1]) - 1
			}
		}
		return
	}
	for run, place, _ := s.at(from); run < len(s.runs); run, place = run+1, 0 {
		for _, k := range s.runs[run][place:] {
			if k > to || !do(k) {
				return
			}
		}
	}
}

// Range implements workload.Ranger. The table has one lock.
func (w *worker) Range(table int, r workload.Range, do func(key uint64, value []byte) bool) error {
	e, err := w.entry(table, r.From) // takes the lock
	if err != nil {
		return err
	}
	shard := &w.s.shards[e.lock]
	w.inserted = w.inserted[:0] // by this transaction, in the order of the range
	for i := range w.entries {
		x := &w.entries[i]
		if x.table == int32(table) && x.write == put && r.From <= x.key && x.key <= r.To {
			if _, there := shard.records[x.key]; !there {
				w.inserted = append(w.inserted, x.key)
			}
		}
	}
	slices.Sort(w.inserted)
	if r.Descending {
		slices.Reverse(w.inserted)
	}
	own, n := w.inserted, 0
	give := func(key uint64, value []byte) bool {
		n++
		return do(key, value) && n != r.Limit
	}
	more := true
	shard.keys.walk(r.From, r.To, r.Descending, func(key uint64) bool {
		for more && len(own) > 0 && own[0] < key != r.Descending {
			k := own[0]
			own = own[1:]
			more = give(k, w.written(table, k).value())
		}
		if !more {
			return false
		}
		value := shard.records[key]
		if x := w.written(table, key); x != nil {
			if value = x.value(); value == nil {
				return true // it has deleted it
			}
		}
		more = give(key, value)
		return more
	})
	for more && len(own) > 0 {
		k := own[0]
		own = own[1:]
		more = give(k, w.written(table, k).value())
	}
	return nil
}

// written returns the entry of a key that the transaction has written, or nil.
func (w *worker) written(table int, key uint64) *entry {
	for i := range w.entries {
		if e := &w.entries[i]; e.key == key && e.table == int32(table) && e.write != unwritten {
			return e
		}
	}
	return nil
}
