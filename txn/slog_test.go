package txn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"txnode/rdma"
	"txnode/txn"
)

// logged is what a JSON handler has written, a line each, without times.
func logged(t *testing.T, b *bytes.Buffer) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		delete(m, "time")
		lines = append(lines, m)
	}
	b.Reset()
	return lines
}

// twoFields is an object of zap's, with a key or inlined.
type twoFields struct{}

func (twoFields) MarshalLogObject(e zapcore.ObjectEncoder) error {
	e.AddInt("b", 2)
	e.AddString("a", "one")
	return nil
}

// absentStringer panics when it is asked.
type absentStringer struct{ name string }

func (s *absentStringer) String() string { return s.name }

// TestSlogLogger: levels, fields of every kind, namespaces and With arrive at a slog.Handler
// as what they were.
func TestSlogLogger(t *testing.T) {
	var b bytes.Buffer
	level := new(slog.LevelVar)
	l := txn.SlogLogger(slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: level})).With("db", "main"))
	type m = map[string]any
	for _, c := range []struct {
		what string
		log  func()
		want []map[string]any
	}{
		{"levels", func() { l.Debug("no"); l.Info("i"); l.Warn("w"); l.Error("e"); l.DPanic("d") }, []map[string]any{
			{"level": "INFO", "msg": "i", "db": "main"}, {"level": "WARN", "msg": "w", "db": "main"},
			{"level": "ERROR", "msg": "e", "db": "main"}, {"level": "ERROR+4", "msg": "d", "db": "main"},
		}},
		{"fields", func() {
			l.Info("f", zap.String("s", "x"), zap.Bool("t", true), zap.Bool("f", false), zap.Int("i", -1),
				zap.Uint8("u", 255), zap.Uint64("max", math.MaxUint64), zap.Float64("pi", 3.5),
				zap.Duration("d", time.Second), zap.Error(errors.New("bad")), zap.Any("any", []int{1, 2}), zap.Skip(),
				zap.ByteString("bytes", []byte("hi")), zap.Strings("list", []string{"p", "q"}),
				zap.Stringer("stringer", time.Minute), zap.Stringer("nil", (*absentStringer)(nil)),
				zap.Object("object", twoFields{}), zap.Inline(twoFields{}), zap.Time("at", time.Unix(1, 0).UTC()))
		}, []map[string]any{{
			"level": "INFO", "msg": "f", "db": "main", "s": "x", "t": true, "f": false, "i": -1.0, "u": 255.0,
			"max": float64(math.MaxUint64), "pi": 3.5, "d": 1e9, "error": "bad",
			"any": []any{1.0, 2.0}, "bytes": "hi", "list": []any{"p", "q"}, "stringer": "1m0s",
			"nil": "*txn_test.absentStringer: String has panicked: runtime error: invalid memory address or nil " +
				"pointer dereference",
			"object": m{"a": "one", "b": 2.0}, "a": "one", "b": 2.0, "at": "1970-01-01T00:00:01Z",
		}}},
		{"namespace", func() {
			l.Info("n", zap.Int("out", 1), zap.Namespace("g"), zap.Int("in", 2), zap.Namespace("h"), zap.Int("deep", 3))
		}, []map[string]any{
			{"level": "INFO", "msg": "n", "db": "main", "out": 1.0, "g": m{"in": 2.0, "h": m{"deep": 3.0}}},
		}},
		{"with", func() {
			w := l.Named("x").With(zap.Int("a", 1), zap.Namespace("g"), zap.Int("b", 2), zap.Namespace("h"))
			w.With(zap.Int("c", 3)).Info("w", zap.Int("d", 4))
			l.Info("as before")
		}, []map[string]any{
			{
				"level": "INFO", "msg": "w", "db": "main", "a": 1.0,
				"g": m{"b": 2.0, "h": m{"c": 3.0, "d": 4.0, "logger": "x"}},
			}, {"level": "INFO", "msg": "as before", "db": "main"},
		}},
		{
			"another level",
			func() { level.Set(slog.LevelDebug); l.Debug("yes"); level.Set(slog.LevelError); l.Warn("no") },
			[]map[string]any{{"level": "DEBUG", "msg": "yes", "db": "main"}},
		},
	} {
		c.log()
		if got := logged(t, &b); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.what, got, c.want)
		}
	}
	txn.SlogLogger(nil).Error("to nobody")
	if err := l.Sync(); err != nil {
		t.Error(err)
	}
}

