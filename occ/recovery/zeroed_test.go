package recovery_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/occ/recovery"
	"txnode/verify"
)

// TestZeroedWords zeroes words of an index, each on one copy, while clients insert and delete, and
// die. When the database has been repaired, and opened, nothing is left to be repaired, and every
// key is there whose insert was acknowledged, and was not deleted.
func TestZeroedWords(t *testing.T) {
	seeds := byRun(30, 60, 6)
	for seed := range seeds {
		z := newZeroed(t, uint64(seed))
		z.zero(1 + z.r.IntN(3))
		for range z.r.IntN(60) {
			switch k := z.r.IntN(13); {
			case k == 0:
				z.sweep(false)
			case k <= 2:
				z.do(del(z.some()))
			case k == 3:
				z.die()
			default:
				z.insert()
			}
		}
		z.end()
		if t.Failed() {
			return
		}
	}
}

// zeroed is a database some words of whose index are zero.
type zeroed struct {
	*world
	r       *rand.Rand
	backups int
	ours    *occ.Session
	own     *occ.Tx
	keys    int             // that have been inserted
	there   map[string]bool // those that are there
	unsure  map[string]bool // those that were deleted, perhaps when they were not found, or whose client has died
	log     strings.Builder
}

func newZeroed(t *testing.T, seed uint64) *zeroed {
	z := &zeroed{r: rand.New(rand.NewPCG(31, seed)), there: map[string]bool{}, unsure: map[string]bool{}}
	z.backups = z.r.IntN(3)
	policy := []occ.Policy{occ.PolicyDefault, occ.PolicyFORD}[z.r.IntN(2)]
	z.world = newWorld(t, setting{policy, z.backups, strong}, occ.Options{})
	fmt.Fprintf(&z.log, "seed %d, %v, f=%d\n", seed, policy, z.backups)
	ix := z.table.Index.(*race.Index)
	ix.SetVacant(recovery.Vacant(z.space)) // as package txn does
	ix.SetSpoilt(recovery.Spoilt(z.space))
	z.ours, z.own = z.session()
	for range 20 + z.r.IntN(250) {
		z.insert()
	}
	z.own.Coro().Sleep(10_000) // until its locks are released
	z.spoilt = true
	return z
}

// some is a key that was inserted once.
func (z *zeroed) some() string { return fmt.Sprint("key ", 1+z.r.IntN(z.keys)) }

func (z *zeroed) insert() {
	z.keys++
	z.do(put(fmt.Sprint("key ", z.keys), "1"))
}

// do is what a worker of package txn makes of a transaction.
func (z *zeroed) do(o op) {
	var err error
	for range 5 {
		if err = z.world.do(z.own, o); !errors.Is(err, occ.ErrConflict) {
			break
		}
		if _, e := z.own.Unblock(); e != nil {
			err = e
			break
		}
		z.own.Coro().Sleep(3000)
	}
	if z.ours.Broken() != nil {
		must(z.t, z.ours.Rejoin(z.ours.Thread().Plain()))
	}
	switch {
	case err == nil:
		z.unsure[o.key] = z.unsure[o.key] || o.value == ""
		if z.there[o.key] = true; o.value == "" {
			delete(z.there, o.key)
		}
	case errors.Is(err, layout.ErrCorrupt), errors.Is(err, occ.ErrConflict):
		fmt.Fprintf(&z.log, "%v: %v\n", o, err)
	default:
		z.t.Errorf("%s%v: %v", &z.log, o, err)
	}
}

// zero zeroes n words that are used, each on one copy; without backups, slots alone.
func (z *zeroed) zero(n int) {
	all, err := z.table.Index.(*race.Index).Extents(z.ctl.Plain())
	must(z.t, err)
	sizes, touched := map[layout.Addr]uint32{}, map[layout.Addr]bool{}
	for _, x := range z.space.Extents() {
		sizes[x.Addr] = x.Size
	}
	for tries := 0; n > 0 && tries < 400; tries++ {
		a, k := all[z.r.IntN(len(all))], z.r.IntN(z.backups+1)*z.r.IntN(2)
		at := a + layout.Addr(8*z.r.IntN(int(sizes[a])/8))
		unit := at
		if at-a < 64 { // whose checksum needs all of it
			unit = a
		}
		p := z.space.View().At(at, k)
		word := z.f.Memory(p.Blade)[p.Off:][:8]
		w := binary.LittleEndian.Uint64(word)
		// empty, or a trace
		if z.backups == 0 && (a == all[0] || at-a < 64 || at&63 == 56) || touched[unit] || w == 0 || w>>54 == 1 {
			continue
		}
		clear(word)
		touched[unit] = true
		fmt.Fprintf(&z.log, "zeroed %v in the extent at %v, copy %d\n", at, a, k)
		n--
	}
}

// die has a client work that stops at some verb, and what it had under way decided.
func (z *zeroed) die() {
	victim, dying := z.session()
	z.arm(z.r.IntN(200))
	for i := 0; i < 40 && !z.stop.hit && victim.Broken() == nil; i++ {
		o := op{key: z.some(), value: strings.Repeat("2", 1+z.r.IntN(300))}
		switch z.r.IntN(3) {
		case 0:
			o.value = ""
		case 1:
			z.keys++
			o.key = fmt.Sprint("key ", z.keys)
		}
		z.unsure[o.key] = true
		if err := z.world.do(dying, o); err == nil && o.value == "" || z.stop.hit {
			delete(z.there, o.key)
		}
	}
	z.disarm()
	z.decideUntil(victim.Coordinator(), -1)
	if z.r.IntN(2) == 0 {
		z.sweep(false)
	}
}

// sweep sweeps, as far as damage lets it.
func (z *zeroed) sweep(alone bool) {
	_, err := recovery.Sweep(z.ctl.Plain(), recovery.Options{Space: z.space, Steal: alone, Alone: alone})
	if err != nil && !errors.Is(err, layout.ErrCorrupt) {
		z.t.Errorf("%sswept: %v", &z.log, err)
	}
}

// end closes the database, repairs it, opens it, and demands that it is in order.
func (z *zeroed) end() {
	z.own.Coro().Sleep(10_000) // until its locks are released
	err := z.ours.Close()
	for i := 0; err != nil && i < 3; i++ { // it had something to unlink where a copy is damaged
		_ = z.ours.Rejoin(z.ours.Thread().Plain())
		err = z.ours.Close()
	}
	must(z.t, err)
	for range 3 {
		z.examine(verify.Options{Repair: true, Report: func(f verify.Finding) error {
			fmt.Fprintln(&z.log, f)
			return nil
		}})
		z.sweep(true)
	}
	left := z.repair()
	linked := map[string]bool{}
	must(z.t, z.table.Index.(*race.Index).Walk(z.ctl.Plain(), func(_ layout.Addr, b index.Candidate) error {
		p := z.space.View().At(b.Addr, 0)
		if line := record.Image(z.f.Memory(p.Blade)[p.Off:][:record.LineSize]); line.Meta().State() == record.Live {
			linked[string(line.Key())] = true
		}
		return nil
	}))
	var wrong []string
	for i := 1; i <= z.keys; i++ {
		key := fmt.Sprint("key ", i)
		if z.there[key] && !linked[key] || linked[key] && !z.there[key] && !z.unsure[key] {
			wrong = append(wrong, fmt.Sprintf("%s is there: %v", key, linked[key]))
		}
	}
	if left > 0 || len(wrong) > 0 {
		z.t.Errorf("%s%d findings are left; %q", &z.log, left, wrong)
	}
}
