package seeds

import "txnode/rdma/sim"

// A seed is to stay the run that it was: docs/violations.md names seeds, and tests repeat
// them. So the machines that seeds draw do not follow when package calibrate fits anew
// what sim.ConnectX6 and those that are derived from it say; they keep these numbers.

// connectX6 is sim.ConnectX6 with the constants of the first fit.
func connectX6() sim.Profile {
	p := sim.ConnectX6()
	p.RoundTripNs, p.FetchNs, p.OpsPerUs = 2331, 603.5, 111
	p.WQECache, p.WQESpan, p.WQEMissNs = 472, 1498, 9
	return firstFit(p)
}

// roce25 is sim.RoCE25 with what it took over from that.
func roce25() sim.Profile { return firstFit(sim.RoCE25()) }

func firstFit(p sim.Profile) sim.Profile {
	p.HandoverNs, p.HandoverEachNs, p.TakeoverNs = 358.6, 8.139, 0
	p.ShareNs, p.ShareExp = 1176, 0.2809
	p.BatchNs, p.PostNs, p.DoorbellNs, p.ReapNs = 56, 56, 56, 56
	p.CPUFree, p.CPUSlope = 24, 0.01473
	p.Cores, p.SiblingSlow, p.FarDoorbellNs, p.FarReapNs = 0, 0, 0, 0
	return p
}
