package sim

import (
	"fmt"
	"math"
	"strings"
)

// Profile is everything that the model knows about a machine: its processors,
// its RNIC, the network. It is a value: copy one, change a field, use it. All
// times are nanoseconds of virtual time. docs/simulator.md says where each
// constant comes from: fitted to measurements, published, or assumed.
type Profile struct {
	Name string

	// Latency.

	// from doorbell to completion of an 8-byte READ on an idle device, its WQE passed with the
	// doorbell
	RoundTripNs float64
	// added unless a doorbell announces a single request on an idle queue pair: the device
	// fetches WQEs over PCIe
	FetchNs   float64
	JitterNs  float64 // added to each request: uniform, 0 to this
	AtomicNs  float64 // added to an atomic
	TimeoutNs float64 // until a request that nobody answers fails
	ControlNs float64 // a call of the control path: Grant, Revoke, Provision

	// Device, on either side.

	OpsPerUs       float64 // requests per microsecond
	WritesPerUs    float64 // WRITEs per microsecond that a device can send; 0: OpsPerUs
	BytesPerNs     float64 // payload over PCIe, each direction
	WireBytesPerNs float64 // payload and headers over the network, each direction; 0: no limit
	HeaderBytes    float64 // of each packet on the wire, beside its payload
	MTU            int     // payload of a packet, bytes; 0: any size
	// a WRITE of up to so many bytes carries them in its WQE; where that takes two of the queue's
	// 64-byte blocks, the requester's pipeline is taken for one request more. 0: no such thing
	Inline int

	WQECache  int     // outstanding requests whose WQEs the cache of the device holds
	WQESpan   int     // this many more, and every request misses
	WQEMissNs float64 // of the pipeline that a miss takes: a PCIe read
	QPCache   int     // queue pairs whose contexts the device holds; 0: no limit
	QPMissNs  float64 // of the pipeline that a missing context takes

	AtomicsPerUs   float64 // atomics per microsecond and device
	AtomicAddrNs   float64 // between two atomics on one word
	NoMaskedCAS    bool    // the device lacks masked compare-and-swap
	QueueDepth     int     // requests that a queue pair holds
	ThreadDoorbell int     // doorbell registers of the device, for PerThreadDoorbell

	// The blade's memory, where it is slower than what the round trip contains: DRAM.
	// A READ or an atomic waits MediaReadNs more. An access takes the memory in whole
	// grains of MediaGrain bytes, at MediaReadBytesPerNs or MediaWriteBytesPerNs; 0: no
	// limit.

	MediaReadNs          float64
	MediaGrain           int
	MediaReadBytesPerNs  float64
	MediaWriteBytesPerNs float64
	MediaCache           int // bytes of the blade's cache that its RNIC writes to, in front of that memory; 0: none

	// Doorbell registers as the driver hands them out: one device context has
	// Doorbells of them. The first LowLatency queue pairs get one each; the others
	// share the rest, round robin.

	Doorbells  int
	LowLatency int

	// Spinlocks. To pass a contended lock on takes HandoverNs and, for every
	// thread that spins on it, HandoverEachNs; like processor time it grows with
	// the number of active threads.

	HandoverNs     float64
	HandoverEachNs float64
	FarHandoverNs  float64 // more to pass it to a thread on the far socket: see Cores
	// of a register's lock that is free, when another thread has had it last: its line and the
	// register's state come from another core
	TakeoverNs float64

	// A queue pair and completion queue that n threads share serialize
	// ShareNs*(n-1.5)^ShareExp of their time for each request: of n threads one
	// has the lock, the others spin on it, but for the time that the network takes.

	ShareNs  float64
	ShareExp float64

	// Processor time. It grows by CPUSlope for every active thread of the compute
	// blade beyond CPUFree: threads share cores, caches and the memory bus.

	BatchNs    float64 // a call of Post: what leads to it, on average
	PostNs     float64 // each request
	DoorbellNs float64 // each doorbell, in the register's critical section
	ReapNs     float64 // each completion that is signaled: one per doorbell
	SwitchNs   float64 // from one coroutine to the next
	CPUFree    int
	CPUSlope   float64
	// Thread i of a compute blade is bound to its processor i. The first Cores processors
	// are of different cores, the next ones the second hardware threads of the same; those
	// with odd numbers are of the socket that the RNIC is not on.
	Cores         int     // 0: each thread has its own
	SiblingSlow   float64 // processor time more, as a share, while another thread of the core is active
	FarDoorbellNs float64 // more for a doorbell from the far socket
	FarReapNs     float64 // and for its completion

	CPUNoise    float64 // processor times vary by this fraction, uniformly
	IdleNs      float64 // a thread that waits longer than this with nothing outstanding is not active
	LookaheadNs float64 // how far a thread may run ahead of the events: a bound on how late it sees a completion
}

