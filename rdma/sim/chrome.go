package sim

import (
	"bufio"
	"fmt"
	"io"

	"txnode/rdma"
)

// Span is the life of one verb. Times are picoseconds.
type Span struct {
	Thread, Coro int // Coro -1: posted outside Thread.Run
	Blade        rdma.BladeID
	Op           rdma.Op
	Status       rdma.Status
	Off          uint64
	Len          uint32
	Result       uint64
	Posted       int64 // its doorbell
	Effect       int64 // 0: had none
	Completed    int64 // at the device
	Reaped       int64 // by the thread
}

// Recording collects the verbs of a run for WriteChrome.
type Recording struct {
	// Max is how many to keep, the first ones; 0: a million.
	Max   int
	Spans []Span
	// Dropped is how many came after that.
	Dropped int
	tpb     int
}

func (r *Recording) add(f *Fabric, g *group, now int64) {
	limit := r.Max
	if limit == 0 {
		limit = 1 << 20
	}
	if r.tpb = f.opt.ThreadsPerBlade; r.tpb == 0 {
		r.tpb = maxThreads
	}
	for i := range g.verbs {
		if len(r.Spans) >= limit {
			r.Dropped++
			continue
		}
		v := &g.verbs[i]
		w := &v.wr
		r.Spans = append(r.Spans, Span{
			Thread: g.p.index, Coro: g.coro, Blade: w.Blade, Op: w.Op, Status: w.Status, Off: w.Off, Len: w.Len,
			Result: w.Result, Posted: g.post, Effect: v.eff, Completed: g.done, Reaped: now,
		})
	}
}

// WriteChrome writes the recording in the Chrome trace format, for
// chrome://tracing or Perfetto: a process per compute blade, a track per
// coroutine, an asynchronous slice per verb with its effect as an instant.
func (r *Recording) WriteChrome(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprint(out, `{"displayTimeUnit":"ns","traceEvents":[`)
	type track struct{ pid, tid int }
	seen := map[track]bool{}
	pids := map[int]bool{}
	comma := "\n"
	for i := range r.Spans {
		s := &r.Spans[i]
		t := track{s.Thread / max(r.tpb, 1), s.Thread%max(r.tpb, 1)*128 + s.Coro + 1}
		if !pids[t.pid] {
			pids[t.pid] = true
			fmt.Fprintf(out,
				"%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"compute blade %d\"}}",
				comma, t.pid, t.pid)
			comma = ",\n"
		}
		if !seen[t] {
			seen[t] = true
			name := fmt.Sprintf("thread %d coroutine %d", s.Thread, s.Coro)
			if s.Coro < 0 {
				name = fmt.Sprintf("thread %d", s.Thread)
			}
			fmt.Fprintf(out, "%s{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":%q}}",
				comma, t.pid, t.tid, name)
			fmt.Fprintf(out,
				",\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
				t.pid, t.tid, t.tid)
		}
		id := fmt.Sprintf("\"cat\":\"verb\",\"id\":%d,\"pid\":%d,\"tid\":%d,\"name\":\"%v b%d\"",
			i, t.pid, t.tid, s.Op, s.Blade)
		fmt.Fprintf(out,
			",\n{\"ph\":\"b\",\"ts\":%s,%s,\"args\":{\"offset\":\"%#x\",\"bytes\":%d,\"status\":%q,"+
				"\"result\":\"%#x\",\"completed_us\":%s}}",
			micros(s.Posted), id, s.Off, s.Len, s.Status.String(), s.Result, micros(s.Completed))
		if s.Effect > 0 && s.Effect <= s.Reaped {
			fmt.Fprintf(out, ",\n{\"ph\":\"n\",\"ts\":%s,%s,\"args\":{\"step\":\"effect\"}}", micros(s.Effect), id)
		}
		fmt.Fprintf(out, ",\n{\"ph\":\"e\",\"ts\":%s,%s}", micros(max(s.Reaped, s.Posted)), id)
	}
	fmt.Fprintf(out, "\n],\"otherData\":{\"dropped\":%d}}\n", r.Dropped)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("sim: writing trace: %w", err)
	}
	return nil
}

// micros prints picoseconds as microseconds, exactly.
func micros(t int64) string { return fmt.Sprintf("%d.%06d", t/1_000_000, t%1_000_000) }
