package seeds

import (
	"errors"
	"fmt"

	"go.uber.org/zap/zapcore"

	"txnode/memory/layout"
)

// damageCore is a zapcore.Core that keeps the first error of a database's log which says that
// something is damaged. Nothing is, in a simulation, and a recovery that takes something for that
// goes on without what it could not read. It also counts what several processes do for each other.
type damageCore struct{ b *bench }

func (damageCore) Enabled(l zapcore.Level) bool        { return l >= zapcore.InfoLevel }
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
		if e.Level < zapcore.WarnLevel {
			break
		}
		if err, ok := f.Interface.(error); ok && errors.Is(err, layout.ErrCorrupt) {
			err = fmt.Errorf("the database says that something is damaged: %s: %w", e.Message, err)
			c.b.damage.CompareAndSwap(nil, &err)
		}
	}
	switch e.Message {
	case saysEnded:
		c.b.cov.Ended++
	case saysRejoined:
		c.b.cov.Rejoined++
	}
	return nil
}

// Messages of package txn that are counted.
const (
	saysEnded    = "processes have closed the database, or have died, and what they had has no owner"
	saysRejoined = "a worker has rejoined"
)
