package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind is the kind of a fault.
type FaultKind uint8

// The faults. Which parameters each has is in the table of ParseFault.
const (
	FaultNone      FaultKind = iota
	FaultStop                // a thread stops after its verb, or at a time
	FaultLose                // a verb takes effect, and its completion is lost: it ends in a timeout
	FaultDrop                // a verb is lost: it ends in a timeout
	FaultLate                // a verb arrives late, those behind it too; after the timeout its owner has given it up
	FaultDelay               // a WRITE is placed that long after its completion, unless something forces it
	FaultTear                // a READ or WRITE is divided, its parts that long apart
	FaultSlow                // a blade takes x times as long
	FaultPartition           // a blade is cut off, from one thread or from all
	FaultRestart             // a blade stops, and is back after a time, with or without its memory, with another key
	FaultCatalog             // what the fabric's users keep beside it does not answer: they ask Fabric.CatalogDown
	FaultKill                // all threads of a compute blade stop
	FaultPause               // the threads of a compute blade do nothing for a time, and then go on
	// FaultTrouble: a compute blade connects to nothing, for a cause of its own;
	// connections that it has go on
	FaultTrouble
	FaultClock // the clock of a compute blade runs x times as fast
	faultKinds
)

var faultNames = [faultKinds]string{
	"none", "stop", "lose", "drop", "late", "delay", "tear", "slow", "partition",
	"restart", "catalog", "kill", "pause", "trouble", "clock",
}

// String returns the name used in expressions.
func (k FaultKind) String() string {
	if k < faultKinds {
		return faultNames[k]
	}
	return fmt.Sprintf("fault(%d)", uint8(k))
}

// Fault is one fault. It prints as the expression that makes it:
//
//	stop(thread=3,verb=17)      stop(thread=3,at=2ms)
//	lose(thread=1,verb=9)       drop(thread=1,verb=9)
//	late(thread=1,verb=9,by=5ms)
//	delay(thread=1,verb=9,by=10us)
//	tear(thread=1,verb=9,by=2us)
//	slow(blade=1,x=10,from=1ms,for=3ms)
//	partition(blade=1,from=1ms,for=3ms)  partition(blade=1,thread=2,from=1ms)
//	partition(blade=1,compute=2,way=back,from=1ms,for=3ms)
//	restart(blade=1,at=1ms,for=500us,memory=false)
//	catalog(from=1ms,for=3ms)  catalog(compute=2,from=1ms,for=3ms)
//	kill(compute=2,at=1ms)
//	pause(compute=2,from=1ms,for=3ms)
//	trouble(compute=2,why=descriptors,from=1ms,for=3ms)
//	clock(compute=2,x=1.05)
//
// Verbs are counted from 1 over the work requests that the thread posts, times
// from the injection of the fault. Without "for" it lasts for ever. Compute blades are
// counted from 1; a catalog without one does not answer any, a partition without one cuts off
// all. A partition with a way loses what goes there, which are requests, or what comes back.
// Why a compute blade has trouble is in Whys.
type Fault struct {
	Kind    FaultKind
	Thread  int // -1: all (partition)
	Blade   int
	Compute int // from 1; 0: all (catalog, partition)
	Verb    uint64
	X       float64
	By      time.Duration
	At      time.Duration // beginning: "at" or "from"
	For     time.Duration // 0: for ever
	Memory  bool
	Way     string // of a partition: "there", "back", or "", which is both
	Why     string // of trouble: one of Whys
}

// Whys are the causes of FaultTrouble: too few descriptors, no port that is free, a name that is
// not found, a permission that is missing, an alert of TLS, an end of file in the greeting.
var Whys = []string{"descriptors", "ports", "name", "permission", "alert", "greeting"}

// ways are those of a partition.
var ways = []string{"", "there", "back"}

// faultParams: what an expression has; a "?" marks what may be missing.
var faultParams = [faultKinds]string{
	FaultStop:      "thread verb? at?",
	FaultLose:      "thread verb",
	FaultDrop:      "thread verb",
	FaultLate:      "thread verb by",
	FaultDelay:     "thread verb by",
	FaultTear:      "thread verb by",
	FaultSlow:      "blade x from? for?",
	FaultPartition: "blade thread? compute? way? from? for?",
	FaultRestart:   "blade at? for? memory?",
	FaultCatalog:   "compute? from? for?",
	FaultKill:      "compute at",
	FaultPause:     "compute from? for",
	FaultTrouble:   "compute why from? for?",
	FaultClock:     "compute x",
}

// String prints the fault as an expression that ParseFault reads.
func (x Fault) String() string {
	if x.Kind == FaultNone || x.Kind >= faultKinds {
		return x.Kind.String()
	}
	var s []string
	for _, p := range strings.Fields(faultParams[x.Kind]) {
		name, optional := strings.CutSuffix(p, "?")
		v, zero := x.param(name)
		if !optional || !zero {
			s = append(s, name+"="+v)
		}
	}
	return x.Kind.String() + "(" + strings.Join(s, ",") + ")"
}

