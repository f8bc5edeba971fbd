package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"txnode/benchmarks/report"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/tatp"
	"txnode/benchmarks/tpcc"
	"txnode/benchmarks/workload"
	"txnode/benchmarks/ycsb"
)

// workloadOptions are the parameters of one workload.
type workloadOptions interface {
	// AddFlags registers the parameters. small asks for defaults with few records.
	AddFlags(cmd *cobra.Command, small bool)
	// Driver returns the workload, or an error that lists every fault.
	Driver() (workload.Driver, error)
}

// workloads are the benchmarks that there are.
var workloads = []struct {
	name, short string
	options     func() workloadOptions
}{
	{
		"smallbank", "SmallBank: six bank transactions over savings and checking accounts, some of them hot",
		func() workloadOptions { return new(smallbankOptions) },
	},
	{
		"tatp", "TATP: seven telecom transactions, most of which read one row, some of which find none",
		func() workloadOptions { return new(tatpOptions) },
	},
	{"ycsb", "YCSB: single operations and scans on one table, popular records among them", func() workloadOptions {
		return new(ycsbOptions)
	}},
	{
		"tpcc", "TPC-C: five transactions of a wholesale supplier, with ranges and up to hundreds of rows",
		func() workloadOptions { return new(tpccOptions) },
	},
}

// loadingFlags are the parameters of workloads that only loading uses, and that cannot be told from
// what was loaded with another.
var loadingFlags = []string{"initial-balance"}

type smallbankOptions struct {
	smallbank.Options
	mix percentages
}

// smallbankFlags are the flags of the fields of smallbank.Options, for its errors.
var smallbankFlags = []string{
	"HotAccounts", "--hot-accounts", "HotProbability", "--hot-probability", "RecordPadding", "--padding",
	"InitialBalance", "--initial-balance", "DepositAmount", "--deposit", "PaymentAmount", "--payment",
	"SavingsAmount", "--savings", "CheckAmount", "--check", "CheckPenalty", "--penalty", "Accounts",
	"--accounts", "Mix", "--mix",
}

// AddFlags implements workloadOptions.
func (o *smallbankOptions) AddFlags(cmd *cobra.Command, small bool) {
	o.Options = smallbank.DefaultOptions()
	if small {
		o.Accounts = 1000
	}
	o.mix = o.Options.Mix[:]
	fs := cmd.Flags()
	fs.IntVar(&o.Accounts, "accounts", o.Accounts, "number of customers, each with a savings and a checking account")
	fs.IntVar(&o.HotAccounts, "hot-accounts", o.HotAccounts,
		"number of customers that hot transactions draw from; 0, the default: 4 % of --accounts, as in FORD")
	fs.Float64Var(&o.HotProbability, "hot-probability", o.HotProbability,
		"probability from 0 to 1 that a transaction draws its customers from the hot ones")
	fs.Var(&o.mix, "mix",
		"percentages, by commas: Amalgamate, Balance, DepositChecking,\nSendPayment, TransactSaving, WriteCheck")
	fs.IntVar(&o.RecordPadding, "padding", o.RecordPadding,
		"bytes after the 8-byte balance of each record; by default 0")
	fs.StringVar(&o.InitialBalance, "initial-balance", o.InitialBalance,
		"money in each account when it is loaded, decimal; of no effect on those that are there already")
	fs.StringVar(&o.DepositAmount, "deposit", o.DepositAmount, "money that DepositChecking adds")
	fs.StringVar(&o.PaymentAmount, "payment", o.PaymentAmount, "money that SendPayment moves")
	fs.StringVar(&o.SavingsAmount, "savings", o.SavingsAmount, "money that TransactSaving adds; negative to withdraw")
	fs.StringVar(&o.CheckAmount, "check", o.CheckAmount, "money that WriteCheck subtracts")
	fs.StringVar(&o.CheckPenalty, "penalty", o.CheckPenalty,
		"money that WriteCheck subtracts in addition when the check is not covered")
}

// Driver implements workloadOptions.
func (o *smallbankOptions) Driver() (workload.Driver, error) {
	if len(o.mix) != len(o.Options.Mix) {
		return nil, usagef("--mix has %d percentages; SmallBank has %d transaction types",
			len(o.mix), len(o.Options.Mix))
	}
	copy(o.Options.Mix[:], o.mix)
	d, err := smallbank.New(o.Options)
	if o.HotAccounts == 0 {
		o.HotAccounts = smallbank.HotOf(o.Accounts) // the record of the run has what was used
	}
	return orUsage(d, err, smallbankFlags)
}

type tatpOptions struct {
	tatp.Options
	mix percentages
}

// tatpFlags are the flags of the fields of tatp.Options.
var tatpFlags = []string{"Subscribers", "--subscribers", "NonUniformA", "--non-uniform-a", "Mix", "--mix"}

