package exhaustive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"txnode/rdma/steptest"
)

// schedule is the moves of a run: the number of each among those that were possible.
type schedule []int

// String is one number after the other; a run of equal ones is written as number*count.
func (s schedule) String() string {
	var out []string
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && s[j] == s[i] {
			j++
		}
		if j-i > 2 {
			out = append(out, fmt.Sprintf("%d*%d", s[i], j-i))
		} else {
			for range j - i {
				out = append(out, strconv.Itoa(s[i]))
			}
		}
		i = j
	}
	return strings.Join(out, ".")
}

// parseSchedule is the inverse of String.
func parseSchedule(text string) (schedule, error) {
	var s schedule
	if text == "" {
		return s, nil
	}
	for _, part := range strings.Split(text, ".") {
		number, count, many := strings.Cut(part, "*")
		n := 1
		i, err := strconv.Atoi(number)
		if err == nil && many {
			n, err = strconv.Atoi(count)
		}
		if err != nil || i < 0 {
			return nil, fmt.Errorf("schedule %q: %q is no move", text, part)
		}
		s = append(s, slices.Repeat([]int{i}, n)...)
	}
	return s, nil
}

// asleep is a move that need not be tried, until something happens that it does not
// commute with.
type asleep struct {
	m    steptest.Move
	foot []steptest.Access
}

// frame is a state on the present path.
type frame struct {
	moves []steptest.Move
	feet  [][]steptest.Access
	sleep []asleep
	next  int // the move that is to be tried next
}

// commute reports whether two moves, both possible now, lead to the same in either order.
func commute(a steptest.Move, fa []steptest.Access, b steptest.Move, fb []steptest.Access) bool {
	if a.Port == b.Port && (a.Blade == b.Blade || a.Post != b.Post && !a.Place && !b.Place) {
		return false
	}
	return !steptest.Overlap(fa, fb)
}

// interleave runs every schedule, but for those that differ from one that is run
// only in the order of moves that commute (sleep sets, Godefroid 1996, chapter 5).
// start begins a run; end is called when nothing is left to be done. At most limit
// schedules are run (0: all), and with reduce false those that commute, too; it returns how many were, and whether those were all.
func interleave(f *steptest.Fabric, limit int, reduce bool, start func(), end func(s schedule) error) (n int, all bool, err error) {
	var path []*frame
	var taken schedule
	open := func(sleep []asleep) *frame {
		fr := &frame{moves: f.Moves(), sleep: sleep}
		for _, m := range fr.moves {
			fr.feet = append(fr.feet, f.Footprint(m, nil))
		}
		path = append(path, fr)
		return fr
	}
	start()
	fr := open(nil)
	for {
		if len(fr.moves) == 0 {
			n++
			if err := end(taken); err != nil {
				return n, false, err
			}
		}
		// Forward, if a move is left here that is awake.
		for fr.next < len(fr.moves) && slices.ContainsFunc(fr.sleep, func(s asleep) bool { return s.m == fr.moves[fr.next] }) {
			fr.next++
		}
		if fr.next < len(fr.moves) {
			i := fr.next
			fr.next++
			var sleep []asleep
			for _, s := range fr.sleep {
				if reduce && commute(s.m, s.foot, fr.moves[i], fr.feet[i]) {
					sleep = append(sleep, s)
				}
			}
			if reduce {
				fr.sleep = append(fr.sleep, asleep{fr.moves[i], fr.feet[i]})
			}
			if len(taken) >= len(path) { // the run is elsewhere
				taken = taken[:len(path)-1]
				start()
				follow(f, taken)
			}
			taken = append(taken, i)
			f.Do(fr.moves[i])
			fr = open(sleep)
			continue
		}
		// Back.
		path = path[:len(path)-1]
		if len(path) == 0 {
			return n, true, nil
		}
		if limit > 0 && n >= limit {
			return n, false, nil
		}
		fr = path[len(path)-1]
	}
}

// walks runs n schedules drawn at random, for which every possible move is as likely as the
// others: what is left of so many schedules that interleave does not come to its end would
// else never be seen, since those it begins with differ in their last moves only.
func walks(f *steptest.Fabric, n int, start func(), end func(s schedule) error) error {
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		var taken schedule
		start()
		for m := f.Moves(); len(m) > 0; m = f.Moves() {
			i := rng.IntN(len(m))
			taken = append(taken, i)
			f.Do(m[i])
		}
		if err := end(taken); err != nil {
			return err
		}
	}
	return nil
}

// follow makes the moves of a schedule, all of which are possible, and lets time pass until
// there are others.
func follow(f *steptest.Fabric, s schedule) {
	for _, i := range s {
		f.Do(f.Moves()[i])
	}
	f.Moves()
}

// replay runs one schedule; what it leaves open is decided by the first move.
func replay(f *steptest.Fabric, s schedule) {
	for i := 0; ; i++ {
		moves := f.Moves()
		if len(moves) == 0 {
			return
		}
		j := 0
		if i < len(s) && s[i] < len(moves) {
			j = s[i]
		}
		f.Do(moves[j])
	}
}
