package tatp

import (
	"encoding/binary"

	"txnode/benchmarks/workload"
)

// populationSeed makes the rows of a subscriber the same in every database.
const populationSeed = 0x7461747001

// population is all rows of one subscriber.
type population struct {
	subscriber subscriberRow
	secondary  secondaryRow
	access     [numKinds]accessRow
	facility   [numKinds]facilityRow
	forwarding [numKinds][numStarts]forwardingRow

	hasAccess     [numKinds]bool
	hasFacility   [numKinds]bool
	hasForwarding [numKinds][numStarts]bool
}

// populate sets p to the rows of subscriber s.
func (p *population) populate(s uint32) {
	*p = population{}
	r := workload.NewRand(populationSeed, uint64(s))

	binary.LittleEndian.PutUint64(p.subscriber[subNumber:], subscriberNumber(s))
	binary.LittleEndian.PutUint32(p.subscriber[subMSC:], r.Bits32())
	p.subscriber.setLocation(r.Bits32())
	binary.LittleEndian.PutUint16(p.subscriber[subBits:], uint16(r.Intn(1<<10)))
	for i := subHex; i < subEnd; i++ {
		p.subscriber[i] = byte(r.Bits32())
	}
	binary.LittleEndian.PutUint32(p.secondary[secSubscriber:], s)

	p.hasAccess = drawKinds(&r)
	p.hasFacility = drawKinds(&r)
	for kind := range numKinds {
		if p.hasAccess[kind] {
			a := &p.access[kind]
			a[aiData1], a[aiData2] = byte(r.Bits32()), byte(r.Bits32())
			fill(a[aiData3:aiEnd], &r, 'A', 26)
		}
		if !p.hasFacility[kind] {
			continue
		}
		f := &p.facility[kind]
		if r.Intn(100) < 85 {
			f[sfActive] = 1
		}
		f[sfError], f[sfDataA] = byte(r.Bits32()), byte(r.Bits32())
		fill(f[sfDataB:sfEnd], &r, 'A', 26)
		for i := range starts {
			if p.hasForwarding[kind][i] = r.Intn(2) == 1; p.hasForwarding[kind][i] {
				p.forwarding[kind][i].draw(&r)
			}
		}
	}
}

// drawKinds draws how many of the four types there are, then which.
func drawKinds(r *workload.Rand) (has [numKinds]bool) {
	for n := 1 + r.Intn(numKinds); n > 0; {
		if kind := r.Intn(numKinds); !has[kind] {
			has[kind] = true
			n--
		}
	}
	return has
}

// draw sets a row of call forwarding.
func (r *forwardingRow) draw(from *workload.Rand) {
	r[cfEnds] = drawHour(from)
	fill(r[cfNumber:cfEnd], from, '0', 10)
}

func drawHour(r *workload.Rand) byte { return byte(1 + r.Intn(numHours)) }

// fill draws characters from base up.
func fill(text []byte, r *workload.Rand, base byte, n uint64) {
	for i := range text {
		text[i] = base + byte((r.Uint64()>>32)*n>>32)
	}
}

// load inserts the rows of subscriber s, and counts them by table.
func (p *population) load(tx workload.Tx, s uint32, rows *[numTables]int) error {
	insert := func(table int, key uint64, value []byte) error {
		rows[table]++
		return tx.Insert(table, key, value)
	}
	if err := insert(Subscriber, subscriberKey(s), p.subscriber[:]); err != nil {
		return err
	}
	if err := insert(Secondary, subscriberNumber(s), p.secondary[:]); err != nil {
		return err
	}
	for i := range numKinds {
		kind := uint64(i + 1)
		if p.hasAccess[i] {
			if err := insert(AccessInfo, accessKey(s, kind), p.access[i][:]); err != nil {
				return err
			}
		}
		if !p.hasFacility[i] {
			continue
		}
		if err := insert(SpecialFacility, facilityKey(s, kind), p.facility[i][:]); err != nil {
			return err
		}
		for j, start := range starts {
			if p.hasForwarding[i][j] {
				if err := insert(CallForwarding, forwardingKey(s, kind, start), p.forwarding[i][j][:]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// stage announces the rows that load will insert.
func (p *population) stage(tx workload.Tx, s uint32) {
	tx.Stage(Subscriber, subscriberKey(s), workload.Update)
	tx.Stage(Secondary, subscriberNumber(s), workload.Update)
	for i := range numKinds {
		kind := uint64(i + 1)
		if p.hasAccess[i] {
			tx.Stage(AccessInfo, accessKey(s, kind), workload.Update)
		}
		if !p.hasFacility[i] {
			continue
		}
		tx.Stage(SpecialFacility, facilityKey(s, kind), workload.Update)
		for j, start := range starts {
			if p.hasForwarding[i][j] {
				tx.Stage(CallForwarding, forwardingKey(s, kind, start), workload.Update)
			}
		}
	}
}
