package seeds

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/zap"

	"txnode/memory/layout"
)

// TestDamageCore: a warning that names damage is kept, the first one, and no other is.
func TestDamageCore(t *testing.T) {
	b := &bench{}
	found := &b.damage
	l := zap.New(damageCore{b}).With(zap.Int("blade", 1))
	l.Warn("slow", zap.Error(errors.New("no answer")))
	l.Info("damaged", zap.Error(layout.ErrCorrupt))
	if e := found.Load(); e != nil {
		t.Fatalf("kept: %v", *e)
	}
	l.Error("first", zap.Int("table", 2), zap.Error(fmt.Errorf("index: %w", layout.ErrCorrupt)))
	l.Warn("second", zap.Error(layout.ErrCorrupt))
	e := found.Load()
	if e == nil || !errors.Is(*e, layout.ErrCorrupt) {
		t.Fatal("damage was not kept")
	}
	if want := "the database says that something is damaged: first: index: " +
		layout.ErrCorrupt.Error(); (*e).Error() != want {
		t.Errorf("%q instead of %q", (*e).Error(), want)
	}
}
