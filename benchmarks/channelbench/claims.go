package channelbench

import (
	"fmt"
	"math"
	"strings"
)

// judged adds the claims whose points were all measured, if all were: total is how many there
// should be.
func (r *Report) judged(total int) *Report {
	if len(r.Points) < total {
		return r
	}
	r.judgeBarrier()
	r.judgeLock()
	r.judgeHandOver()
	r.judgeTransfer()
	r.judgeMap()
	r.judgeFence()
	r.judgeConverter()
	r.judgeFailure()
	return r
}

// curve is the points of one variant in one setting, by X.
func (r *Report) curve(experiment, setting, variant string) (all []Point) {
	for _, p := range r.Points {
		if p.Experiment == experiment && p.Setting == setting && p.Variant == variant {
			all = append(all, p)
		}
	}
	return all
}

// last is the point of a curve with the greatest X up to most.
func last(all []Point, most float64) (p Point) {
	for _, x := range all {
		if x.X <= most {
			p = x
		}
	}
	return p
}

func (r *Report) claim(experiment, what, published string, holds bool, format string, args ...any) {
	r.Claims = append(r.Claims, Claim{experiment, what, published, fmt.Sprintf(format, args...), holds})
}

func (r *Report) judgeBarrier() {
	table, homes, tree := last(r.curve("barrier", "", barrierTable), 32), last(r.curve("barrier", "", barrierHomes),
		32), last(r.curve("barrier", "", barrierTree), 32)
	if table.Ops == 0 {
		return
	}
	r.claim("barrier", fmt.Sprintf("%v members: a table is not slower than copies at all nodes", table.X), "-",
		table.MeanUs <= 1.02*homes.MeanUs,
		"table %.1f us with %.1f verbs a member, copies %.1f us with %.1f, dissemination %.1f us with %.1f",
		table.MeanUs, table.VerbsOp, homes.MeanUs, homes.VerbsOp, tree.MeanUs, tree.VerbsOp)
}

func (r *Report) judgeLock() {
	ticket, set := r.curve("lock", "", lockTicket), r.curve("lock", "", lockSet)
	if len(ticket) < 3 {
		return
	}
	from, to := ticket[1], ticket[len(ticket)-1]
	r.claim("lock", fmt.Sprintf("tickets keep their rate from %v to %v nodes", from.X, to.X), "-",
		to.Kops >= 0.8*from.Kops, "x %.2f", to.Kops/from.Kops)
	a, b := set[1], set[len(set)-1]
	r.claim("lock", fmt.Sprintf("test and set loses it from %v to %v nodes", a.X, b.X), "-", b.Kops < 0.8*a.Kops,
		"x %.2f", b.Kops/a.Kops)
	m := last(r.curve("lock", "", lockMutex), to.X)
	r.claim("lock", fmt.Sprintf("%v nodes: first come, first served lets no member starve", to.X), "-",
		to.Least >= 0.5 && m.Least < 0.5,
		"the member that is served least has %.2f of the mean with TicketLock, %.2f with Mutex", to.Least, m.Least)
}

func (r *Report) judgeHandOver() {
	handed, ticket, loco := r.curve("handover", "", lockHanded), r.curve("handover", "", lockTicket),
		r.curve("handover", "", lockLOCO)
	if len(handed) == 0 {
		return
	}
	x, y, z := handed[len(handed)-1], ticket[len(ticket)-1], loco[len(loco)-1]
	r.claim("handover", fmt.Sprintf("%v coroutines a node: handing over within a node pays", x.X), "-",
		x.Kops > y.Kops && x.Least >= 0.5,
		"x %.2f with %.1f verbs instead of %.1f; LOCO's tickets, not handed over: x %.2f. Least of a coroutine, by "+
			"the mean: %.2f",
		x.Kops/y.Kops, x.VerbsOp, y.VerbsOp, z.Kops/y.Kops, x.Least)
}

func (r *Report) judgeTransfer() {
	ours, theirs := r.curve("transfer", "", lockTicket), r.curve("transfer", "", lockLOCO)
	if len(ours) == 0 {
		return
	}
	x, y := ours[len(ours)-1], theirs[len(theirs)-1]
	r.claim("transfer", fmt.Sprintf("%v nodes: tickets with owners against LOCO's without", x.X), "-",
		x.Kops >= 0.8*y.Kops, "x %.2f", x.Kops/y.Kops)
}

// judgeMap compares the orders of figure 5 at the most nodes.
func (r *Report) judgeMap() {
	for _, d := range thetas {
		for _, mix := range kvMixes {
			setting := mix.name + ", " + d.name
			get := func(variant string) Point { return last(r.curve("kv", setting, variant), math.Inf(1)) }
			ours, loco, sherman := get(kvOurs), get(kvLOCO), get(kvSherman)
			if ours.Ops == 0 {
				continue
			}
			published, holds := "LOCO > Sherman", loco.Kops > sherman.Kops
			if mix.updates > 0 && d.theta == 0 {
				published, holds = "Sherman > LOCO", loco.Kops < sherman.Kops
			}
			r.claim("kv", fmt.Sprintf("%s, %v nodes", setting, ours.X), published, holds,
				"LOCO/Sherman %.2f, ours/LOCO %.2f, ours/Sherman %.2f",
				loco.Kops/sherman.Kops, ours.Kops/loco.Kops, ours.Kops/sherman.Kops)
		}
	}
}

func (r *Report) judgeFence() {
	ours, loco, unsafe := r.curve("fence", "", kvOurs), r.curve("fence", "", kvLOCO), r.curve("fence", "", kvUnsafe)
	for i := range ours {
		lost := 100 * (1 - loco[i].Kops/unsafe[i].Kops)
		r.claim("fence", fmt.Sprintf("%v nodes: the fence costs an update of LOCO's layout", ours[i].X), "15 %",
			lost >= 10 && lost <= 20,
			"%.0f %%; ours has none, and does %.2f times what LOCO's does with it, %.2f without",
			lost, ours[i].Kops/loco[i].Kops, ours[i].Kops/unsafe[i].Kops)
	}
}

func (r *Report) judgeConverter() {
	for _, v := range []string{convertLOCO, convertOurs} {
		all := r.curve("converter", "", v)
		if len(all) == 0 {
			return
		}
		var stable []string
		below, above := true, false
		for _, p := range all {
			ok := p.Deviation <= stableWithin
			if ok {
				stable = append(stable, fmt.Sprint(p.X))
			}
			below, above = below && (ok || p.X > 40), above || ok && p.X > 40
		}
		what, published, holds := "stable up to a period of 40 us, and not above", "yes", below && !above
		if v == convertOurs {
			what, published, holds = "stable up to a period of 40 us at least", "-", below
		}
		r.claim("converter", v+": "+what, published, holds, "stable at %s us", strings.Join(stable, ", "))
	}
}

func (r *Report) judgeFailure() {
	most, least, n := 0.0, math.Inf(1), 0
	for _, p := range r.Points {
		if p.Experiment == "failure" {
			most, least, n = max(most, p.MeanUs), min(least, p.MeanUs), n+1
		}
	}
	if n > 0 {
		within := (2*failTerm + 10*r.profile.RoundTripNs) / 1e3
		r.claim("failure", "others go on within two terms and ten round trips",
			"-", most <= within, "%.2f to %.2f terms", least*1e3/failTerm, most*1e3/failTerm)
	}
}
