package check

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"txnode/history"
)

// TestTranscripts runs the histories of testdata: one transaction per line,
//
//	T<id> <start> <end> ok|unknown <operation>...
//
// with the operations r(key)=version, absent(key)=version, w(key)=prev->version and
// d(key)=prev->version, or with range[from,to)=first..end or descending[from,to)=first..end, which
// may end in ",cut" and make operations first to end-1 the answer of a range read (the place of a
// key is then its name), or for "lists" append(key)=element and r(key)=[1,2,3]. Options:
// serializable, from-empty, max=<n>, elle. Rewrite with -rewrite.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			o := Options{KeyName: keyName}
			if d.HasArg("serializable") {
				o.Level = Serializable
			}
			o.FromEmpty = d.HasArg("from-empty")
			d.MaybeScanArgs(t, "max", &o.MaxViolations)
			var elle strings.Builder
			switch d.Cmd {
			case "check":
				txns := parseHistory(t, d.Input)
				if d.HasArg("elle") {
					if err := WriteElle(&elle, txns); err != nil {
						t.Fatal(err)
					}
					return elle.String()
				}
				return Check(txns, o).String()
			case "lists":
				txns := parseLists(t, d.Input)
				if d.HasArg("elle") {
					if err := WriteElleLists(&elle, txns); err != nil {
						t.Fatal(err)
					}
					return elle.String()
				}
				return CheckLists(txns, o).String()
			default:
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
				return ""
			}
		})
	})
}

// keyOf and keyName turn names of up to 8 letters into keys and back.
func keyOf(name string) (k history.Key) {
	for _, c := range []byte(name) {
		k = k<<8 | history.Key(c)
	}
	return k
}

func keyName(k history.Key) string {
	s := ""
	for ; k > 0; k >>= 8 {
		s = string([]byte{byte(k)}) + s
	}
	return s
}

func parseHistory(t testing.TB, text string) []history.Txn {
	t.Helper()
	var txns []history.Txn
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := parseLine(t, line)
		x := history.Txn{ID: f.id, Start: f.start, End: f.end, Outcome: f.outcome}
		for _, p := range f.ops {
			if p.name == "range" || p.name == "descending" {
				x.Ranges = append(x.Ranges, parseRange(t, p))
				continue
			}
			op := history.Op{Key: keyOf(p.key)}
			prev, next, chained := strings.Cut(p.arg, "->")
			if chained {
				op.Prev, op.Version = history.Version(number(t, prev)), history.Version(number(t, next))
			} else {
				op.Version = history.Version(number(t, p.arg))
			}
			kind, ok := map[string]history.Kind{
				"r": history.Read, "absent": history.ReadAbsent, "w": history.Write, "d": history.Delete,
			}[p.name]
			if !ok || chained != isWrite(kind) {
				t.Fatalf("cannot read operation %s(%s)=%s", p.name, p.key, p.arg)
			}
			op.Kind = kind
			x.Ops = append(x.Ops, op)
		}
		txns = append(txns, x)
	}
	if strings.Contains(text, "[") {
		setPositions(txns)
	}
	return txns
}

func parseRange(t testing.TB, p parsedOp) (r history.Range) {
	t.Helper()
	from, to, ok1 := strings.Cut(p.key, ",")
	arg, cut := strings.CutSuffix(p.arg, ",cut")
	first, end, ok2 := strings.Cut(arg, "..")
	if !ok1 || !ok2 {
		t.Fatalf("cannot read range [%s)=%s", p.key, p.arg)
	}
	r = history.Range{
		From: history.Position(from), To: history.Position(to), Descending: p.name == "descending",
		Cut: cut, First: int(number(t, first)),
	}
	r.Len = int(number(t, end)) - r.First
	return r
}

func parseLists(t testing.TB, text string) []ListTxn {
	t.Helper()
	var txns []ListTxn
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := parseLine(t, line)
		x := ListTxn{ID: f.id, Start: f.start, End: f.end, Outcome: f.outcome}
		for _, p := range f.ops {
			op := ListOp{Key: keyOf(p.key)}
			if p.name == "append" {
				op.Append = number(t, p.arg)
			} else {
				for _, e := range strings.FieldsFunc(p.arg, func(r rune) bool {
					return strings.ContainsRune("[],", r)
				}) {
					op.List = append(op.List, number(t, e))
				}
			}
			x.Ops = append(x.Ops, op)
		}
		txns = append(txns, x)
	}
	return txns
}

type parsedTxn struct {
	id         uint64
	start, end int64
	outcome    history.Outcome
	ops        []parsedOp
}

type parsedOp struct{ name, key, arg string }

func parseLine(t testing.TB, line string) (x parsedTxn) {
	t.Helper()
	f := strings.Fields(line)
	if len(f) < 4 || f[0][0] != 'T' {
		t.Fatalf("cannot read transaction %q", line)
	}
	x.id = number(t, f[0][1:])
	x.start, x.end = int64(number(t, f[1])), int64(number(t, f[2]))
	x.outcome = history.Unknown
	switch f[3] {
	case "ok":
		x.outcome = history.Committed
	case "failed":
		x.outcome = history.Failed
	}
	for _, s := range f[4:] {
		at := strings.IndexAny(s, "([")
		ok1 := at >= 0
		name, rest := s[:max(at, 0)], s[at+1:]
		key, arg, ok2 := strings.Cut(rest, ")=")
		if !ok1 || !ok2 {
			t.Fatalf("cannot read operation %q", s)
		}
		x.ops = append(x.ops, parsedOp{name, key, arg})
	}
	return x
}

func number(t testing.TB, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func formatHistory(txns []history.Txn) string {
	var b strings.Builder
	for i := range txns {
		keys := []history.Key{}
		for _, op := range txns[i].Ops {
			keys = append(keys, op.Key)
		}
		fmt.Fprintf(&b, "T%d %s\n", txns[i].ID, formatTxn(&txns[i], keyName, keys))
	}
	return b.String()
}
