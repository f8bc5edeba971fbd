package command

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"txnode/benchmarks/report"
	"txnode/benchmarks/workload"
	"txnode/memory/layout"
	"txnode/occ"
	"txnode/rdma"
	"txnode/txn"
)

// StoreOptions are the flags that say which store a workload runs on.
type StoreOptions struct {
	Policy      string // ford or default
	Techniques  rdma.Techniques
	Index       string // of hash tables: of indexes
	Replicas    int    // backups of each record
	Blades      int
	BladeSize   int64 // bytes; 0: the engine's default, or what Dir has
	SegmentSize int64 // likewise
	Arena       int   // bytes; 0: the engine's default
	Dir         string
	Cluster     string // address of its catalog
	Fabric      string // of a benchmark: to blades that it makes; empty: inproc
	Access      accessOptions
	Durability  txn.Durability
	ReadBackups bool // what is only read
	HugePages   bool // explicit ones
	Seed        uint64
	// Geometry: Replicas and Blades were asked for, and a database in Dir must have
	// them. Without, it is taken as it is.
	Geometry bool
	sized    bool // some of that, or sizes, were asked for

	techniques           techniqueList
	size, segment, arena byteSize
}

var (
	policies     = []string{"default", "ford"}
	indexes      = []string{"slots", "leaves"}
	durabilities = []string{txn.DurabilityProcess.String(), txn.DurabilityPower.String()}
)

// indexFlag registers the choice of the index of new hash tables.
func indexFlag(cmd *cobra.Command, index *string) {
	cmd.Flags().StringVar(index, "index", indexes[0],
		"`index` of hash tables that are made: slots, as RACE's, or leaves, which commits change")
	completeWith(cmd, "index", indexes...)
}

// AddFlags registers the flags.
func (o *StoreOptions) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.Policy, "policy", "default",
		"commit `policy`: default (fewest verbs) or ford (FORD's verbs, with its errors corrected)")
	o.techniques = slices.Clone(techniqueNames)
	fs.Var(&o.techniques, "techniques", "SMART's techniques to use, by commas: "+strings.Join(techniqueNames, ", ")+
		";\nor all or none")
	indexFlag(cmd, &o.Index)
	fs.IntVar(&o.Replicas, "replicas", 1, "number of backups of each record: 0, 1 or 2")
	fs.IntVar(&o.Blades, "blades", 2, "number of memory blades, more than --replicas")
	fs.Var(&o.size, "blade-size",
		"size of each blade, such as 4GiB, used as data comes; 0, the default: 16GiB, or what --dir has")
	fs.Var(&o.segment, "segment-size",
		"unit in which blades hand out memory, a power of two from 256KiB to 64MiB;\n"+
			"0, the default: 64MiB, with --dir 8MiB or what is there; less if the blades are small")
	fs.Var(&o.arena, "arena",
		"registered memory of a thread, for the transactions of all its coroutines, from 1MiB to 1GiB;\n"+
			"0, the default: 16MiB")
	fs.StringVar(&o.Dir, "dir", "",
		"`directory` that keeps the blades in files, so that the next run finds its data; by default memory only")
	fs.StringVar(&o.Cluster, "cluster", "",
		"`address` of the catalog of a cluster whose blades keep the data, which other processes may use at the same "+
			"time;\nby default the blades are this process's")
	o.Access.addFlags(cmd)
	fs.Var(&o.Durability, "durability",
		"what a commit in --dir survives: the end of the `process`, however it comes, or the loss of power\n"+
			"(the log is flushed before a commit is acknowledged)")
	fs.BoolVar(&o.ReadBackups, "read-backups", false,
		"read what is only read from the first backup, and validate it at the primary; default: from the primary")
	fs.BoolVar(&o.HugePages, "huge-pages", false,
		"put the blades on explicit huge pages, of which enough for --blades of --blade-size must be reserved;\n"+
			"default: on transparent ones, if the kernel grants them")
	completeWith(cmd, "policy", policies...)
	completeWith(cmd, "durability", durabilities...)
	completeWith(cmd, "techniques", append([]string{"all", "none"}, techniqueNames...)...)
	completeFiles(cmd, "dir", true)
}

