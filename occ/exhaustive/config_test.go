package exhaustive

import (
	"slices"

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
	return slices.DeleteFunc(configs(), func(c config) bool { return c.caps != strong })
}

// ofPolicyDefault are those of all that are of policy default.
func ofPolicyDefault(all []config) []config {
	return slices.DeleteFunc(all, func(c config) bool { return c.policy != occ.PolicyDefault })
}