// Validate lists everything that cannot be.
func (p *Profile) Validate() error {
	var bad []string
	check := func(ok bool, what string) {
		if !ok {
			bad = append(bad, what)
		}
	}
	for _, f := range p.fields() {
		v := *f.v
		check(v >= 0 && v < 1e12 && !math.IsNaN(v), fmt.Sprintf("%s is %v", f.name, v))
	}
	check(p.OpsPerUs > 0 && p.BytesPerNs > 0 && p.AtomicsPerUs > 0, "a rate is not positive")
	check(p.RoundTripNs > 0, "RoundTripNs is not positive")
	check(p.CPUNoise <= 1, "CPUNoise is above 1")
	check(p.Doorbells > p.LowLatency && p.LowLatency >= 0,
		fmt.Sprintf("%d of %d doorbells are low-latency: at least one must not be", p.LowLatency, p.Doorbells))
	check(p.ThreadDoorbell > 0, "ThreadDoorbell is not positive")
	check(p.MTU >= 0, "MTU is negative")
	check(p.Inline >= 0 && p.Inline <= 1<<10, "Inline is negative or above a KiB")
	check(p.MediaGrain >= 0 && p.MediaGrain <= 1<<20, "MediaGrain is negative or above a MiB")
	check(p.MediaCache >= 0 && p.MediaCache <= 1<<32, "MediaCache is negative or above 4 GiB")
	check(p.QueueDepth > 0, "QueueDepth is not positive")
	check(p.WQECache >= 0 && p.WQESpan > 0, "WQESpan is not positive")
	check(p.QPCache >= 0 && p.CPUFree >= 0, "QPCache or CPUFree is negative")
	check(p.Cores >= 0 && p.Cores <= 1<<16, "Cores is negative or above 65536")
	if bad != nil {
		return fmt.Errorf("%w: profile %q: %s", ErrOptions, p.Name, strings.Join(bad, "; "))
	}
	return nil
}

type field struct {
	name string
	v    *float64
}

// fields lists the constants that are real numbers, in the order of the type.
func (p *Profile) fields() []field {
	return []field{
		{"RoundTripNs", &p.RoundTripNs}, {"FetchNs", &p.FetchNs}, {"JitterNs", &p.JitterNs}, {"AtomicNs", &p.AtomicNs},
		{"TimeoutNs", &p.TimeoutNs}, {"ControlNs", &p.ControlNs},
		{"OpsPerUs", &p.OpsPerUs}, {"WritesPerUs", &p.WritesPerUs}, {"BytesPerNs", &p.BytesPerNs},
		{"WireBytesPerNs", &p.WireBytesPerNs}, {"HeaderBytes", &p.HeaderBytes},
		{"WQEMissNs", &p.WQEMissNs}, {"QPMissNs", &p.QPMissNs},
		{"AtomicsPerUs", &p.AtomicsPerUs}, {"AtomicAddrNs", &p.AtomicAddrNs},
		{"MediaReadNs", &p.MediaReadNs}, {"MediaReadBytesPerNs", &p.MediaReadBytesPerNs},
		{"MediaWriteBytesPerNs", &p.MediaWriteBytesPerNs},
		{"HandoverNs", &p.HandoverNs}, {"HandoverEachNs", &p.HandoverEachNs}, {"FarHandoverNs", &p.FarHandoverNs},
		{"TakeoverNs", &p.TakeoverNs},
		{"ShareNs", &p.ShareNs}, {"ShareExp", &p.ShareExp},
		{"BatchNs", &p.BatchNs}, {"PostNs", &p.PostNs}, {"DoorbellNs", &p.DoorbellNs}, {"ReapNs", &p.ReapNs},
		{"SwitchNs", &p.SwitchNs},
		{"SiblingSlow", &p.SiblingSlow}, {"FarDoorbellNs", &p.FarDoorbellNs}, {"FarReapNs", &p.FarReapNs},
		{"CPUSlope", &p.CPUSlope}, {"CPUNoise", &p.CPUNoise}, {"IdleNs", &p.IdleNs}, {"LookaheadNs", &p.LookaheadNs},
	}
}

