package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"txnode/benchmarks/reference"
	"txnode/benchmarks/runner"
	"txnode/benchmarks/smallbank"
	"txnode/benchmarks/workload"
)

// bank is a driver of one process.
func bank(t *testing.T) workload.Bookkeeper {
	t.Helper()
	o := smallbank.DefaultOptions()
	o.Accounts = 50
	d, err := smallbank.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// partner is a member on a goroutine, whose parts are turned into JSON and back.
type partner struct {
	orders chan int
	parts  chan []byte
	ended  chan error
	change func(p *runner.Part)
}

func newPartner(t *testing.T, store workload.Store, cfg runner.Config, change func(p *runner.Part)) *partner {
	p := &partner{orders: make(chan int), parts: make(chan []byte), ended: make(chan error, 1), change: change}
	d := bank(t)
	go func() {
		p.ended <- runner.Member(context.Background(), store, d, cfg, func() (int, bool, error) {
			n, more := <-p.orders
			return n, more, nil
		}, func(part runner.Part) error {
			b, err := json.Marshal(part)
			p.parts <- b
			return err
		})
		close(p.parts)
	}()
	return p
}

// Run implements runner.Partner.
func (p *partner) Run(n int) (part runner.Part, err error) {
	p.orders <- n
	b, ok := <-p.parts
	if !ok {
		return part, errors.New("gone")
	}
	if err = json.Unmarshal(b, &part); err == nil && p.change != nil {
		p.change(&part)
	}
	return part, err
}

// TestJoint: the numbers and latencies of all members are added, and the books are over all. A
// member whose books are not whole, or which has measured something else, is found.
func TestJoint(t *testing.T) {
	cfg := runner.Config{Threads: 1, Coroutines: 2, Txns: 200, Runs: 2, LatencySample: 1}
	for name, x := range map[string]struct {
		change func(p *runner.Part)
		err    error // errAny: some
	}{
		"whole":            {nil, nil},
		"books are short":  {func(p *runner.Part) { p.Books[2]++ }, runner.ErrVerification},
		"no books":         {func(p *runner.Part) { p.Books = nil }, errAny},
		"other types":      {func(p *runner.Part) { p.Types = p.Types[1:] }, errAny},
		"no latencies":     {func(p *runner.Part) { p.Types[0].Latency = nil }, errAny},
		"books get longer": {func(p *runner.Part) { p.Books = append(p.Books, 1) }, errAny},
	} {
		t.Run(name, func(t *testing.T) {
			store := reference.Open(reference.Options{})
			var all []*partner
			res, err := runner.Lead(t.Context(), store, bank(t), cfg, func() (partners []runner.Partner, err error) {
				for i := range 3 {
					c := cfg
					c.Seed = uint64(i) << 32
					var change func(p *runner.Part)
					if i == 1 {
						change = x.change
					}
					p := newPartner(t, store, c, change)
					all, partners = append(all, p), append(partners, p)
				}
				return partners, nil
			})
			for _, p := range all {
				close(p.orders)
				if e := <-p.ended; e != nil {
					t.Error(e)
				}
			}
			if x.err != nil {
				if err == nil || !errors.Is(x.err, errAny) && !errors.Is(err, x.err) {
					t.Errorf("%v, want %v", err, x.err)
				}
				return
			}
			if err != nil || len(res.Runs) != 2 {
				t.Fatalf("%d runs, %v", len(res.Runs), err)
			}
			for _, r := range res.Runs {
				sum := r.Total()
				if n := sum.Ended(); n != 3*200 ||
					sum.Latency.TotalCount() != int64(sum.Outcomes[workload.Committed]) || r.Elapsed <= 0 ||
					len(r.Books.Checks) != 4 {
					t.Errorf("%d transactions, %d latencies, %v, %+v", n, sum.Latency.TotalCount(), r.Elapsed, r.Books)
				}
			}
		})
	}
	if _, err := runner.Lead(t.Context(), reference.Open(reference.Options{}), bank(t),
		runner.Config{Verify: true}, nil); err == nil {
		t.Error("a history of several processes")
	}
}

var errAny = errors.New("some error")
