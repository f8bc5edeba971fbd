package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"txnode/benchmarks/runner"
	"txnode/benchmarks/workload"
	"txnode/txn"
	"txnode/verify"
)

// Exit codes; see the documentation of the program.
const (
	ExitOK           = 0
	ExitFailure      = 1
	ExitUsage        = 2
	ExitVerification = 3
	ExitInterrupted  = 130
)

// usageError is a fault in what the user asked for.
type usageError struct {
	cause error
	help  string // the command whose help shows how to ask
}

func (e *usageError) Error() string {
	if e.help == "" {
		return e.cause.Error()
	}
	return fmt.Sprintf("%v; see: %s --help", e.cause, e.help)
}

func (e *usageError) Unwrap() error { return e.cause }

// usagef returns a usageError.
func usagef(format string, args ...any) error {
	return &usageError{cause: fmt.Errorf(format, args...)}
}

// failf returns an error that is nobody's fault in particular.
func failf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// errInterrupted ends a command that was interrupted after it has printed what it had.
var errInterrupted = errors.New("interrupted")

// exitCode classifies an error.
func exitCode(err error) int {
	var (
		usage   *usageError
		options *workload.OptionsError
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, runner.ErrVerification), errors.Is(err, errViolation):
		return ExitVerification
	case errors.As(err, &usage), errors.As(err, &options), errors.Is(err, txn.ErrOptions),
		errors.Is(err, verify.ErrNoBlade):
		return ExitUsage
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return ExitFailure
}

// optionFlags are the flags of the options that errors of the engine, of the workloads and of the
// simulations speak of.
var optionFlags = map[string]string{
	"Accounts": "accounts", "Arena": "arena", "Backups": "replicas", "BladeSize": "blade-size", "Blades": "blades",
	"ChangeNs": "change",
	"Compute":  "compute", "Coroutines": "coroutines", "Depth": "depth", "Drawn": "drawn", "Duration": "duration",
	"Idle": "idle", "Keys": "keys",
	"LatencySample": "latency-sample", "MinThreads": "min-threads", "PerDoorbell": "per-doorbell", "Rate": "rate",
	"Replicas": "replicas",
	"RunNs":    "duration", "Runs": "runs", "SegmentSize": "segment-size", "Size": "size",
	"Subscribers": "subscribers", "Theta": "zipf",
	"Threads": "threads", "Txns": "txns", "VerifyWindow": "verify-window", "WarmNs": "warmup", "Warmup": "warmup",
}

// flagOf is the flag of an option in a command; nil: it has none.
func flagOf(cmd *cobra.Command, option string) *pflag.Flag {
	if option == "Rows" { // of whatever the workload has
		return cmp.Or(cmd.Flags().Lookup("accounts"), cmd.Flags().Lookup("subscribers"), cmd.Flags().Lookup("records"))
	}
	return cmd.Flags().Lookup(optionFlags[option])
}

// word is what may be the name of an option, between spaces and punctuation.
var word = regexp.MustCompile(`(^|[ (])([A-Z][A-Za-z]+)(\)?(?:[ ,;:]|$))`)

// inFlags says in the flags of a command what an error says in options. What the user has typed, as
// the name of a directory, stays as it is.
func inFlags(cmd *cobra.Command, text string) string {
	var typed []string
	keep := func(v string) {
		if strings.Contains(v, " ") {
			text = strings.ReplaceAll(text, v, fmt.Sprintf("\x00%d\x00", len(typed)))
			typed = append(typed, v)
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) { keep(f.Value.String()) })
	for _, v := range cmd.Flags().Args() {
		keep(v)
	}
	text = optionsInFlags(cmd, text)
	for i := len(typed) - 1; i >= 0; i-- {
		text = strings.ReplaceAll(text, fmt.Sprintf("\x00%d\x00", i), typed[i])
	}
	return text
}

func optionsInFlags(cmd *cobra.Command, text string) string {
	return word.ReplaceAllStringFunc(text, func(s string) string {
		m := word.FindStringSubmatch(s)
		if f := flagOf(cmd, m[2]); f != nil {
			return m[1] + "--" + f.Name + m[3]
		}
		return s
	})
}

// oneLine makes an error a single line: what went wrong comes first in a message of several lines,
// so the rest is cut off after a while. It has nothing that a terminal takes for a command, as
// texts of servers may.
func oneLine(err error) string {
	const most = 600
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	s := strings.Join(lines, "; ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + " ..."
	}
	return string(plain([]byte(s)))
}