// Set changes a real constant by its name, so that results can be had for other values of what is
// assumed, and adds the change to the profile's name. ErrOptions: there is no such constant.
func (p *Profile) Set(name string, v float64) error {
	for _, f := range p.fields() {
		if f.name == name {
			*f.v = v
			p.Name += fmt.Sprintf("+%s=%g", name, v)
			return p.Validate()
		}
	}
	return fmt.Errorf("%w: no real constant %q: see docs/simulator.md", ErrOptions, name)
}

// Constant is a constant of a profile, to be shown.
type Constant struct {
	Name  string
	Value float64
}

// Constants lists what a profile says, in the order of the type.
func (p Profile) Constants() []Constant {
	var out []Constant
	for _, f := range p.fields() {
		out = append(out, Constant{f.name, *f.v})
	}
	for _, c := range []struct {
		name string
		v    int
	}{
		{"MTU", p.MTU}, {"Inline", p.Inline}, {"MediaGrain", p.MediaGrain}, {"MediaCache", p.MediaCache},
		{"WQECache", p.WQECache}, {"WQESpan", p.WQESpan}, {"QPCache", p.QPCache}, {"QueueDepth", p.QueueDepth},
		{"ThreadDoorbell", p.ThreadDoorbell}, {"Doorbells", p.Doorbells}, {"LowLatency", p.LowLatency},
		{"CPUFree", p.CPUFree}, {"Cores", p.Cores},
	} {
		out = append(out, Constant{c.name, float64(c.v)})
	}
	return out
}

// ConnectX6 is the machine of the SMART paper (section 6.1): two 24-core Xeon
// Gold 6240R with two threads a core, a 200 Gb/s ConnectX-6 on PCIe 3.0 x16. The
// constants marked "fit" are those that package calibrate finds.
func ConnectX6() Profile {
	return Profile{
		Name: "connectx-6",

		RoundTripNs: 2213,  // fit
		FetchNs:     647.9, // fit
		JitterNs:    100,
		AtomicNs:    150,
		TimeoutNs:   1e6,
		ControlNs:   20e3,

		OpsPerUs:       111,  // fit; SMART 6.1: 110.0
		BytesPerNs:     13,   // PCIe 3.0 x16, as far as SMART 6.2.2 got: 104 Gb/s of 128
		WireBytesPerNs: 25,   // 200 Gb/s: SMART 6.1
		HeaderBytes:    30,   // InfiniBand headers of a READ request or of a packet of its response
		MTU:            512,  // SMART's programs
		WQECache:       472,  // fit
		WQESpan:        1808, // fit
		WQEMissNs:      9,    // fit

		AtomicsPerUs:   50,    // ConnectX-5: RCuckoo (ATC'25), figure 1b
		AtomicAddrNs:   333.3, // ConnectX-5, 3 M/s on one address: RCuckoo, figure 1c
		QueueDepth:     256,   // SMART's configuration
		ThreadDoorbell: 512,   // SMART 4.1

		Doorbells:  16, // SMART 2.2
		LowLatency: 4,

		HandoverNs:     351.6,  // fit
		HandoverEachNs: 5.423,  // fit
		TakeoverNs:     268.9,  // fit
		ShareNs:        861.4,  // fit
		ShareExp:       0.3232, // fit

		BatchNs:       56,
		PostNs:        56, // fit: the sum of the four
		DoorbellNs:    56,
		ReapNs:        56,
		SwitchNs:      60,
		CPUFree:       37,       // fit
		CPUSlope:      0.009941, // fit
		CPUNoise:      0.3,
		Cores:         48,     // SMART 6.1
		SiblingSlow:   0.2806, // fit
		FarDoorbellNs: 68.53,  // fit
		FarReapNs:     39.87,  // fit, with the doorbell
		IdleNs:        1e6,
		LookaheadNs:   4000,
	}
}

