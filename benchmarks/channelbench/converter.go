package channelbench

import (
	"context"
	"fmt"
	"math"

	"txnode/channel"
	"txnode/rdma"
)

// Variants of the converters' variables.
const (
	convertOurs = "ours, SST and Owned"
	convertLOCO = "LOCO, a copy at each node"
)

// The converters are averaged buck converters with a filter and a load. The controller is of
// proportional and differential parts, whose gains leave a margin up to a period of some 50 us with
// the delay of LOCO's layout. The paper does not give its own constants.
const (
	conversions  = 20
	inputVolts   = 12.0
	targetVolts  = 6.0
	inductance   = 200e-6 // H
	capacity     = 100e-6 // F
	load         = 2.0    // ohm
	proportional = 0.25
	differential = 5e-6 // s

	convertPeriod = 10_000 // ns, of a converter's loop
	convertFor    = 5      // times Duration
	// stableWithin is the deviation, root of the mean square in the second half, up to which an
	// output counts as stable.
	stableWithin = 0.02
)

func converters(*Config) (all []setup) {
	for _, us := range []float64{10, 20, 40, 60, 80, 160} {
		for _, v := range []string{convertOurs, convertLOCO} {
			all = append(all, setup{Point{Variant: v, X: us, XName: "period us"}, convert})
		}
	}
	return all
}

// plant is the state of a converter.
type plant struct{ amperes, volts float64 }

// step goes on for that many ns, in steps of a microsecond at most.
func (x *plant) step(duty float64, ns int64) {
	for ns > 0 {
		dt := min(ns, 1000)
		ns -= dt
		s := float64(dt) * 1e-9
		x.amperes += (duty*inputVolts - x.volts) / inductance * s
		x.volts += (x.amperes - x.volts/load) / capacity * s
	}
}

// wires are the variables between the controller and the converters, as a seat sees them.
type wires interface {
	// volts are those of all converters, and duties sets what they do next.
	volts(s *seat, all *[conversions]float64) error
	duties(s *seat, all *[conversions]float64) error
	// tell sets the volts of converter i, and returns its duty.
	tell(s *seat, i int, volts float64) (duty float64, err error)
}

// convert runs a controller on seat 0 and converters on the others, each on its node.
func convert(ctx context.Context, c *Config, p *Point) error {
	blades := 2
	if p.Variant == convertLOCO {
		blades = conversions + 1
	}
	w, err := c.simulated(shape{nodes: conversions + 1, threads: 1, window: 1, blades: blades, raw: 8 * conversions})
	if err != nil {
		return err
	}
	all := make([]wires, len(w.seats))
	for i, s := range w.seats {
		if p.Variant == convertLOCO {
			o := &copies{w: w}
			s.pushed = append(s.pushed, &o.pushed)
			all[i] = o
		} else if all[i], err = openObjects(w, s); err != nil {
			return w.uncounted(err)
		}
	}
	begin := w.fabric.Now()
	until := begin + convertFor*c.Duration.Nanoseconds()
	out := output{half: (begin + until) / 2}
	err = w.run(ctx, func(ctx context.Context, s *seat) error {
		if s.n == 0 {
			return control(ctx, s, all[0], int64(p.X*1e3), until, &out)
		}
		return converter(ctx, s, all[s.n], until)
	})
	w.fill(p, until-begin, false)
	p.Deviation, p.Peak = math.Sqrt(out.square/max(1, out.n)), out.peak
	return w.uncounted(err)
}

// output is that of all converters, as the controller has seen it.
type output struct {
	half            int64
	square, n, peak float64
}

func (o *output) see(now int64, all *[conversions]float64) {
	sum := 0.0
	for _, v := range all {
		sum += v / (conversions * targetVolts)
	}
	o.peak = max(o.peak, sum)
	if now >= o.half {
		o.square, o.n = o.square+(sum-1)*(sum-1), o.n+1
	}
}

// every calls fn each period, and once more at once if the last call has taken longer.
func every(ctx context.Context, s *seat, period, until int64, fn func() error) error {
	t := s.c.Thread()
	for next := t.Now(); next < until; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		before, begun := *s.c.Count, t.Now()
		if err := fn(); err != nil {
			return err
		}
		if s.n == 0 {
			s.tally.add(s, &before, t.Now()-begun)
		}
		if next += period; next > t.Now() {
			s.c.Sleep(next - t.Now())
		} else {
			next = t.Now()
		}
	}
	return nil
}