// TestSlogSource: the source of a line is where it was logged.
func TestSlogSource(t *testing.T) {
	var b bytes.Buffer
	txn.SlogLogger(slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{AddSource: true}))).Info("here")
	source, _ := logged(t, &b)[0]["source"].(map[string]any)
	if name, _ := source["function"].(string); !strings.HasSuffix(name, ".TestSlogSource") {
		t.Errorf("source %v", source)
	}
}

// TestDatabaseLogsToSlog: what a database tells of a lost blade arrives, with its figures.
func TestDatabaseLogsToSlog(t *testing.T) {
	var b bytes.Buffer
	o := tiny()
	o.Logger = txn.SlogLogger(slog.New(slog.NewJSONHandler(&b, nil)))
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	if err := stopper(t, db).StopBlade(rdma.BladeID(1)); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, 1, val(1)) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(context.Background()); err != nil { // nobody writes any more
		t.Fatal(err)
	}
	for _, m := range logged(t, &b) {
		if blade, ok := m["blade"].(float64); ok && blade == 1 && m["level"] == "ERROR" && m["cause"] != "" {
			return
		}
	}
	t.Errorf("no line tells of blade 1")
}

// gated is a handler of a log that takes no line until a channel is closed.
type gated struct {
	slog.Handler
	open chan struct{}
}

// Handle implements slog.Handler.
func (g gated) Handle(ctx context.Context, r slog.Record) error {
	<-g.open
	return g.Handler.Handle(ctx, r)
}

// TestLogThatBlocks: transactions, and what replaces a lost blade, go on while the log takes no
// line.
func TestLogThatBlocks(t *testing.T) {
	var b bytes.Buffer
	open := make(chan struct{})
	o := tiny()
	o.Logger = txn.SlogLogger(slog.New(gated{slog.NewJSONHandler(&b, nil), open}))
	db := mustOpen(t, o)
	tab := table(t, db, "t")
	if err := stopper(t, db).StopBlade(rdma.BladeID(1)); err != nil {
		t.Fatal(err)
	}
	for k := range uint64(20) {
		if err := db.Update(t.Context(), func(tx *txn.Tx) error { return tab.Put(tx, k, val(1)) }); err != nil {
			t.Fatal(err)
		}
	}
	close(open)
	if err := db.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "declared dead") {
		t.Errorf("the log, when it can be written: %s", b.String())
	}
}

// TestModesOfDirectory: a database in a directory is for its user alone, also if it was not before,
// which the log says once.
func TestModesOfDirectory(t *testing.T) {
	o := tiny()
	o.Dir = filepath.Join(t.TempDir(), "db")
	for round, told := range []int{0, 1, 0} {
		var b bytes.Buffer
		o.Logger = txn.SlogLogger(slog.New(slog.NewJSONHandler(&b, nil)))
		close1(t, mustOpen(t, o))
		if n := strings.Count(b.String(), "have none any more"); n != told {
			t.Errorf("round %d: told %d times, not %d: %s", round, n, told, b.String())
		}
		if err := filepath.WalkDir(o.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if st, err := e.Info(); err != nil || st.Mode().Perm() != want {
				t.Errorf("round %d: %s has mode %v: %v", round, path, st.Mode(), err)
			}
			if round == 0 {
				return os.Chmod(path, want|0o044)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
