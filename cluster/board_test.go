package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"txnode/txn"
)

func posted(t testing.TB, r ProcessReport) []byte {
	t.Helper()
	p, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// all are the reports that a question is answered with.
func (b *board) all(t testing.TB, now time.Time) []ProcessReport {
	t.Helper()
	p, err := b.reply(now, func() Report { return Report{} })
	if err != nil {
		t.Fatal(err)
	}
	r, err := decodeReport("here", p)
	if err != nil {
		t.Fatal(err)
	}
	return r.Processes
}

// TestBoard: a process has one report, which is forgotten when it ends or is silent; neither many
// nor long ones fill the memory.
func TestBoard(t *testing.T) {
	var b board
	now := time.Unix(1e9, 0)
	put := func(r ProcessReport) {
		t.Helper()
		if err := b.put(posted(t, r), now); err != nil {
			t.Fatal(err)
		}
	}
	put(ProcessReport{Life: 1, Process: 7, At: 1})
	put(ProcessReport{Life: 2, Process: 3, At: 1, Age: time.Hour})
	now = now.Add(10 * time.Second)
	put(ProcessReport{Life: 1, Process: 7, At: 2, Time: now.Add(-time.Hour), Ahead: 5})
	if all := b.all(t, now); len(all) != 2 || all[0].Ahead != 0 || all[1].Ahead != -time.Hour || all[0].Process != 3 ||
		all[0].Age != 10*time.Second || all[1].At != 2 || all[1].Age != 0 {
		t.Errorf("%+v", all)
	}
	now = now.Add(postLasts - 10*time.Second + 1)
	if all := b.all(t, now); len(all) != 1 || all[0].Process != 7 {
		t.Errorf("%+v", all)
	}
	put(ProcessReport{Life: 1, Closed: true})
	put(ProcessReport{Life: 1, Process: 7, At: 3}) // which comes late
	if all := b.all(t, now); all != nil {
		t.Errorf("%+v", all)
	}
	now = now.Add(postLasts + 1)
	for i := range uint64(maxPosts) {
		put(ProcessReport{Life: i + 1})
	}
	if err := b.put(posted(t, ProcessReport{Life: maxPosts + 1}), now); err == nil ||
		!strings.Contains(err.Error(), "1024 processes") {
		t.Errorf("%v", err)
	}
	put(ProcessReport{Life: maxPosts, At: 5}) // one that is known
	if err := b.put(posted(t, ProcessReport{Host: strings.Repeat("x", maxPost)}), now); err == nil ||
		!strings.Contains(err.Error(), "65536 bytes are possible") {
		t.Errorf("%v", err)
	}
	now = now.Add(postLasts + 1)
	put(ProcessReport{Life: maxPosts + 1})
}

// TestBoardIsBounded: few bytes do not become many, all reports together have some megabytes, and
// many questions at a time have one answer.
func TestBoardIsBounded(t *testing.T) {
	var b board
	now := time.Unix(1e9, 0)
	bomb := []byte(`{"life":1,"metrics":{"Tables":[` + strings.Repeat("{},", 20000) + `{}]}}`)
	if err := b.put(bomb, now); err == nil || b.size != 0 {
		t.Errorf("20,001 tables in %d bytes are taken: %v", len(bomb), err)
	}
	wide := []byte(`{"life":1,"metrics":{"Tables":[` + strings.Repeat("{},", ReportedTables) + `{}]}}`)
	if err := b.put(wide, now); err != nil {
		t.Errorf("%d tables: %v", ReportedTables+1, err)
	}
	var refused error
	n := uint64(2)
	for ; refused == nil && n <= maxPosts; n++ {
		refused = b.put(posted(t, ProcessReport{Life: n, Host: strings.Repeat("x", maxPost-2000)}), now)
	}
	if refused == nil || b.size > maxBoard || b.size < maxBoard-maxPost {
		t.Errorf("%d reports of %d bytes: %v", n, b.size, refused)
	}
	ask := func(now time.Time) []byte {
		t.Helper()
		p, err := b.reply(now, func() Report { return Report{} })
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, second, later := ask(now), ask(now.Add(replyLasts/2)), ask(now.Add(2*replyLasts))
	if &first[0] != &second[0] || &first[0] == &later[0] || len(first) > maxBoard+1<<20 {
		t.Errorf("replies of %d bytes: the same at once: %v, later: %v", len(first), &first[0] == &second[0],
			&first[0] == &later[0])
	}
	if r, err := decodeReport("here", first); err != nil || len(r.Processes) < maxBoard/maxPost {
		t.Errorf("%v", err)
	}
	b.forget(now.Add(postLasts + 1))
	if b.size != 0 {
		t.Errorf("%d bytes of reports that are forgotten", b.size)
	}
}

// TestPostFits: what a process with many tables says is not too long for a daemon.
func TestPostFits(t *testing.T) {
	var m txn.Metrics
	for k := range m.Latency {
		for i := range m.Latency[k].Buckets {
			m.Latency[k].Buckets[i] = 1 << 50
		}
	}
	for i := range uint64(1000) {
		m.Tables = append(m.Tables, txn.TableMetrics{
			Table: fmt.Sprintf("%s-%04d", strings.Repeat("t", 200), i),
			TableCounts: txn.TableCounts{
				Reads: 1<<50 + i, Updates: 1 << 50, Inserts: 1 << 50, Deletes: 1 << 50, Conflicts: 1 << 50,
			},
		})
	}
	m.Tables = busiest(m.Tables)
	if n := len(m.Tables); n != ReportedTables || !strings.HasSuffix(m.Tables[0].Table, "-0872") ||
		!strings.HasSuffix(m.Tables[n-1].Table, "-0999") {
		t.Errorf("%d tables from %s to %s", n, m.Tables[0].Table, m.Tables[n-1].Table)
	}
	if p := posted(t, ProcessReport{Metrics: m}); len(p) > maxPost {
		t.Errorf("%d bytes", len(p))
	}
}

// FuzzReporter: no request harms a reporter, and each report that it answers with can be read.
func FuzzReporter(f *testing.F) {
	f.Add(posted(f, ProcessReport{Life: 1, Process: 2, Host: "h"}))
	f.Add([]byte(`{"life":1,"metrics":{"Tables":[{"Table":"t","Reads":1}],"Latency":[{"Buckets":[1,2,3]}]}}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, request []byte) {
		r := NewReporter(func() Report { return Report{} })
		reply, err := r.Answer(t.Context(), request)
		if len(request) > 0 && len(reply) > 0 {
			t.Errorf("%q has the reply %q", request, reply)
		}
		p, e := r.Answer(t.Context(), nil)
		if e != nil {
			t.Fatal(e)
		}
		x, e := decodeReport("here", p)
		if e != nil || err != nil && len(x.Processes) > 0 {
			t.Errorf("%q, %v: %+v, %v", request, err, x, e)
		}
	})
}