func control(ctx context.Context, s *seat, x wires, period, until int64, out *output) error {
	var volts, duties, last [conversions]float64
	for i := range last {
		last[i] = targetVolts
	}
	return every(ctx, s, period, until, func() error {
		if err := x.volts(s, &volts); err != nil {
			return err
		}
		out.see(s.c.Thread().Now(), &volts)
		for i, v := range volts {
			wrong := targetVolts - v
			duty := targetVolts/inputVolts + proportional*wrong + differential*(wrong-last[i])/(float64(period)*1e-9)
			duties[i], last[i] = min(1, max(0, duty)), wrong
		}
		return x.duties(s, &duties)
	})
}

func converter(ctx context.Context, s *seat, x wires, until int64) error {
	var y plant
	duty, last := 0.0, s.c.Thread().Now()
	return every(ctx, s, convertPeriod, until, func() (err error) {
		now := s.c.Thread().Now()
		y.step(duty, now-last)
		last = now
		if math.Abs(y.volts) > 100*inputVolts {
			return fmt.Errorf("%w: a converter gives %v V", errWrong, y.volts)
		}
		duty, err = x.tell(s, s.n-1, y.volts)
		return err
	})
}

// objects are the variables as objects of package channel.
type objects struct {
	all  map[channel.MemberID]int // converters
	rows *channel.SST[float64]
	duty *channel.Owned[[conversions]float64]
}

func openObjects(w *world, s *seat) (wires, error) {
	o := &objects{all: map[channel.MemberID]int{}}
	for _, x := range w.seats[1:] {
		o.all[x.m.ID()] = x.n - 1
	}
	var err error
	if o.rows, err = channel.OpenSST(s.ctx(), s.c, s.m.Scope("power"), "volts", channel.Plain[float64]("volts"),
		conversions+1); err != nil {
		return nil, err
	}
	if o.duty, err = channel.OpenOwned(s.ctx(), s.c, s.m.Scope("power"), "duty",
		channel.Plain[[conversions]float64]("duties")); err != nil {
		return nil, err
	}
	if s.n == 0 {
		err = o.duty.Own(s.ctx(), s.c)
	}
	return o, err
}

func (o *objects) volts(s *seat, all *[conversions]float64) error {
	if err := o.rows.Look(s.c); err != nil {
		return err
	}
	for id, r := range o.rows.Rows() {
		if i, ok := o.all[id]; ok {
			all[i] = r.Value
		}
	}
	return nil
}

func (o *objects) duties(s *seat, all *[conversions]float64) error { return o.duty.Store(s.c, *all) }

func (o *objects) tell(s *seat, i int, volts float64) (float64, error) {
	if err := o.rows.Store(s.c, volts); err != nil {
		return 0, err
	}
	all, _, err := o.duty.Load(s.c)
	return all[i], err
}

// copies are words at the nodes that read them: volts at node 0, the duty of converter i at node
// i+1.
type copies struct {
	w      *world
	pushed rdma.Batch
}

func (o *copies) volts(_ *seat, all *[conversions]float64) error {
	for i := range all {
		all[i] = math.Float64frombits(o.w.peek(o.w.raw(0, uint64(8*i))))
	}
	return nil
}

// push posts what fill appends, when what was pushed before is done.
func (o *copies) push(s *seat, fill func(b *rdma.Batch)) error {
	if err := s.c.Wait(&o.pushed); err != nil {
		return err
	}
	o.pushed.Reset()
	fill(&o.pushed)
	s.c.Post(&o.pushed)
	return nil
}

func (o *copies) duties(s *seat, all *[conversions]float64) error {
	return o.push(s, func(b *rdma.Batch) {
		for i, d := range all {
			s.c.Thread().PutWord(s.word(i), math.Float64bits(d))
			b.Write(o.w.raw(i+1, 0), s.word(i), 8)
		}
	})
}

func (o *copies) tell(s *seat, i int, volts float64) (float64, error) {
	err := o.push(s, func(b *rdma.Batch) {
		s.c.Thread().PutWord(s.word(0), math.Float64bits(volts))
		b.Write(o.w.raw(0, uint64(8*i)), s.word(0), 8)
	})
	return math.Float64frombits(o.w.peek(o.w.raw(s.n, 0))), err
}