// AddFlags implements workloadOptions.
func (o *tatpOptions) AddFlags(cmd *cobra.Command, small bool) {
	o.Options = tatp.DefaultOptions()
	if small {
		o.Subscribers = 1000
	}
	o.mix = o.Options.Mix[:]
	fs := cmd.Flags()
	fs.IntVar(&o.Subscribers, "subscribers", o.Subscribers, "number of subscribers")
	fs.IntVar(&o.NonUniformA, "non-uniform-a", o.NonUniformA,
		"constant A of TATP's non-uniform draw of subscribers: 0 draws uniformly,\n"+
			"-1 is what TATP prescribes for their number")
	fs.Var(&o.mix, "mix",
		"percentages, by commas: GetSubscriberData, GetNewDestination, GetAccessData,\n"+
			"UpdateSubscriberData, UpdateLocation, InsertCallForwarding, DeleteCallForwarding")
	fs.BoolVar(&o.FORDRules, "ford-rules", o.FORDRules,
		"GetNewDestination and InsertCallForwarding as FORD's program has them, instead of TATP's rules")
}

// Driver implements workloadOptions.
func (o *tatpOptions) Driver() (workload.Driver, error) {
	if len(o.mix) != len(o.Options.Mix) {
		return nil, usagef("--mix has %d percentages; TATP has %d transaction types", len(o.mix), len(o.Options.Mix))
	}
	copy(o.Options.Mix[:], o.mix)
	d, err := tatp.New(o.Options)
	return orUsage(d, err, tatpFlags)
}

type ycsbOptions struct{ ycsb.Options }

// ycsbFlags are the flags of the fields of ycsb.Options.
var ycsbFlags = []string{
	"Workload", "--workload", "Table", "--table", "ScanLength", "--scan-length", "Records", "--records", "ValueSize",
	"--value-size", "KeyType", "--key-type", "Keys", "--keys",
	"Distribution", "--distribution", "Theta", "--theta",
}

// AddFlags implements workloadOptions.
func (o *ycsbOptions) AddFlags(cmd *cobra.Command, small bool) {
	o.Options = ycsb.DefaultOptions()
	if small {
		o.Records = 1000
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Workload, "workload", o.Workload, "`letter` of the core workload: "+
		strings.Join(ycsb.Workloads(ycsb.Ordered), ", ")+"; go doc ./benchmarks/ycsb lists them")
	fs.StringVar(&o.Table, "table", o.Table,
		"`kind` of the table: hash, or ordered; by default ordered for workload e, else hash")
	fs.IntVar(&o.ScanLength, "scan-length", o.ScanLength,
		"most records that a scan of workload e reads; it draws from 1 to so many")
	fs.IntVar(&o.Records, "records", o.Records, "number of records that are loaded")
	fs.IntVar(&o.ValueSize, "value-size", o.ValueSize, "bytes of a value")
	fs.StringVar(&o.Keys, "keys", o.Keys,
		"what the `keys` of the records are: random (spread over 64 bits) or dense (0, 1, 2, ...)")
	fs.StringVar(&o.KeyType, "key-type", o.KeyType, "`type` of the keys: uint64, or text (24 bytes)")
	fs.StringVar(&o.Distribution, "distribution", o.Distribution,
		"how records are drawn: "+strings.Join(ycsb.Distributions, ", ")+
			";\nby default latest for workload d, else scrambled")
	fs.Float64Var(&o.Theta, "theta", o.Theta, "skew of the distribution, from 0 (none) to below 1")
	completeWith(cmd, "workload", ycsb.Workloads(ycsb.Ordered)...)
	completeWith(cmd, "table", ycsb.Hash, ycsb.Ordered)
	completeWith(cmd, "keys", ycsb.Random, ycsb.Dense)
	completeWith(cmd, "key-type", ycsb.Uint64, ycsb.Text)
	completeWith(cmd, "distribution", ycsb.Distributions...)
}

// Driver implements workloadOptions.
func (o *ycsbOptions) Driver() (workload.Driver, error) {
	d, err := ycsb.New(o.Options)
	return orUsage(d, err, ycsbFlags)
}

type tpccOptions struct {
	tpcc.Options
	mix   percentages
	ford  bool
	given func(flag string) bool
}

// tpccFlags are the flags of the fields of tpcc.Options.
var tpccFlags = []string{
	"Warehouses", "--warehouses", "Customers", "--customers", "Items", "--items", "Mix", "--mix",
	"Rollback", "--rollback",
	"RemoteItems", "--remote-items", "RemotePayments", "--remote-payments", "Pace", "--pace",
}