// param prints a parameter, and says whether it is what a missing one means.
func (x *Fault) param(name string) (string, bool) {
	switch name {
	case "thread":
		return strconv.Itoa(x.Thread), x.Thread < 0
	case "blade":
		return strconv.Itoa(x.Blade), false
	case "compute":
		return strconv.Itoa(x.Compute), x.Compute == 0
	case "verb":
		return strconv.FormatUint(x.Verb, 10), x.Verb == 0
	case "x":
		return strconv.FormatFloat(x.X, 'g', -1, 64), false
	case "by":
		return x.By.String(), x.By == 0
	case "at", "from":
		return x.At.String(), x.At == 0
	case "for":
		return x.For.String(), x.For == 0
	case "way":
		return x.Way, x.Way == ""
	case "why":
		return x.Why, x.Why == ""
	default:
		return strconv.FormatBool(x.Memory), x.Kind == FaultRestart && !x.Memory
	}
}

func (x *Fault) setParam(name, v string) (err error) {
	switch name {
	case "thread":
		x.Thread, err = strconv.Atoi(v)
	case "blade":
		x.Blade, err = strconv.Atoi(v)
	case "compute":
		x.Compute, err = strconv.Atoi(v)
	case "verb":
		x.Verb, err = strconv.ParseUint(v, 10, 64)
	case "x":
		x.X, err = strconv.ParseFloat(v, 64)
	case "by":
		x.By, err = time.ParseDuration(v)
	case "at", "from":
		x.At, err = time.ParseDuration(v)
	case "for":
		x.For, err = time.ParseDuration(v)
	case "way":
		x.Way = v
	case "why":
		x.Why = v
	default:
		x.Memory, err = strconv.ParseBool(v)
	}
	return err
}

// ParseFault reads one expression.
func ParseFault(s string) (Fault, error) {
	x := Fault{Thread: -1}
	bad := func(why string, a ...any) (Fault, error) {
		return Fault{}, fmt.Errorf("%w: %q: %s", ErrFault, s, fmt.Sprintf(why, a...))
	}
	name, rest, ok := strings.Cut(strings.TrimSpace(s), "(")
	args, ok2 := strings.CutSuffix(rest, ")")
	if !ok || !ok2 {
		return bad("write it as name(parameter=value,...)")
	}
	k := slices.Index(faultNames[1:], strings.TrimSpace(name)) + 1
	if k == 0 {
		return bad("no such fault; there are %s", strings.Join(faultNames[1:], ", "))
	}
	x.Kind = FaultKind(k)
	params := strings.Fields(faultParams[k])
	var given []string
	for _, a := range strings.Split(args, ",") {
		if strings.TrimSpace(a) == "" {
			continue
		}
		key, v, _ := strings.Cut(a, "=")
		key = strings.TrimSpace(key)
		if !slices.Contains(params, key) && !slices.Contains(params, key+"?") {
			return bad("%s has no parameter %q; it has %s", name, key, faultParams[k])
		}
		if slices.Contains(given, key) {
			return bad("parameter %s twice", key)
		}
		given = append(given, key)
		if err := x.setParam(key, strings.TrimSpace(v)); err != nil {
			return bad("parameter %s: %v", key, err)
		}
	}
	for _, p := range params {
		if !strings.HasSuffix(p, "?") && !slices.Contains(given, p) {
			return bad("parameter %s is missing", p)
		}
	}
	if err := x.validate(1 << 12); err != nil {
		return Fault{}, err
	}
	return x, nil
}

// ParseFaults reads expressions separated by semicolons or white space.
func ParseFaults(s string) ([]Fault, error) {
	var out []Fault
	for _, e := range strings.FieldsFunc(s, func(r rune) bool {
		return r == ';' || r == ' ' || r == '\n' || r == '\t'
	}) {
		x, err := ParseFault(e)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// maxComputes bounds the compute blades of faults.
const maxComputes = 1 << 10

// maxFaultTime keeps sums of times in picoseconds far from overflow.
const maxFaultTime = 24 * time.Hour

func (x *Fault) validate(blades int) error {
	bad := func(why string) error { return fmt.Errorf("%w: %v: %s", ErrFault, *x, why) }
	if x.Kind == FaultNone || x.Kind >= faultKinds {
		return bad("not a fault")
	}
	has := func(p string) bool {
		ps := strings.Fields(faultParams[x.Kind])
		return slices.Contains(ps, p) || slices.Contains(ps, p+"?")
	}
	switch {
	case has("thread") && x.Kind != FaultPartition && x.Thread < 0:
		return bad("thread is negative")
	case has("blade") && (x.Blade < 0 || x.Blade >= blades):
		return bad("no such blade")
	case has("compute") && (x.Compute < 0 || x.Compute > maxComputes || x.Compute == 0 && x.Kind != FaultCatalog &&
		x.Kind != FaultPartition):
		return bad("compute blades are counted from 1")
	case x.Kind == FaultPause && x.For == 0:
		return bad("it ends after a time")
	case x.Kind == FaultStop && (x.Verb == 0) == (x.At == 0):
		return bad("give either verb, from 1, or at")
	case has("verb") && x.Kind != FaultStop && x.Verb == 0:
		return bad("verbs are counted from 1")
	case x.Kind == FaultSlow && !(x.X >= 1 && x.X <= 1e6):
		return bad("x must be from 1 to 1e6")
	case x.Kind == FaultClock && !(x.X >= 0.5 && x.X <= 2):
		return bad("x must be from 0.5 to 2")
	case !slices.Contains(ways, x.Way):
		return bad("way is there or back")
	case has("why") && !slices.Contains(Whys, x.Why):
		return bad("why is one of " + strings.Join(Whys, ", "))
	}
	for _, t := range []time.Duration{x.By, x.At, x.For} {
		if t < 0 || t > maxFaultTime {
			return bad("times are from 0 to 24h")
		}
	}
	return nil
}
