package txn

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// SlogLogger makes a logger for Options.Logger that writes to l, with levels, groups and attributes
// of the same names:
//
//	db, err := txn.Open(ctx, txn.Options{Logger: txn.SlogLogger(slog.Default())})
//
// The handler of l decides which levels are enabled, and may be called by several goroutines at
// once. Nil: a logger of nothing.
func SlogLogger(l *slog.Logger) *zap.Logger {
	if l == nil {
		return zap.NewNop()
	}
	return zap.New(&slogCore{handler: l.Handler()}, zap.AddCaller())
}

// slogCore is a zapcore.Core over a slog.Handler.
type slogCore struct {
	handler slog.Handler
}

// slogLevel is a level of zap's as one of slog's, in which they are four apart.
func slogLevel(l zapcore.Level) slog.Level { return 4 * slog.Level(l) }

// Enabled implements zapcore.LevelEnabler.
func (c *slogCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l))
}

// With implements zapcore.Core.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	h := c.handler
	for len(fields) > 0 {
		n := slices.IndexFunc(fields, isNamespace)
		if n < 0 {
			n = len(fields)
		}
		if n > 0 {
			h = h.WithAttrs(slogAttrs(fields[:n]))
		}
		if n < len(fields) {
			h = h.WithGroup(fields[n].Key)
			n++
		}
		fields = fields[n:]
	}
	return &slogCore{handler: h}
}

// Check implements zapcore.Core.
func (c *slogCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, e.Caller.PC)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(slogAttrs(fields)...)
	if e.Stack != "" {
		r.AddAttrs(slog.String("stacktrace", e.Stack))
	}
	return c.handler.Handle(context.Background(), r)
}

// Sync implements zapcore.Core: a slog.Handler keeps nothing back.
func (c *slogCore) Sync() error { return nil }

func isNamespace(f zapcore.Field) bool { return f.Type == zapcore.NamespaceType }

// slogAttrs are fields as attributes, in their order: those behind a namespace are in a group.
func slogAttrs(fields []zapcore.Field) (attrs []slog.Attr) {
	for i := range fields {
		f := &fields[i]
		switch f.Type {
		case zapcore.NamespaceType:
			return append(attrs, slog.Attr{Key: f.Key, Value: slog.GroupValue(slogAttrs(fields[i+1:])...)})
		case zapcore.SkipType:
		case zapcore.InlineMarshalerType:
			attrs = append(attrs, inlined(*f)...)
		default:
			attrs = append(attrs, slog.Attr{Key: f.Key, Value: slogValue(*f)})
		}
	}
	return attrs
}

// slogValue is the value of a field with a key of its own.
func slogValue(f zapcore.Field) slog.Value {
	switch f.Type {
	case zapcore.StringType:
		return slog.StringValue(f.String)
	case zapcore.BoolType:
		return slog.BoolValue(f.Integer == 1)
	case zapcore.DurationType:
		return slog.DurationValue(time.Duration(f.Integer))
	case zapcore.Int64Type, zapcore.Int32Type, zapcore.Int16Type, zapcore.Int8Type:
		return slog.Int64Value(f.Integer)
	case zapcore.Uint64Type, zapcore.Uint32Type, zapcore.Uint16Type, zapcore.Uint8Type, zapcore.UintptrType:
		return slog.Uint64Value(uint64(f.Integer))
	case zapcore.ErrorType, zapcore.ReflectType:
		return slog.AnyValue(f.Interface)
	case zapcore.StringerType:
		return slog.StringValue(text(f.Interface.(fmt.Stringer)))
	}
	// The rest, by zap's own words of what is in it.
	m := zapcore.NewMapObjectEncoder()
	f.AddTo(m)
	return slog.AnyValue(m.Fields[f.Key])
}

// text is what a Stringer says, or that it has panicked: a nil pointer may.
func text(s fmt.Stringer) (t string) {
	defer func() {
		if p := recover(); p != nil {
			t = fmt.Sprintf("%T: String has panicked: %v", s, p)
		}
	}()
	return s.String()
}

// inlined are the fields of an object that has no key, sorted.
func inlined(f zapcore.Field) (attrs []slog.Attr) {
	m := zapcore.NewMapObjectEncoder()
	f.AddTo(m)
	for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
		attrs = append(attrs, slog.Any(key, m.Fields[key]))
	}
	return attrs
}
