package tatp

import (
	"context"
	"encoding/binary"
	"errors"

	"txnode/benchmarks/workload"
)

// Transaction types, by number.
const (
	GetSubscriberData = iota
	GetNewDestination
	GetAccessData
	UpdateSubscriberData
	UpdateLocation
	InsertCallForwarding
	DeleteCallForwarding
	NumTypes
)

var typeNames = [NumTypes]string{
	"GetSubscriberData", "GetNewDestination", "GetAccessData", "UpdateSubscriberData",
	"UpdateLocation", "InsertCallForwarding", "DeleteCallForwarding",
}

// client is a workload.Client. Its transaction functions are bound once; their
// parameters are fields.
type client struct {
	worker workload.Worker
	driver *Driver // read only
	ledger *ledger
	rng    workload.Rand
	run    [NumTypes]func(workload.Tx) error

	// Parameters of the transaction drawn.
	typ      int
	s        uint32
	kind     uint64 // type of access info or special facility
	starts   int    // index of the start time
	end      byte   // hour
	location uint32
	bit      byte
	data     byte

	change change // of the current attempt

	// Results, and rows to put.
	subscriber subscriberRow
	access     accessRow
	facility   facilityRow
	forwarding forwardingRow
}

func newClient(d *Driver, l *ledger, rng workload.Rand, w workload.Worker) *client {
	c := &client{worker: w, driver: d, ledger: l, rng: rng}
	c.run = [NumTypes]func(workload.Tx) error{
		GetSubscriberData:    c.getSubscriberData,
		GetNewDestination:    c.getNewDestination,
		GetAccessData:        c.getAccessData,
		UpdateSubscriberData: c.updateSubscriberData,
		UpdateLocation:       c.updateLocation,
		InsertCallForwarding: c.insertCallForwarding,
		DeleteCallForwarding: c.deleteCallForwarding,
	}
	return c
}

// Next implements workload.Client.
func (c *client) Next() int {
	c.Draw(c.driver.mix.Draw(&c.rng))
	return c.typ
}

// Draw implements workload.Client.
func (c *client) Draw(typ int) {
	c.typ = typ
	c.s = c.drawSubscriber()
	switch typ {
	case GetNewDestination:
		c.drawForwarding()
		c.end = drawHour(&c.rng)
	case GetAccessData:
		c.kind = uint64(1 + c.rng.Intn(numKinds))
	case UpdateSubscriberData:
		x := c.rng.Uint64()
		c.kind, c.bit, c.data = 1+x>>62, byte(x&1), byte(x>>8)
	case UpdateLocation:
		c.location = c.rng.Bits32()
	case InsertCallForwarding:
		c.drawForwarding()
		c.forwarding.draw(&c.rng)
	case DeleteCallForwarding:
		c.drawForwarding()
	}
}

// drawSubscriber draws with TATP's non-uniform distribution.
func (c *client) drawSubscriber() uint32 {
	n := uint32(c.driver.options.Subscribers)
	s := uint32(c.rng.Intn(int(n))) | c.rng.Bits32()&c.driver.a
	if s >= n { // the OR has left the range
		s %= n
	}
	return s
}

func (c *client) drawForwarding() {
	x := c.rng.Uint64()
	c.kind = 1 + x>>62
	c.starts = int((x & (1<<32 - 1)) * uint64(numStarts) >> 32)
}

// Run implements workload.Client.
func (c *client) Run(ctx context.Context) (workload.Outcome, error) {
	var err error
	c.change = unchanged
	switch c.typ {
	case GetSubscriberData, GetNewDestination, GetAccessData:
		err = c.worker.View(ctx, c.run[c.typ])
	default:
		err = c.worker.Update(ctx, c.run[c.typ])
	}
	switch {
	case err == nil:
		c.ledger.committed[c.change]++
		return workload.Committed, nil
	case errors.Is(err, ErrRowAbsent):
		return workload.RowAbsent, nil
	case errors.Is(err, ErrRowExists):
		return workload.RolledBack, nil
	case errors.Is(err, workload.ErrUncertain):
		c.ledger.uncertain[c.change]++
	}
	return 0, err
}

func (c *client) getSubscriberData(tx workload.Tx) error {
	return need(tx, Subscriber, subscriberKey(c.s), c.subscriber[:])
}

func (c *client) getAccessData(tx workload.Tx) error {
	return want(tx, AccessInfo, accessKey(c.s, c.kind), c.access[:])
}

