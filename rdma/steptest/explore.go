package steptest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Schedule is the moves of a run: the number of each among those that were possible.
type Schedule []int

// String is one number after the other; a run of equal ones is written as number*count.
func (s Schedule) String() string {
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

// ParseSchedule is the inverse of String.
func ParseSchedule(text string) (Schedule, error) {
	var s Schedule
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
	m    Move
	foot []Access
}

// frame is a state on the present path.
type frame struct {
	moves []Move
	feet  [][]Access
	sleep []asleep
	next  int // the move that is to be tried next
}

// Interleave runs every schedule, but for those that differ from one that is run only in the order
// of moves that commute (sleep sets, Godefroid 1996, chapter 5). start begins a run; end is called
// when nothing is left to be done. At most limit schedules are run (0: all), and with reduce false
// those that commute, too; it returns how many were, and whether those were all.
func (f *Fabric) Interleave(limit int, reduce bool, start func(), end func(s Schedule) error) (n int,
	all bool, err error) {
	var path []*frame
	var taken Schedule
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
		for fr.next < len(fr.moves) && slices.ContainsFunc(fr.sleep, func(s asleep) bool {
			return s.m == fr.moves[fr.next]
		}) {
			fr.next++
		}
		if fr.next < len(fr.moves) {
			i := fr.next
			fr.next++
			var sleep []asleep
			for _, s := range fr.sleep {
				if reduce && f.Commute(s.m, s.foot, fr.moves[i], fr.feet[i]) {
					sleep = append(sleep, s)
				}
			}
			if reduce {
				fr.sleep = append(fr.sleep, asleep{fr.moves[i], fr.feet[i]})
			}
			if len(taken) >= len(path) { // the run is elsewhere
				taken = taken[:len(path)-1]
				start()
				f.Follow(taken)
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

// Walks runs n schedules drawn at random, for which every possible move is as likely as the
// others: what is left of so many schedules that Interleave does not come to its end would
// else never be seen, since those it begins with differ in their last moves only.
func (f *Fabric) Walks(n int, start func(), end func(s Schedule) error) error {
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		var taken Schedule
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

// Follow makes the moves of a schedule, all of which are possible, and lets time pass until
// there are others.
func (f *Fabric) Follow(s Schedule) {
	for _, i := range s {
		f.Do(f.Moves()[i])
	}
	f.Moves()
}

// Replay runs one schedule; what it leaves open is decided by the first move.
func (f *Fabric) Replay(s Schedule) {
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

// Bounded runs every schedule in which clients are interrupted so many times at most while they
// could go on; of the moves of one client the first one comes first. At most limit schedules are
// run (0: all); it returns how many were, and whether those were all.
func (f *Fabric) Bounded(bound, limit int, start func(), end func(s Schedule) error) (n int, all bool, err error) {
	type choice struct {
		moves []int // that may be made, the first of which goes on
		at    int
	}
	var path []*choice
	var taken Schedule
	for {
		start()
		var last *Client
		interrupted := 0
		taken = taken[:0]
		for depth := 0; ; depth++ {
			moves := f.Moves()
			if len(moves) == 0 {
				break
			}
			if depth == len(path) {
				c := &choice{}
				goesOn := slices.IndexFunc(moves, func(m Move) bool { return f.Of(m) == last })
				if goesOn >= 0 {
					c.moves = append(c.moves, goesOn)
				}
				if goesOn < 0 || interrupted < bound {
					var seen []*Client
					for i, m := range moves {
						if x := f.Of(m); x != last && !slices.Contains(seen, x) {
							c.moves, seen = append(c.moves, i), append(seen, x)
						}
					}
				}
				path = append(path, c)
			}
			c := path[depth]
			i := c.moves[c.at]
			x := f.Of(moves[i])
			if x != last && slices.ContainsFunc(moves, func(m Move) bool { return f.Of(m) == last }) {
				interrupted++
			}
			last = x
			taken = append(taken, i)
			f.Do(moves[i])
		}
		n++
		if err := end(taken); err != nil {
			return n, false, err
		}
		for len(path) > 0 && path[len(path)-1].at == len(path[len(path)-1].moves)-1 {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return n, true, nil
		}
		if limit > 0 && n >= limit {
			return n, false, nil
		}
		path[len(path)-1].at++
	}
}
