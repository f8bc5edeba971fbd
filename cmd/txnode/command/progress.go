package command

import (
	"fmt"
	"strings"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"txnode/benchmarks/runner"
)

// progress shows how far a benchmark is, on one line of a terminal, which is
// gone when it is closed. The zero value shows nothing.
type progress struct {
	bars *mpb.Progress

	mu   sync.Mutex // guards what follows
	bar  *mpb.Bar
	last runner.Progress
}

// barSteps is the length of a bar; units are scaled to it.
const barSteps = 1000

func newProgress(w *World) *progress {
	if !w.StderrTerminal {
		return &progress{}
	}
	p := &progress{}
	p.bars = mpb.New(mpb.WithOutput(w.errScreen), mpb.WithWidth(40), mpb.WithAutoRefresh())
	p.bar = p.bars.New(barSteps,
		mpb.BarStyle().Lbound("").Filler("━").Tip("━").Padding("─").Rbound(""),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(besideBar(func() string { return p.text(headline) })),
		mpb.AppendDecorators(besideBar(func() string { return p.text(figures) })),
	)
	return p
}

// besideBar is a text beside a bar: one line, which a terminal takes for nothing else.
func besideBar(text func() string) decor.Decorator {
	return decor.Any(func(decor.Statistics) string {
		return string(plain([]byte(strings.ReplaceAll(text(), "\n", " "))))
	})
}

// callback returns what the runner calls; nil if nothing is shown.
func (p *progress) callback() func(runner.Progress) {
	if p.bars == nil {
		return nil
	}
	return func(now runner.Progress) {
		p.mu.Lock()
		p.last = now
		p.mu.Unlock()
		done := int64(0)
		if now.Total > 0 {
			done = now.Done * (barSteps - 1) / now.Total // never complete: the bar serves all stages
		}
		p.bar.SetCurrent(done)
	}
}

// close removes the line.
func (p *progress) close() {
	if p.bars == nil {
		return
	}
	p.bar.Abort(true)
	p.bars.Wait()
}

func (p *progress) text(of func(runner.Progress) string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return of(p.last)
}

// headline is what stands before the bar.
func headline(p runner.Progress) string {
	run := ""
	if p.Runs > 1 && p.Run > 0 {
		run = fmt.Sprintf("run %d of %d: ", p.Run, p.Runs)
	}
	return fmt.Sprintf("%-28s ", run+p.Stage.String())
}

// figures is what stands behind it.
func figures(p runner.Progress) string {
	if p.PerSecond == 0 {
		return ""
	}
	if p.PerSecond >= 1e6 {
		return fmt.Sprintf(" %.2f M transactions/s", p.PerSecond/1e6)
	}
	return fmt.Sprintf(" %.0f k transactions/s", p.PerSecond/1e3)
}
