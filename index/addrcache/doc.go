// Package addrcache remembers on the compute side where the blocks of keys are,
// so that a warm lookup costs no READ of the index.
//
// An answer may be wrong: stale, because the block was moved or its key removed,
// or of another key whose hash shares line and tag (about 8 in 65536 lookups of
// keys that are not in the cache). The caller reads the block anyway and compares
// its key, so a wrong answer costs a round trip and never a wrong result; it then
// calls [Cache.Drop].
//
// # Layout
//
// A table is an array of lines of 64 bytes, each eight words:
//
//	 63      48 47                            6 5      0
//	+----------+------------------------------+--------+
//	|   tag    |        address >> 6          | class  |
//	+----------+------------------------------+--------+
//
// The low bits of a hash choose the line, its high 16 bits are the tag. A zero
// word is empty. Every access is an atomic load or store of a word: no locks, and
// no ordering between words is needed, because each stands for itself.
//
// # Growth
//
// The table starts small and doubles until it has the size the caller allows,
// each time as many entries have been evicted as a sixty-fourth of it has room for.
// The new table starts empty and every Store brings over a few lines of the older
// one, so nothing stalls; meanwhile a lookup that finds nothing looks there, too. A
// word does not tell which of the two new lines it belongs to, nor does the tag: so
// eight more bits of each hash are kept beside the lines, one word for each line, and
// touched by stores only. They are enough for eight doublings from when the entry was
// stored; older entries go astray half of the time, and are looked up in the index
// again. Together the tables take at most 27/16 of the limit.
//
// # Runs
//
// [Runs] keeps the addresses of integer keys that were inserted in order, in half a
// byte to a byte each where the cache needs eight to twenty: of keys that are used all
// the time, it then is what the processor's second-level cache can hold, and their
// blocks can be loaded without a miss before. An entry stands for 32 consecutive keys
// of a table: where the first of them is, or would be, by how many lines each is
// further on than the one before, and which are known to be there. The first key of a
// run begins an entry, the second one decides on the stride, and those that lie
// elsewhere are left to the cache, or begin a second entry. A table whose keys do so
// mostly is not looked for: a score says whether the last keys stored were where their
// runs had them, and of such a table every sixteenth run is kept on trial.
//
// A run is two words, for the keys 32r to 32r+31 of a table:
//
//	 63      48 47                            6 5      0
//	+----------+------------------------------+--------+
//	|   tag    |   address of key 32r, >> 6   | class  |
//	+----------+------------+-----------------+--------+
//	|      tag      | stride|            mask          |
//	+---------------+-------+--------------------------+
//	 63           44 43   32 31                       0
//
// Key 32r+i is at address + i * stride * 64, if bit i of the mask is set. A line has room for four
// runs. Two consecutive runs share a line, and 128 runs share a page of 4 KiB.
package addrcache