// Validate finds every fault, and completes the options.
func (o *StoreOptions) Validate(cmd *cobra.Command) error {
	var faults []string
	if !slices.Contains(policies, o.Policy) {
		faults = append(faults, fmt.Sprintf("--policy is %q; it must be one of %s",
			o.Policy, strings.Join(policies, ", ")))
	}
	if !slices.Contains(indexes, o.Index) {
		faults = append(faults, fmt.Sprintf("--index is %q; it must be one of %s",
			o.Index, strings.Join(indexes, ", ")))
	}
	if o.Replicas < 0 || o.Replicas > 2 {
		faults = append(faults, fmt.Sprintf("--replicas is %d; it must be 0, 1 or 2", o.Replicas))
	}
	if o.Blades < 1 || o.Blades > layout.MaxBlades {
		faults = append(faults, fmt.Sprintf("--blades is %d; it must be from 1 to %d", o.Blades, layout.MaxBlades))
	} else if o.Replicas <= 2 && o.Blades <= o.Replicas {
		faults = append(faults, fmt.Sprintf("--blades is %d; a record and %d backups need %d blades",
			o.Blades, o.Replicas, o.Replicas+1))
	}
	switch {
	case o.Durability == txn.DurabilityPower && o.Dir == "":
		faults = append(faults, "--durability power needs --dir: memory alone survives nothing")
	case o.Durability == txn.DurabilityPower && o.Policy == "ford":
		faults = append(faults, "--durability power needs --policy default")
	}
	faults = append(faults, o.Access.deadlines()...)
	if o.HugePages && o.Dir != "" {
		faults = append(faults, "--huge-pages are for blades in memory, without --dir")
	}
	if o.ReadBackups && o.Replicas == 0 && o.Cluster == "" && (o.Dir == "" || cmd.Flags().Changed("replicas")) {
		faults = append(faults, "--read-backups needs --replicas 1 or 2")
	}
	if o.Cluster != "" {
		for _, f := range []string{"dir", "blades", "replicas", "blade-size", "segment-size", "huge-pages"} {
			if cmd.Flags().Changed(f) {
				faults = append(faults, "--"+f+" is for blades of this process, and not for those of --cluster")
			}
		}
		if o.Durability == txn.DurabilityPower {
			faults = append(faults,
				"--durability power is for --dir: the blades of --cluster keep nothing without power")
		}
	} else if o.Access.given() {
		faults = append(faults, "--secret-file, --server-user, --tls-... and --...-timeout are for --cluster")
	}
	if o.Dir == "" && cmd.Flags().Changed("dir") {
		faults = append(faults, "--dir is empty; name a directory, or leave it out to use memory only")
	}
	if o.size%(64<<10) != 0 || o.size > 64<<40 {
		faults = append(faults, fmt.Sprintf("--blade-size is %s; it must be a multiple of 64KiB, and at most 64TiB",
			o.size.String()))
	}
	if s := o.segment; s != 0 && (s&(s-1) != 0 || s < layout.MinSegmentSize || s > layout.MaxSegmentSize) {
		faults = append(faults, fmt.Sprintf("--segment-size is %s; it must be a power of two from 256KiB to 64MiB",
			s.String()))
	}
	if a := o.arena; a != 0 && (a < 1<<20 || a > 1<<30) {
		faults = append(faults, fmt.Sprintf("--arena is %s; it must be from 1MiB to 1GiB", a.String()))
	}
	if len(faults) > 0 {
		return usagef("%s", strings.Join(faults, "; "))
	}
	o.Arena = int(o.arena)
	o.Techniques = o.techniques.value()
	o.BladeSize, o.SegmentSize = int64(o.size), int64(o.segment)
	o.sized = slices.ContainsFunc([]string{"replicas", "blades", "blade-size", "segment-size"}, cmd.Flags().Changed)
	o.Geometry = o.Dir == "" && o.Cluster == "" || cmd.Flags().Changed("replicas") || cmd.Flags().Changed("blades")
	return nil
}

// describe returns the options as a result keeps them, with the geometry that
// the store has if it says so.
func (o *StoreOptions) describe(s workload.Store, fabric string) report.Store {
	d := report.Store{
		Name:        s.Name(),
		Fabric:      fabric,
		Policy:      o.Policy,
		Techniques:  slices.Clone(o.techniques),
		Replicas:    o.Replicas,
		Blades:      o.Blades,
		BladeBytes:  o.BladeSize,
		Directory:   o.Dir,
		Power:       o.Durability == txn.DurabilityPower,
		ReadBackups: o.ReadBackups,
		HugePages:   o.HugePages,
	}
	if g, ok := geometryOf(s); ok {
		d.Replicas, d.Blades, d.BladeBytes = g.backups, g.blades, g.bladeBytes
		if o.Cluster != "" {
			d.Fabric = cmp.Or(fabricWords[o.Fabric], clusterWords[g.fabric], g.fabric)
		}
	}
	return d
}

// techniqueList is the value of --techniques: names in the order of techniqueNames.
type techniqueList []string

var techniqueNames = report.Techniques

// String implements pflag.Value.
func (t *techniqueList) String() string {
	switch len(*t) {
	case 0:
		return "none"
	case len(techniqueNames):
		return "all"
	}
	return strings.Join(*t, ",")
}

// Type implements pflag.Value.
func (t *techniqueList) Type() string { return "list" }

// Set implements pflag.Value.
func (t *techniqueList) Set(s string) error {
	switch s {
	case "all":
		*t = slices.Clone(techniqueNames)
		return nil
	case "none", "":
		*t = techniqueList{}
		return nil
	}
	wanted := strings.Split(s, ",")
	for i, w := range wanted {
		wanted[i] = strings.TrimSpace(w)
		if !slices.Contains(techniqueNames, wanted[i]) {
			return fmt.Errorf("%q is no technique; there are %s, or all, or none",
				w, strings.Join(techniqueNames, ", "))
		}
	}
	*t = slices.DeleteFunc(slices.Clone(techniqueNames), func(n string) bool { return !slices.Contains(wanted, n) })
	return nil
}

func (t techniqueList) value() rdma.Techniques {
	has := func(n string) bool { return slices.Contains(t, n) }
	return rdma.Techniques{
		Doorbells: has("doorbells"),
		Throttle:  has("throttle"),
		Backoff:   has("backoff"),
		DynLimit:  has("dynlimit"),
		CoroLimit: has("corolimit"),
	}
}

// hasArenaFor refuses more coroutines on a thread than its arena has room for: who finds that out
// when they start has loaded the tables.
func (o *StoreOptions) hasArenaFor(coroutines int) error {
	const most = 1 << 30 // --arena
	arena, least := cmp.Or(o.Arena, rdma.DefaultArena), occ.LeastArena(coroutines)
	switch {
	case least > most:
		each := occ.LeastArena(1) - occ.LeastArena(0)
		return usagef("--coroutines is %d; a thread has room for %d at most, with --arena 1GiB",
			coroutines, (most-occ.LeastArena(0))/each)
	case arena < least:
		return usagef("--arena is %d; %d coroutines on a thread need at least %d: raise --arena, or run fewer "+
			"--coroutines", arena, coroutines, least)
	}
	return nil
}
