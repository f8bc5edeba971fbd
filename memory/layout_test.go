package memory_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma"
)

// TestTranscripts runs commands against a space and records what becomes of its
// layout. Regenerate with -rewrite and review the difference.
//
//	open blades=<n> segments=<per blade> backups=<f>
//	reopen                        a new space on the same blades and catalog
//	table <name>
//	root <table> <address>
//	coordinator                   open one
//	close <coordinator>
//	extent <bytes>...             allocate extents
//	free <segment> <offset> <bytes>
//	blocks size=<bytes> n=<count>
//	epoch [down=<blade>]
//	layout
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/layout", func(t *testing.T, path string) {
		x := &transcript{t: t}
		datadriven.RunTest(t, path, x.run)
	})
}

type transcript struct {
	t *testing.T
	b *bed
	s *memory.Space
	c *rdma.Coro
	a *memory.Allocator
}

func (x *transcript) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	err := x.command(t, d, &out)
	if err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	return out.String()
}

func (x *transcript) attach() error {
	x.c = x.b.thread().Plain()
	var err error
	if x.s, err = memory.Open(x.c, x.b.fabric, x.b.cat, x.b.opts); err != nil {
		return err
	}
	x.a, err = x.s.NewAllocator(x.c.Thread())
	return err
}

func (x *transcript) command(t *testing.T, d *datadriven.TestData, out *strings.Builder) error {
	num := func(s string) uint32 {
		n, err := strconv.ParseUint(s, 0, 32)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return uint32(n)
	}
	arg := func(i int) string { return d.CmdArgs[i].Key }
	switch d.Cmd {
	case "open":
		var blades, segments, backups int
		d.ScanArgs(t, "blades", &blades)
		d.ScanArgs(t, "segments", &segments)
		d.ScanArgs(t, "backups", &backups)
		x.b = newBed(x.t, blades, segments, backups)
		return x.attach()
	case "reopen":
		check(t, x.a.Close(x.c))
		check(t, x.s.Close(x.c))
		return x.attach()
	case "table":
		tab, err := x.s.CreateTable(arg(0), nil)
		if err == nil {
			fmt.Fprintf(out, "table %d\n", tab.ID)
		}
		return err
	case "root":
		return x.s.SetTableRoot(uint16(num(arg(0))), layout.MakeAddr(layout.SegmentID(num(arg(1))), num(arg(2))))
	case "coordinator":
		c, err := x.s.NewCoordinator()
		if err == nil {
			printCoordinator(out, c)
		}
		return err
	case "close":
		return x.s.CloseCoordinator(num(arg(0)))
	case "extent":
		for i := range d.CmdArgs {
			a, err := x.s.AllocExtent(x.c, num(arg(i)))
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%v\n", a)
		}
	case "free":
		return x.s.FreeAt(layout.MakeAddr(layout.SegmentID(num(arg(0))), num(arg(1))), num(arg(2)))
	case "blocks":
		var size, n int
		d.ScanArgs(t, "size", &size)
		d.ScanArgs(t, "n", &n)
		for range n {
			a, err := x.a.Alloc(x.c, class(uint32(size)))
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%v\n", a)
		}
	case "epoch":
		return x.s.AdvanceEpoch(func(l *layout.Layout) error {
			if d.HasArg("down") {
				var b int
				d.ScanArgs(t, "down", &b)
				l.TakeDown(rdma.BladeID(b))
			}
			return nil
		})
	case "layout":
		printLayout(out, x.s.Layout())
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	return nil
}

func printCoordinator(out *strings.Builder, c memory.Coordinator) {
	fmt.Fprintf(out, "coordinator %d:", c.ID)
	for _, l := range c.Logs {
		if l.Size == 0 {
			out.WriteString(" none")
			continue
		}
		fmt.Fprintf(out, " %v (%d KiB)", l.Addr, l.Size>>10)
	}
	out.WriteByte('\n')
}

func printLayout(out *strings.Builder, l *layout.Layout) {
	fmt.Fprintf(out, "epoch %d, f=%d, next coordinator %d\n", l.Epoch, l.Backups, l.NextCoordinator)
	for i, b := range l.Blades {
		state := ""
		if b.State == layout.BladeDown {
			state = ", down"
		}
		fmt.Fprintf(out, "blade %d: %d segments%s\n", i, b.Used, state)
	}
	for i, s := range l.Segments {
		if i == 0 {
			continue
		}
		fmt.Fprintf(out, "seg %d: %v", i, s.Kind)
		switch s.Kind {
		case layout.KindLog:
			fmt.Fprintf(out, " row %d", s.Row)
		case layout.KindBlocks:
			fmt.Fprintf(out, " of %d", s.Class.Size())
		}
		for _, r := range s.Placement.Replicas[:s.Placement.N] {
			fmt.Fprintf(out, " | blade %d +%#x", r.Blade, r.Base)
		}
		if s.Placement.N == 0 {
			out.WriteString(" | lost")
		}
		out.WriteByte('\n')
	}
	for _, t := range l.Tables {
		fmt.Fprintf(out, "table %d %q root %v\n", t.ID, t.Name, t.Root)
	}
	for _, c := range l.Coordinators {
		fmt.Fprintf(out, "coordinator %d in slot %d\n", c.ID, c.Slot)
	}
}