// AddFlags implements workloadOptions.
func (o *tpccOptions) AddFlags(cmd *cobra.Command, small bool) {
	o.Options = tpcc.DefaultOptions()
	if small {
		o.Customers, o.Items = 300, 1000
	}
	o.mix = o.Options.Mix[:]
	fs := cmd.Flags()
	o.given = fs.Changed
	fs.IntVar(&o.Warehouses, "warehouses", o.Warehouses, "number of warehouses")
	fs.IntVar(&o.Customers, "customers", o.Customers,
		"number of customers of each of the ten districts of a warehouse; 3000 in TPC-C")
	fs.IntVar(&o.Items, "items", o.Items, "number of items; 100000 in TPC-C")
	fs.BoolVar(&o.ford, "ford-sizes", false,
		"the sizes of FORD's evaluation, for those that are not given: 8 warehouses,\n"+
			"300 customers a district, 10000 items")
	fs.Var(&o.mix, "mix", "percentages, by commas: NewOrder, Payment, OrderStatus, Delivery, StockLevel")
	fs.Float64Var(&o.Rollback, "rollback", o.Rollback,
		"percentage of NewOrders that roll back, because an item does not exist")
	fs.Float64Var(&o.RemoteItems, "remote-items", o.RemoteItems,
		"percentage of order lines that another warehouse supplies")
	fs.Float64Var(&o.RemotePayments, "remote-payments", o.RemotePayments,
		"percentage of Payments by customers of another warehouse")
	fs.Float64Var(&o.Pace, "pace", o.Pace, "keying and think times, as a multiple of TPC-C's (default: 0, none)")
}

// Driver implements workloadOptions.
func (o *tpccOptions) Driver() (workload.Driver, error) {
	if len(o.mix) != len(o.Options.Mix) {
		return nil, usagef("--mix has %d percentages; TPC-C has %d transaction types", len(o.mix), len(o.Options.Mix))
	}
	copy(o.Options.Mix[:], o.mix)
	if o.ford {
		ford := tpcc.FORDOptions()
		for flag, field := range map[string][2]*int{
			"warehouses": {&o.Warehouses, &ford.Warehouses}, "customers": {&o.Customers, &ford.Customers},
			"items": {&o.Items, &ford.Items},
		} {
			if !o.given(flag) {
				*field[0] = *field[1]
			}
		}
	}
	d, err := tpcc.New(o.Options)
	return orUsage(d, err, tpccFlags)
}

// orUsage returns the driver, or its fault in the words of the flags.
func orUsage(d workload.Driver, err error, flags []string) (workload.Driver, error) {
	var faults *workload.OptionsError
	if errors.As(err, &faults) {
		return nil, &usageError{cause: errors.New(fieldFlags(faults.Faults, flags))}
	}
	return d, err
}

// fieldFlags joins faults, each of which begins with a field, with the flags of
// the fields instead.
func fieldFlags(faults, flags []string) string {
	out := make([]string, len(faults))
	for i, f := range faults {
		for j := 0; j < len(flags); j += 2 {
			if rest, ok := strings.CutPrefix(f, flags[j]); ok {
				f = flags[j+1] + rest
				break
			}
		}
		out[i] = f
	}
	return strings.Join(out, "; ")
}

// percentages is a flag: numbers by commas.
type percentages []float64

// String implements pflag.Value.
func (p *percentages) String() string {
	var out []string
	for _, x := range *p {
		out = append(out, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strings.Join(out, ",")
}

// Type implements pflag.Value.
func (p *percentages) Type() string { return "percentages" }

// Set implements pflag.Value.
func (p *percentages) Set(s string) error {
	var out percentages
	for f := range strings.SplitSeq(s, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(f), 64)
		if err != nil {
			return fmt.Errorf("%q is no number", f)
		}
		out = append(out, x)
	}
	*p = out
	return nil
}

// ofWorkload makes cmd, which has all of its other flags, the one for a workload, by its
// number in workloads: with its name and its parameters as flags, of which small asks for
// few records. run gets them when validate has found no fault.
func ofWorkload(cmd *cobra.Command, i int, small bool, validate func(*cobra.Command) error,
	run func(cmd *cobra.Command, driver workload.Driver, parameters []report.Parameter) error) *cobra.Command {
	options := workloads[i].options()
	names := addWorkloadFlags(cmd, options, small)
	cmd.Use, cmd.Short = workloads[i].name, workloads[i].short
	cmd.Args, cmd.ValidArgsFunction = noArguments, cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := validate(cmd); err != nil {
			return err
		}
		driver, err := options.Driver()
		if err != nil {
			return err
		}
		return run(cmd, driver, parametersOf(cmd.Flags(), names))
	}
	return cmd
}

// parametersOf returns the values of flags for the record, by name.
func parametersOf(fs *pflag.FlagSet, names map[string]bool) []report.Parameter {
	out := []report.Parameter{}
	fs.VisitAll(func(f *pflag.Flag) {
		if names[f.Name] {
			out = append(out, report.Parameter{Name: f.Name, Value: f.Value.String(), Default: !f.Changed ||
				f.Value.String() == f.DefValue})
		}
	})
	return out
}

// addWorkloadFlags registers a workload's flags and returns their names.
func addWorkloadFlags(cmd *cobra.Command, o workloadOptions, small bool) map[string]bool {
	before := make(map[string]bool)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	o.AddFlags(cmd, small)
	names := make(map[string]bool)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] {
			names[f.Name] = true
		}
	})
	return names
}
