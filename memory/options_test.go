package memory_test

import (
	"strings"
	"testing"

	"txnode/memory"
)

func TestOptionsValidate(t *testing.T) {
	for _, o := range []memory.Options{
		{},
		{Backups: 2, SegmentSize: 256 << 10, LogArea: 64 << 10},
		{Backups: 1, SegmentSize: 1 << 20},
		{SegmentSize: 64 << 20, LogArea: 64 << 20},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, c := range []struct {
		o    memory.Options
		want []string
	}{
		{memory.Options{Backups: -1}, []string{"Backups is -1"}},
		{memory.Options{Backups: 3}, []string{"Backups is 3"}},
		{memory.Options{SegmentSize: 128 << 10, LogArea: 64 << 10}, []string{"SegmentSize is 131072"}},
		{memory.Options{SegmentSize: 128 << 20}, []string{"SegmentSize is 134217728"}},
		{memory.Options{SegmentSize: 3 << 20}, []string{"SegmentSize is 3145728"}},
		{memory.Options{LogArea: 1}, []string{"LogArea is 1"}},
		{memory.Options{SegmentSize: 1 << 20, LogArea: 2 << 20}, []string{"LogArea is 2097152"}},
		{
			memory.Options{Backups: 9, SegmentSize: 1000, LogArea: 7},
			[]string{"Backups is 9", "SegmentSize is 1000", "LogArea is 7"},
		},
	} {
		err := c.o.Validate()
		if err == nil {
			t.Errorf("%+v passes", c.o)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v lacks %q", c.o, err, w)
			}
		}
	}
}
