package tatp

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

// Keys are stored: these values may never change.
func TestKeysAreGolden(t *testing.T) {
	for _, test := range []struct {
		what      string
		got, want uint64
	}{
		{"subscriber 0", subscriberKey(0), 0},
		{"subscriber 99999", subscriberKey(99_999), 0x1869f},
		{"secondary of 0", subscriberNumber(0), 0},
		{"secondary of 7", subscriberNumber(7), 0x7},
		{"secondary of 65535", subscriberNumber(65_535), 0x65535},
		{"secondary of 2147483647", subscriberNumber(1<<31 - 1), 0x2147483647},
		{"facility 3 of 65535", facilityKey(65_535, 3), 0x3_0000_ffff},
		{"access 4 of 1", accessKey(1, 4), 0x4_0000_0001},
		{"forwarding 1 at 0 of 2", forwardingKey(2, 1, 0), 0x1_0000_0002},
		{"forwarding 4 at 8 of 65535", forwardingKey(65_535, 4, 8), 0x804_0000_ffff},
		{"forwarding 2 at 16 of 99999", forwardingKey(99_999, 2, 16), 0x1002_0001_869f},
	} {
		if test.got != test.want {
			t.Errorf("%s has key %#x, not %#x", test.what, test.got, test.want)
		}
	}
}

// The rows of a subscriber are stored, too, and must be the same for ever.
func TestPopulationIsGolden(t *testing.T) {
	const s = 12345
	var p population
	p.populate(s)
	var got []string
	add := func(what string, has bool, row []byte) {
		if has {
			got = append(got, what+" "+hex.EncodeToString(row))
		}
	}
	add("subscriber", true, p.subscriber[:])
	add("secondary", true, p.secondary[:])
	for k := range numKinds {
		add("access", p.hasAccess[k], p.access[k][:])
		add("facility", p.hasFacility[k], p.facility[k][:])
		for i := range numStarts {
			add("forwarding", p.hasForwarding[k][i], p.forwarding[k][i][:])
		}
	}
	want := strings.Fields(golden)
	if len(want) != 2*len(got) {
		t.Fatalf("%d rows:\n%s", len(got), strings.Join(got, "\n"))
	}
	for i, row := range got {
		if row != want[2*i]+" "+want[2*i+1] {
			t.Errorf("row %d is\n%s, not\n%s %s", i, row, want[2*i], want[2*i+1])
		}
	}
}

const golden = `
subscriber 452301000000000024d9660b366caf63b903225363199e8184b4e2136b4c49a08700000000000000
secondary 3930000000000000
access 7cee5356594d564a4758000000000000
facility 01824b59565a4846
forwarding 16343433383238313638383831393438
access 24ce4e594f434d524a57000000000000
facility 0191c844474d5849
forwarding 08313730313139393936363131383232
access 4a5c4c4c595344534a56000000000000
facility 010fd34643475852
forwarding 0a373632383135313330353337373730
access d5984a4243555154444d000000000000
facility 01adde5745485458
forwarding 14303938373234373431383532353432
forwarding 15303231353337303733333130353232
forwarding 0b363639333933313337373831393532
`

// The rows of all subscribers keep the rules, and have TATP's proportions:
// 250,581 special facilities and 376,218 call forwarding rows in FORD's
// program, with its seed.
func TestPopulation(t *testing.T) {
	const n = 100_000
	var access, facilities, active, forwarding float64
	var kinds [numKinds + 1]float64
	var p population
	for s := range uint32(n) {
		p.populate(s)
		if !p.subscriber.whole(s) || !p.secondary.whole(s) {
			t.Fatalf("subscriber %d: rows %x, %x", s, p.subscriber, p.secondary)
		}
		count := 0
		for k := range numKinds {
			if p.hasAccess[k] {
				access++
				if !p.access[k].whole() {
					t.Fatalf("subscriber %d: access info %x", s, p.access[k])
				}
			}
			if !p.hasFacility[k] {
				if p.hasForwarding[k] != [numStarts]bool{} {
					t.Fatalf("subscriber %d: call forwarding without facility %d", s, k+1)
				}
				continue
			}
			count++
			active += float64(p.facility[k][sfActive])
			if !p.facility[k].whole() {
				t.Fatalf("subscriber %d: facility %x", s, p.facility[k])
			}
			for i := range starts {
				if p.hasForwarding[k][i] {
					forwarding++
					if !p.forwarding[k][i].whole() {
						t.Fatalf("subscriber %d: call forwarding %x", s, p.forwarding[k][i])
					}
				}
			}
		}
		kinds[count]++
		facilities += float64(count)
	}
	near := func(what string, got, want, sigma float64) {
		t.Helper()
		if math.Abs(got-want) > 5*sigma {
			t.Errorf("%s: %v, expected %v ± %.0f", what, got, want, sigma)
		}
	}
	if kinds[0] != 0 {
		t.Errorf("%v subscribers have no facility", kinds[0])
	}
	for k := 1; k <= numKinds; k++ {
		near("subscribers by number of facilities", kinds[k], n/4, math.Sqrt(n*0.25*0.75))
	}
	near("access infos", access, 2.5*n, math.Sqrt(1.25*n))
	near("facilities", facilities, 2.5*n, math.Sqrt(1.25*n))
	near("active facilities", active, 0.85*facilities, math.Sqrt(facilities*0.85*0.15))
	near("call forwarding", forwarding, 1.5*facilities, math.Sqrt(facilities*0.75))
}
