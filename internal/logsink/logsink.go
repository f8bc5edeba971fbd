package logsink

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Bounds of a Sink.
const (
	PerSecond = 10  // lines of a kind: of a level and a message
	Waiting   = 256 // lines in the queue
	maxKinds  = 256 // kinds that are counted apart
)

// LeftOut is the message of the line that tells how many lines of a kind were left out:
// fields "lines" and "of".
const LeftOut = "lines of the log were left out: there were too many, or they could not be written"

// Sink takes the lines of a log for a core. Its methods are safe for concurrent use.
//
// It has a goroutine only while there is something to write, or to tell. A core that never returns
// keeps that goroutine, and nothing else.
type Sink struct {
	core zapcore.Core // which tells what was left out

	mu      sync.Mutex
	queue   []line
	kinds   map[kind]*count
	untold  int           // kinds of which lines were left out
	failing bool          // the last line could not be written: what was left out is told when one can
	hurry   int           // calls of Flush that wait: what was left out is told at once
	done    chan struct{} // closed when the goroutine ends; nil: there is none
	wake    chan struct{} // has a value when the goroutine is to look again
}

type kind struct {
	level   zapcore.Level
	message string
}

// count is of a kind.
type count struct {
	since time.Time // the beginning of a second
	lines int       // taken in it
	left  int       // left out, and not told yet
}

// line waits to be written.
type line struct {
	core   zapcore.Core
	entry  zapcore.Entry
	fields []zapcore.Field
}

// New makes a logger that writes to what l writes to, and its sink. Fields must not change once
// they were logged. A line above zap.ErrorLevel is waited for, for a second at most.
func New(l *zap.Logger) (*zap.Logger, *Sink) {
	s := &Sink{kinds: map[kind]*count{}, wake: make(chan struct{}, 1)}
	l = l.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		s.core = c
		return &core{c, s}
	}))
	return l, s
}

// Flush waits until all lines are written, and what was left out is told, for at most a duration.
// It reports whether they are.
func (s *Sink) Flush(most time.Duration) bool {
	s.mu.Lock()
	done := s.done
	if done == nil {
		s.mu.Unlock()
		return true
	}
	s.hurry++
	s.again()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.hurry--
		s.mu.Unlock()
	}()
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// again has the goroutine look again; s.mu is held.
func (s *Sink) again() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// put takes a line, or leaves it out.
func (s *Sink) put(x line) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of(kind{x.entry.Level, x.entry.Message})
	if d := now.Sub(c.since); d < 0 || d >= time.Second {
		c.since, c.lines = now, 0
	}
	if c.lines >= PerSecond || len(s.queue) >= Waiting {
		s.leave(c, 1)
	} else {
		c.lines++
		x.fields = settled(x.fields)
		s.queue = append(s.queue, x)
	}
	if s.done == nil {
		s.done = make(chan struct{})
		go s.run()
		return
	}
	s.again()
}

// leave counts lines that were left out; s.mu is held.
func (s *Sink) leave(c *count, n int) {
	if c.left == 0 {
		s.untold++
	}
	c.left += n
}

// of is the count of a kind; s.mu is held.
func (s *Sink) of(k kind) *count {
	c := s.kinds[k]
	if c == nil && len(s.kinds) >= maxKinds {
		k = kind{k.level, "other messages"}
		c = s.kinds[k]
	}
	if c == nil {
		c = &count{}
		s.kinds[k] = c
	}
	return c
}

// run writes until there is nothing to write and nothing to tell.
func (s *Sink) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		x, wait, ok := s.next(time.Now())
		switch {
		case ok:
			s.mu.Unlock()
			written := x.write()
			s.mu.Lock()
			s.failing = !written
			if !written {
				s.lost(x)
			}
		case wait > 0:
			s.mu.Unlock()
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-s.wake:
				t.Stop()
			}
			s.mu.Lock()
		default:
			close(s.done)
			s.done = nil
			return
		}
	}
}

// next is what to write now: a line that tells of others, or the oldest of the queue. If there is
// nothing, it tells for how long there is none, 0: until a line comes. s.mu is held.
func (s *Sink) next(now time.Time) (x line, wait time.Duration, ok bool) {
	if s.untold > 0 && !s.failing {
		for k, c := range s.kinds {
			if c.left == 0 {
				continue
			}
			rest := c.since.Add(time.Second).Sub(now)
			if rest <= 0 || rest > time.Second || s.hurry > 0 && len(s.queue) == 0 {
				return s.tell(k, c, now), 0, true
			}
			if wait == 0 || rest < wait {
				wait = rest
			}
		}
	}
	if len(s.queue) == 0 {
		return line{}, wait, false
	}
	x = s.queue[0]
	s.queue[0] = line{}
	s.queue = s.queue[1:]
	return x, 0, true
}

// tell is the line that tells what was left out of a kind; s.mu is held.
func (s *Sink) tell(k kind, c *count, now time.Time) line {
	n := c.left
	c.left, c.since, c.lines = 0, now, 0
	s.untold--
	return line{
		s.core, zapcore.Entry{Level: k.level, Time: now, Message: LeftOut},
		[]zapcore.Field{zap.Int("lines", n), zap.String("of", k.message)},
	}
}

// lost counts a line that could not be written; s.mu is held.
func (s *Sink) lost(x line) {
	k, n := kind{x.entry.Level, x.entry.Message}, 1
	if k.message == LeftOut { // it told of others
		k.message, n = x.fields[1].String, int(x.fields[0].Integer)
	}
	s.leave(s.of(k), n)
}

// write reports whether a line was written.
func (x *line) write() bool {
	e := x.core.Check(x.entry, nil) // which may write to some of several cores only
	if e == nil {
		return true
	}
	var failed failure
	e.ErrorOutput = &failed
	e.Write(x.fields...)
	return !bool(failed)
}

// failure is told of an error of a core.
type failure bool

// Write implements io.Writer.
func (f *failure) Write(p []byte) (int, error) {
	*f = true
	return len(p), nil
}

// Sync implements zapcore.WriteSyncer.
func (*failure) Sync() error { return nil }

// core is a zapcore.Core that puts lines for another one into a sink.
type core struct {
	zapcore.Core

	sink *Sink
}

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.Core.With(settled(fields)), c.sink}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.sink.put(line{c.Core, e, fields})
	if e.Level > zapcore.ErrorLevel { // the process is about to end
		c.sink.Flush(time.Second)
	}
	return nil
}

// Sync implements zapcore.Core.
func (c *core) Sync() error {
	c.sink.Flush(time.Second)
	return nil
}

// settled is a copy of fields that says what they say now.
func settled(fields []zapcore.Field) []zapcore.Field {
	fields = slices.Clone(fields)
	for i := range fields {
		f := &fields[i]
		switch f.Type {
		case zapcore.StringerType:
			*f = zap.String(f.Key, text(f.Interface.(fmt.Stringer)))
		case zapcore.BinaryType, zapcore.ByteStringType:
			if p, ok := f.Interface.([]byte); ok {
				f.Interface = slices.Clone(p)
			}
		}
	}
	return fields
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
