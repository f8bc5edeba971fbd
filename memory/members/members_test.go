package members_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"txnode/memory/layout"
	"txnode/memory/members"
	"txnode/rdma"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts anew")

// story is a catalog as far as members are concerned, and which leases have ended.
type story struct {
	l     layout.Layout
	ended map[uint32]bool
}

func (s *story) gone(process uint32) bool { return s.ended[process] }

// do executes a line of a transcript, and returns what it prints.
//
//	witness                      the server of the catalog is a member
//	join N...                    processes register
//	ends N, renews N             the lease of a process ends, or it is renewed after all
//	resigns N, leaves N          a process closes the database; its registration is ended
//	N SAYS BLADE [again]         a member, or the witness, has asked a blade: hears, silent,
//	                             troubled
//	down BLADE                   the blade is declared dead
//	judge BLADE                  how things stand
func (s *story) do(line string) string {
	w := strings.Fields(line)
	number := func(i int) (n uint32) {
		if w[i] == "witness" {
			return layout.Witness
		}
		if _, err := fmt.Sscan(w[i], &n); err != nil {
			panic(fmt.Sprintf("%q: %v", line, err))
		}
		return n
	}
	process := func() *layout.ProcessEntry { return s.l.Process(number(1)) }
	switch {
	case w[0] == "witness" && len(w) == 1:
		s.l.Witnessed = true
	case w[0] == "join":
		for i := range w[1:] {
			s.l.Processes = append(s.l.Processes, layout.ProcessEntry{ID: number(i + 1), Until: 100})
		}
	case w[0] == "ends":
		s.ended[number(1)] = true
	case w[0] == "renews":
		delete(s.ended, number(1))
	case w[0] == "resigns":
		process().Until = layout.Resigned
	case w[0] == "leaves":
		id := number(1)
		s.l.Processes = slices.DeleteFunc(s.l.Processes, func(p layout.ProcessEntry) bool { return p.ID == id })
		s.l.HeedSights()
	case w[0] == "down":
		s.l.TakeDown(rdma.BladeID(number(1)))
	case w[0] == "judge":
		j := members.Judge(&s.l, rdma.BladeID(number(1)), s.gone)
		return fmt.Sprintf("%v, round %d, heard by %v, waiting for %v", j.State, j.Round, j.Hears, j.Absent)
	default:
		says := map[string]layout.Says{
			"hears": layout.Hears, "silent": layout.Silent, "troubled": layout.Troubled,
		}[w[1]]
		if says == 0 {
			panic(line)
		}
		x, noted := members.Answer(&s.l, number(0), rdma.BladeID(number(2)), says, len(w) > 3, s.gone)
		if !noted {
			return "nothing to note"
		}
		s.l.See(x)
		if x.Says == 0 {
			return "takes back what it said"
		}
		return fmt.Sprintf("noted in round %d", x.Round)
	}
	return ""
}

// TestTranscripts tells each story of testdata. Members that say what they have said before, and
// catalogs that are encoded and decoded in between, change nothing.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			s := &story{ended: map[uint32]bool{}}
			for line := range strings.Lines(string(want)) {
				line = strings.TrimSuffix(line, "\n")
				switch {
				case strings.HasPrefix(line, "    "): // what was printed
					continue
				case line == "", strings.HasPrefix(line, "#"):
					s = fresh(s, line)
				default:
					fmt.Fprintln(&got, line)
					if out := s.do(line); out != "" {
						fmt.Fprintf(&got, "    %s\n", out)
					}
					continue
				}
				fmt.Fprintln(&got, line)
			}
			if *rewrite {
				if err := os.WriteFile(name, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != string(want) {
				t.Errorf("%s: it is now (write it with -rewrite)\n%s", name, got.String())
			}
		})
	}
}

// fresh begins another story behind a heading.
func fresh(s *story, line string) *story {
	if strings.HasPrefix(line, "# ") {
		return &story{ended: map[uint32]bool{}, l: layout.Layout{
			Blades: make([]layout.Blade, 4), Segments: make([]layout.Segment, 1),
		}}
	}
	return s
}

// TestJudgeAll: for three members and all that they may say in two rounds, a blade is gone if and
// only if all members that are alive have answered in the last round that one who is alive has
// begun, none hears it, and one has asked it in vain.
func TestJudgeAll(t *testing.T) {
	answers := []layout.Sight{{}}
	for _, says := range []layout.Says{layout.Hears, layout.Silent, layout.Troubled} {
		for round := range uint32(2) {
			answers = append(answers, layout.Sight{Says: says, Round: round + 1})
		}
	}
	n := len(answers)
	for dead := range 8 {
		for k := range n * n * n {
			var l layout.Layout
			l.Blades = make([]layout.Blade, 1)
			l.Witnessed = true
			l.Processes = []layout.ProcessEntry{{ID: 1, Until: 100}, {ID: 2, Until: 100}}
			all := []layout.Sight{answers[k%n], answers[k/n%n], answers[k/n/n]}
			round := uint32(0)
			for m := range all {
				all[m].Member = uint32(m)
				l.See(all[m])
				if m > 0 && dead&(1<<m) != 0 {
					continue
				}
				if all[m].Says == layout.Silent || all[m].Says == layout.Troubled {
					round = max(round, all[m].Round)
				}
			}
			answered, heard, asked := true, false, false
			for m := range all {
				if m > 0 && dead&(1<<m) != 0 {
					continue
				}
				answered = answered && all[m].Round >= round
				heard = heard || all[m].Says == layout.Hears && all[m].Round >= round
				asked = asked || all[m].Says == layout.Silent && all[m].Round >= round
			}
			gone := round > 0 && answered && !heard && asked
			j := members.Judge(&l, 0, func(id uint32) bool { return dead&(1<<id) != 0 })
			if (j.State == members.Gone) != gone {
				t.Fatalf("%v, dead %b: %v, and it is %v that it is gone", all, dead, j, gone)
			}
		}
	}
}
