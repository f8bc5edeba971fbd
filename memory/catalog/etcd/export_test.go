package etcd

import (
	"slices"
	"strings"
	"time"
)

// Garbage returns the pieces among keys that belong to no chunk of the head.
func Garbage(prefix string, keys map[string]string) []string {
	h, err := decodeHead([]byte(keys[prefix+headName]))
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	ids := map[uint64]string{}
	for k := range keys {
		name, ours := strings.CutPrefix(k, prefix)
		seq, id, _, ok := parsePiece(name)
		if !ours || !ok {
			continue
		}
		if ids[seq] == "" {
			ids[seq] = id
		}
		if seq < h.First || seq > h.Last || ids[seq] != id || seq == h.Last && id != h.ID {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// Done is closed by Close.
func (c *Client) Done() <-chan struct{} { return c.life.Done() }

// SetWatchTime changes watchTime, before the first Await.
func (c *Client) SetWatchTime(d time.Duration) { c.watchTime = d }