// WithPersistentMemory returns the profile with blades of six interleaved Optane DC
// modules, as those of figures 10 and 11 (SMART 6.1 and 6.2.2). The values are
// those that Izraelevitz et al. measured (arXiv:1903.05714): a random load takes 305
// ns where DRAM takes 101, six modules read 39.4 GB/s and write 13.9, in grains of
// 256 bytes. The RNIC writes to two of the eleven ways of a Xeon Gold 6240R's
// last-level cache, 35.75 MB (Intel's data sheet, and its DDIO). The evaluation that
// this machine stands for is of WRITEs for the most part: it has the most of them that
// figure 4 of the SMART paper shows, and inlines as SMART-DTX is configured to.
// ConnectX6 itself is fitted to READs alone.
func (p Profile) WithPersistentMemory() Profile {
	p.Name += "+pm"
	p.MediaReadNs = 204
	p.MediaGrain = 256
	p.MediaReadBytesPerNs = 39.4
	p.MediaWriteBytesPerNs = 13.9
	p.MediaCache = 35_750_000 * 2 / 11
	p.WritesPerUs = 92.7
	p.Inline = 64
	return p
}

// WithSlowFarRegisters returns the profile with doorbell registers that are passed on
// half as fast between threads on the socket that is far from the RNIC. It is an
// assumption: fitted to the same row of figure 3a with a start of its own, which it
// meets as well as ConnectX6 does, so that those measurements cannot tell the two
// apart. docs/simulator-predictions.md says what it explains.
func (p Profile) WithSlowFarRegisters() Profile {
	p.Name += "+far"
	p.HandoverNs, p.HandoverEachNs, p.FarHandoverNs, p.TakeoverNs = 280, 3.568, 290.6, 214.6
	return p
}

// ConnectX5 is an assumption: a 100 Gb/s ConnectX-5 in the same hosts, with two
// thirds of the message rate, half the WQE cache, and connection state that does
// not fit its memory beyond some thousand queue pairs.
func ConnectX5() Profile {
	p := ConnectX6()
	p.Name = "connectx-5"
	p.RoundTripNs = 2550
	p.FetchNs = 750
	p.OpsPerUs = 75
	p.BytesPerNs = 11.5
	p.WireBytesPerNs = 12.5
	p.WQECache = 256
	p.WQESpan = 1000
	p.WQEMissNs = 13
	p.QPCache = 2000
	p.QPMissNs = 15
	p.ThreadDoorbell = 256
	return p
}

// RoCE25 is an assumption: a 25 Gb/s card on switched Ethernet, as rented
// machines have it.
func RoCE25() Profile {
	p := ConnectX6()
	p.Name = "roce-25g"
	p.RoundTripNs = 4400
	p.FetchNs = 800
	p.JitterNs = 600
	p.OpsPerUs = 30
	p.BytesPerNs = 11.5
	p.WireBytesPerNs = 3.1
	p.HeaderBytes = 58
	p.WQECache = 128
	p.WQESpan = 512
	p.WQEMissNs = 33
	p.QPCache = 1000
	p.QPMissNs = 40
	p.AtomicsPerUs = 12
	p.AtomicAddrNs = 900
	p.NoMaskedCAS = true
	p.ThreadDoorbell = 256
	return p
}

// Ideal is no machine: verbs cost a microsecond of latency and almost nothing
// else. For tests of logic, where contention for hardware is noise.
func Ideal() Profile {
	p := ConnectX6()
	p.Name = "ideal"
	p.RoundTripNs = 1000
	p.FetchNs = 0
	p.OpsPerUs = 1e4
	p.BytesPerNs = 1e4
	p.WireBytesPerNs = 0
	p.AtomicsPerUs = 1e4
	p.AtomicAddrNs = 1
	p.WQEMissNs = 0
	p.HandoverNs, p.HandoverEachNs, p.TakeoverNs, p.ShareNs = 0, 0, 0, 0
	p.BatchNs, p.PostNs, p.DoorbellNs, p.ReapNs, p.SwitchNs = 10, 1, 1, 1, 1
	p.CPUSlope = 0
	p.Cores, p.SiblingSlow, p.FarDoorbellNs, p.FarReapNs = 0, 0, 0, 0
	return p
}

// Profiles are the machines known by name.
func Profiles() []Profile {
	return []Profile{
		ConnectX6(), ConnectX6().WithPersistentMemory(), ConnectX6().WithSlowFarRegisters(),
		ConnectX6().WithPersistentMemory().WithSlowFarRegisters(), ConnectX5(), RoCE25(), Ideal(),
	}
}

// ProfileByName returns one of Profiles.
func ProfileByName(name string) (Profile, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("%w: no profile %q: there are %s", ErrOptions, name, strings.Join(names, ", "))
}

// ps converts nanoseconds of a profile.
func ps(ns float64) int64 { return int64(math.Round(ns * 1000)) }
