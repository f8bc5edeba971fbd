package logsink_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"txnode/internal/logsink"
)

// output is what a log is written to. It may block, and it may fail.
type output struct {
	mu    sync.Mutex
	gate  chan struct{} // closed: it takes lines; nil: it always does
	err   error
	lines []map[string]any
}

func (o *output) Write(p []byte) (int, error) {
	if o.gate != nil {
		<-o.gate
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	var m map[string]any
	if err := json.Unmarshal(p, &m); err != nil {
		return 0, err
	}
	o.lines = append(o.lines, m)
	return len(p), nil
}

func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// of counts the lines of a message that were written, and those that the log says were left out.
func (o *output) of(message string) (written, left int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.lines {
		switch {
		case m["msg"] == message:
			written++
		case m["msg"] == logsink.LeftOut && m["of"] == message:
			left += int(m["lines"].(float64))
		}
	}
	return written, left
}

func logTo(o *output) (*zap.Logger, *logsink.Sink) {
	c := zap.NewProductionEncoderConfig()
	return logsink.New(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(c), zapcore.AddSync(o), zap.InfoLevel)))
}

// TestFloodIsCounted: of a kind of lines there are a few in each second, the others are counted,
// and the count is told when the second is over, without another line. Other kinds are as before.
func TestFloodIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		l, _ := logTo(&o)
		for range 1000 {
			l.Warn("flood")
		}
		l.Warn("rare")
		l.Error("flood") // another level is another kind
		l.Debug("never")
		synctest.Wait()
		if n, left := o.of("flood"); n != logsink.PerSecond+1 || left != 0 {
			t.Errorf("%d lines at once, %d told to be left out", n, left)
		}
		if n, _ := o.of("rare"); n != 1 {
			t.Errorf("%d lines of another kind", n)
		}
		time.Sleep(2 * time.Second)
		if n, left := o.of("flood"); n != logsink.PerSecond+1 || left != 1000-logsink.PerSecond {
			t.Errorf("%d lines, %d told to be left out", n, left)
		}
		l.Warn("flood")
		synctest.Wait()
		if n, _ := o.of("flood"); n != logsink.PerSecond+2 {
			t.Errorf("%d lines: the next second has none", n)
		}
	})
}

// TestBlockedOutput: a writer that nobody reads holds up no logging, not even Flush, however long
// it is so. All lines are written or told to be left out once it is read.
func TestBlockedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := output{gate: make(chan struct{})}
		l, sink := logTo(&o)
		const kinds, rounds = 50, 20
		for range rounds {
			for k := range kinds {
				l.Info(fmt.Sprint("kind ", k))
			}
			time.Sleep(time.Second)
		}
		began := time.Now()
		if sink.Flush(3 * time.Second); time.Since(began) != 3*time.Second {
			t.Errorf("flushing what blocks took %v", time.Since(began))
		}
		close(o.gate)
		if !sink.Flush(time.Minute) {
			t.Error("not flushed")
		}
		all, kept := 0, 0
		for k := range kinds {
			n, left := o.of(fmt.Sprint("kind ", k))
			all, kept = all+n+left, kept+n
		}
		if all != kinds*rounds || kept < logsink.Waiting || kept > logsink.Waiting+1 {
			t.Errorf("%d lines of %d are accounted for, %d were kept", all, kinds*rounds, kept)
		}
	})
}

// TestFailingOutput: lines that could not be written are counted, and told with the next one that
// can.
func TestFailingOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := output{err: errors.New("no space left on device")}
		l, sink := logTo(&o)
		for range 3 {
			l.Info("lost")
		}
		sink.Flush(time.Minute)
		time.Sleep(time.Hour) // nothing tries meanwhile: the bubble has no goroutine but this one
		o.fail(nil)
		l.Info("room")
		sink.Flush(time.Minute)
		if n, left := o.of("lost"); n != 0 || left != 3 {
			t.Errorf("%d lines, %d told to be lost", n, left)
		}
		if n, _ := o.of("room"); n != 1 {
			t.Errorf("%d lines when there was room again", n)
		}
	})
}

type named struct{ name string }

func (n *named) String() string { return n.name }

// TestFieldsAreOfTheMoment: a line says what was so when it was logged, however late it is written,
// and a nil Stringer ends nothing.
func TestFieldsAreOfTheMoment(t *testing.T) {
	o := output{gate: make(chan struct{})}
	l, sink := logTo(&o)
	who, key := &named{"before"}, []byte("before")
	l.With(zap.Stringer("with", who)).Info("m", zap.Stringer("who", who), zap.ByteString("key", key),
		zap.Stringer("none", (*named)(nil)))
	who.name = "after"
	copy(key, "after!")
	close(o.gate)
	if !sink.Flush(time.Minute) || len(o.lines) != 1 {
		t.Fatalf("lines: %v", o.lines)
	}
	m := o.lines[0]
	if m["with"] != "before" || m["who"] != "before" || m["key"] != "before" ||
		!strings.Contains(fmt.Sprint(m["none"]), "panicked") {
		t.Errorf("%v", m)
	}
}
