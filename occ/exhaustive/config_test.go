package exhaustive

import (
	"txnode/occ"
	"txnode/rdma"
)

// configs are both policies with one and two backups, on a fabric that promises
// much, and on one that promises nothing.
func configs() []config {
	var all []config
	for _, p := range []occ.Policy{occ.PolicyDefault, occ.PolicyFORD} {
		for f := 1; f <= 2; f++ {
			for _, caps := range []rdma.Caps{strong, weak} {
				all = append(all, config{policy: p, backups: f, caps: caps, reclaim: 1})
			}
		}
	}
	return all
}

// stopConfigs are both policies with one and two backups.
func stopConfigs() []config {
	var all []config
	for _, c := range configs() {
		if c.caps == strong {
			all = append(all, c)
		}
	}
	return all
}
