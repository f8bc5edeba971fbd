package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"txnode/memory/layout"
	"txnode/rdma"
)

// proof is a test of the verbs of a blade. It reads the header of the region, and writes into the
// page behind it that belongs to no structure: layout.ScratchOffset. Each proof takes one line
// there by chance, so that two at a time rarely meet; if they do, they see it and take another one.
type proof struct {
	t     *rdma.Thread
	blade rdma.BladeID

	info   rdma.BladeInfo
	header []byte
	verbs  [3]timing
}

// timing is how long the verbs of a kind took, in the order of their lengths.
type timing struct {
	op  rdma.Op
	all []time.Duration
}

func (t *timing) median() time.Duration  { return t.all[len(t.all)/2] }
func (t *timing) longest() time.Duration { return t.all[len(t.all)-1] }

const (
	proofArena  = 1 << 20
	proofLine   = 64
	proofHeader = 8 << 10
	verbRounds  = 64 // of each verb
	proofTries  = 5
)

// errMet is of two proofs on one line.
var errMet = errors.New("what was written is not what is read: the blade is broken, or several others test it")

// run reads the header and tests the verbs. A key that ends meanwhile is asked for anew.
func (p *proof) run() (err error) {
	f := p.t.Fabric()
	if err := f.Provision(p.blade, 0, layout.HeaderArea); err != nil {
		return fmt.Errorf("making room for the region header: %w", err)
	}
	buf, err := p.t.Alloc(proofHeader)
	if err != nil {
		return err
	}
	defer p.t.Free(buf, proofHeader)
	for range proofTries {
		p.info = f.Blades()[p.blade]
		if err = p.attempt(buf); err == nil || !errors.Is(err, rdma.ErrStaleKey) && !errors.Is(err, errMet) {
			return err
		}
		if e := p.t.Reconnect(p.blade); e != nil {
			return e
		}
	}
	return err
}

func (p *proof) attempt(buf uint32) error {
	at := func(off uint64) rdma.RemoteAddr {
		return rdma.RemoteAddr{Blade: p.blade, Key: p.info.Key, Off: off}
	}
	var batch rdma.Batch
	c := p.t.Plain()
	do := func() error { return c.Do(&batch) }
	batch.Read(at(0), buf, proofHeader)
	if err := do(); err != nil {
		return err
	}
	p.header = bytes.Clone(p.t.Bytes(buf, proofHeader))

	line := at(layout.ScratchOffset + p.t.Rand()%(layout.ScratchBytes/proofLine)*proofLine)
	data := line
	data.Off += 8 // the first word is for compare-and-swap
	was, now := buf, buf+proofLine
	p.verbs = [3]timing{{op: rdma.OpRead}, {op: rdma.OpWrite}, {op: rdma.OpCAS}}
	for range verbRounds {
		took := func(v *timing) error {
			began := time.Now()
			err := do()
			v.all = append(v.all, time.Since(began))
			return err
		}
		pattern := p.t.Bytes(was, proofLine-8)
		for i := 0; i < len(pattern); i += 8 {
			binary.LittleEndian.PutUint64(pattern[i:], p.t.Rand())
		}
		batch.Reset()
		batch.Write(data, was, proofLine-8)
		if err := took(&p.verbs[1]); err != nil {
			return err
		}
		batch.Reset()
		batch.Read(line, now, proofLine)
		if err := took(&p.verbs[0]); err != nil {
			return err
		}
		if !bytes.Equal(p.t.Bytes(now+8, proofLine-8), pattern) {
			return errMet
		}
		word := p.t.Word(now)
		batch.Reset()
		batch.CAS(line, word, word+1)
		if err := took(&p.verbs[2]); err != nil {
			return err
		}
		if batch.Result(0) != word {
			return errMet
		}
	}
	clear(p.t.Bytes(was, proofLine))
	batch.Reset()
	batch.Write(line, was, proofLine)
	if err := do(); err != nil {
		return err
	}
	for i := range p.verbs {
		slices.Sort(p.verbs[i].all)
	}
	return nil
}
