package exhaustive

import "testing"

// readers are transactions that see several things one after the other, and those whose errors
// say something: opacity is about both. writers change what they look at, each in several steps.
var (
	readers = []txn{
		{"a-b-none", []op{get("a"), then(), get("b"), then(), get("none")}},
		{"none-a-b", []op{get("none"), then(), get("a"), then(), get("b")}},
		{"none-b", []op{get("none"), then(), get("b"), roll()}},
		{"lock-a-b-none", []op{lock("a"), then(), get("b"), then(), get("none"), roll()}},
		{"a+none-b", []op{get("a"), get("none"), then(), get("b"), roll()}},
		{"insert-a-b", []op{insert("none", "7"), then(), get("a"), then(), get("b"), roll()}},
		{"a-b-lock", []op{get("a"), then(), get("b"), then(), late("a", "8")}},
		{"b-exists-a", []op{get("b"), then(), insert("a", "9")}},
		{"gone-a", []op{get("gone"), then(), get("a"), then(), insert("gone", "10")}},
		{"absent-two", []op{get("none"), then(), get("gone"), then(), get("a"), roll()}},
	}
	writers = []txn{
		{"write-ab", []op{put("a", "2"), put("b", "2")}},
		{"write-a-write-b", []op{put("a", "2"), next(), put("b", "3")}},
		{"insert-write-a", []op{insert("none", "4"), put("a", "4")}},
		{"insert-delete", []op{insert("none", "4"), next(), del("none"), put("b", "5")}},
		{"delete-a-write-b", []op{del("a"), put("b", "5")}},
		{"delete-a-insert-a", []op{del("a"), next(), put("a", "6"), insert("gone", "6")}},
		{"move-a-write-b", []op{put("a", big("m", 100)), put("b", "5")}},
		{"insert-roll-back", []op{insert("none", "4"), put("b", "5"), roll()}},
	}
)

// TestOpacity runs transactions that look at things beside others that change them, in every
// order of their requests: what each has seen, whenever Execute has returned, or, where it
// validates at its end, when it has an error of its own, is explained by the history, as a
// transaction that has only read.
func TestOpacity(t *testing.T) {
	var all []config
	for _, c := range configs() {
		c.witnessed = true
		for _, c.readBackups = range []bool{false, true} {
			for _, c.atEnd = range []bool{false, true} {
				if c.atEnd && !c.byDefault() {
					continue // policy ford does anyway
				}
				all = append(all, c)
			}
		}
	}
	if !*full {
		all = those(all, config.promised, func(c config) bool { return c.readBackups != c.oneBackup() })
	}
	each(t, all, func(t *testing.T, c config) {
		w := newWorld(t, c, loadPairs)
		for _, x := range readers {
			for _, y := range writers {
				for _, cold := range []bool{false, true} {
					name := x.name + "+" + y.name
					if cold {
						name += "/cold"
					}
					t.Run(name, func(t *testing.T) { pair(t, w, cold, byRun(2, 600, 2), x, y) })
				}
			}
		}
	})
}