func (c *client) getNewDestination(tx workload.Tx) error {
	if err := want(tx, SpecialFacility, facilityKey(c.s, c.kind), c.facility[:]); err != nil {
		return err
	}
	if c.facility[sfActive] == 0 {
		return ErrRowAbsent
	}
	earlier := starts[:c.starts+1]
	for _, start := range earlier {
		tx.Stage(CallForwarding, forwardingKey(c.s, c.kind, start), workload.Read)
	}
	found := false
	for _, start := range earlier {
		var row forwardingRow
		switch err := want(tx, CallForwarding, forwardingKey(c.s, c.kind, start), row[:]); {
		case err == nil:
			if row[cfEnds] > c.end {
				c.forwarding, found = row, true
			}
		case !errors.Is(err, ErrRowAbsent) || c.driver.options.FORDRules:
			return err
		}
	}
	if !found {
		return ErrRowAbsent
	}
	return nil
}

func (c *client) updateSubscriberData(tx workload.Tx) error {
	s, f := subscriberKey(c.s), facilityKey(c.s, c.kind)
	tx.Stage(Subscriber, s, workload.Update)
	tx.Stage(SpecialFacility, f, workload.Update)
	if err := need(tx, Subscriber, s, c.subscriber[:]); err != nil {
		return err
	}
	if err := want(tx, SpecialFacility, f, c.facility[:]); err != nil {
		return err
	}
	c.subscriber.setBit1(c.bit)
	c.facility[sfDataA] = c.data
	if err := tx.Put(Subscriber, s, c.subscriber[:]); err != nil {
		return err
	}
	return tx.Put(SpecialFacility, f, c.facility[:])
}

func (c *client) updateLocation(tx workload.Tx) error {
	s, err := c.lookup(tx)
	if err != nil {
		return err
	}
	key := subscriberKey(s)
	tx.Stage(Subscriber, key, workload.Update)
	if err := need(tx, Subscriber, key, c.subscriber[:]); err != nil {
		return err
	}
	c.subscriber.setLocation(c.location)
	return tx.Put(Subscriber, key, c.subscriber[:])
}

func (c *client) insertCallForwarding(tx workload.Tx) error {
	s, err := c.lookup(tx)
	if err != nil {
		return err
	}
	key := facilityKey(s, c.kind)
	tx.Stage(SpecialFacility, key, workload.Read)
	if err := want(tx, SpecialFacility, key, c.facility[:]); err != nil {
		return err
	}
	key = forwardingKey(s, c.kind, starts[c.starts])
	tx.Stage(CallForwarding, key, workload.Update)
	c.change = inserted
	if c.driver.options.FORDRules {
		_, found, err := workload.Find(tx, CallForwarding, key)
		if err != nil {
			return err
		}
		if found {
			c.change = unchanged
		}
		return tx.Put(CallForwarding, key, c.forwarding[:])
	}
	if err := tx.Insert(CallForwarding, key, c.forwarding[:]); err != nil {
		if errors.Is(err, workload.ErrExists) {
			return ErrRowExists
		}
		return err
	}
	return nil
}

func (c *client) deleteCallForwarding(tx workload.Tx) error {
	s, err := c.lookup(tx)
	if err != nil {
		return err
	}
	key := forwardingKey(s, c.kind, starts[c.starts])
	tx.Stage(CallForwarding, key, workload.Update)
	c.change = deleted
	return absent(tx.Delete(CallForwarding, key))
}

// lookup finds the subscriber of the sub_nbr drawn, in the secondary table.
func (c *client) lookup(tx workload.Tx) (uint32, error) {
	var row secondaryRow
	key := subscriberNumber(c.s)
	tx.Stage(Secondary, key, workload.Read)
	if err := need(tx, Secondary, key, row[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(row[secSubscriber:]), nil
}

// want copies a row that may be absent.
func want(tx workload.Tx, table int, key uint64, row []byte) error {
	v, err := tx.Get(table, key)
	if err != nil {
		return absent(err)
	}
	if len(v) != len(row) {
		return &RowError{Table: table, Key: key, Length: len(v)}
	}
	copy(row, v)
	return nil
}

// need copies a row that must exist.
func need(tx workload.Tx, table int, key uint64, row []byte) error {
	err := want(tx, table, key, row)
	if errors.Is(err, ErrRowAbsent) {
		return &RowError{Table: table, Key: key, Length: -1}
	}
	return err
}

// absent turns the store's error into the benchmark's.
func absent(err error) error {
	if err != nil && errors.Is(err, workload.ErrNotFound) {
		return ErrRowAbsent
	}
	return err
}
