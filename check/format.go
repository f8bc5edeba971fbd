package check

import (
	"fmt"
	"slices"
	"strings"

	"txnode/history"
)

// longTxn is the number of operations beyond which a transaction is printed
// with only those on the keys of the violation.
const longTxn = 12

// formatTxn prints a transaction in the notation of the transcripts in testdata.
func formatTxn(t *history.Txn, name func(history.Key) string, keys []history.Key) string {
	text := formatOps(t, len(t.Ops), keys, func(i int) (history.Key, string) {
		op := t.Ops[i]
		return op.Key, formatOp(op, name(op.Key))
	})
	for i := range t.Ranges {
		text += " " + formatRange(&t.Ranges[i])
	}
	return text
}

// formatRange prints a range with the numbers of the operations that are its answer:
// range[a,c)=0..2.
func formatRange(r *history.Range) string {
	name, cut := "range", ""
	if r.Descending {
		name = "descending"
	}
	if r.Cut {
		cut = ",cut"
	}
	return fmt.Sprintf("%s[%s,%s)=%d..%d%s", name, formatPosition(r.From), formatPosition(r.To),
		r.First, r.First+r.Len, cut)
}

// formatPosition prints a place: letters and digits as such, all else in hexadecimal.
func formatPosition(p history.Position) string {
	for _, b := range []byte(p) {
		if b < '0' || b > 'z' {
			return fmt.Sprintf("0x%x", string(p))
		}
	}
	return string(p)
}

func formatListTxn(t *ListTxn, name func(history.Key) string, keys []history.Key) string {
	bounds := history.Txn{Start: t.Start, End: t.End, Outcome: t.Outcome}
	return formatOps(&bounds, len(t.Ops), keys, func(i int) (history.Key, string) {
		op := t.Ops[i]
		if op.Append != 0 {
			return op.Key, fmt.Sprintf("append(%s)=%d", name(op.Key), op.Append)
		}
		return op.Key, fmt.Sprintf("r(%s)=%s", name(op.Key), formatList(op.List))
	})
}

func formatOps(t *history.Txn, n int, keys []history.Key, op func(i int) (history.Key, string)) string {
	var b strings.Builder
	outcome := "ok"
	switch t.Outcome {
	case history.Committed:
	case history.Failed:
		outcome = "failed"
	default:
		outcome = "unknown"
	}
	fmt.Fprintf(&b, "%d %d %s", t.Start, t.End, outcome)
	hidden := 0
	for i := range n {
		key, text := op(i)
		if n > longTxn && !slices.Contains(keys, key) {
			hidden++
			continue
		}
		b.WriteString(" " + text)
	}
	if hidden > 0 {
		fmt.Fprintf(&b, " (and %d operations on other keys)", hidden)
	}
	return b.String()
}

func formatOp(op history.Op, key string) string {
	switch op.Kind {
	case history.Read:
		return fmt.Sprintf("r(%s)=%d", key, op.Version)
	case history.ReadAbsent:
		return fmt.Sprintf("absent(%s)=%d", key, op.Version)
	case history.Write:
		return fmt.Sprintf("w(%s)=%d->%d", key, op.Prev, op.Version)
	case history.Delete:
		return fmt.Sprintf("d(%s)=%d->%d", key, op.Prev, op.Version)
	default:
		return fmt.Sprintf("kind%d(%s)=%d->%d", op.Kind, key, op.Prev, op.Version)
	}
}

// formatList prints a list, or the end of a long one.
func formatList(list []uint64) string {
	const shown = 16
	skipped := ""
	if n := len(list) - shown; n > 0 {
		skipped, list = fmt.Sprintf("..%d more..,", n), list[n:]
	}
	text := make([]string, len(list))
	for i, e := range list {
		text[i] = fmt.Sprint(e)
	}
	return "[" + skipped + strings.Join(text, ",") + "]"
}
