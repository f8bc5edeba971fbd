package seeds

import (
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap/zapcore"

	"txnode/memory"
)

// damageCore is a zapcore.Core that keeps the first error of a database's log which says that
// something is damaged. Nothing is, in a simulation, and who takes it for that goes on without what
// he could not read: a recovery, for one.
type damageCore struct{ found *atomic.Pointer[error] }

func (damageCore) Enabled(l zapcore.Level) bool        { return l >= zapcore.WarnLevel }
func (c damageCore) With([]zapcore.Field) zapcore.Core { return c }
func (damageCore) Sync() error                         { return nil }
func (c damageCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c damageCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && errors.Is(err, memory.ErrCorrupt) {
			err = fmt.Errorf("the database says that something is damaged: %s: %w", e.Message, err)
			c.found.CompareAndSwap(nil, &err)
		}
	}
	return nil
}
