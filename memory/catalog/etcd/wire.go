package etcd

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"txnode/memory/layout"
)

const (
	// format is that of the head and of chunks.
	format = 1
	// pieceSize is how many bytes a key has at most. With keys and head it is less than etcd takes
	// by default, 1.5 MiB.
	pieceSize = 1 << 20
	// maxBytes is how large a base may be. An etcd answers a load with one message.
	maxBytes = 256 << 20
	// maxChanges and freeBytes are when a writer makes a new base: that many changes since the last
	// one, or as many bytes as it has, and at least freeBytes.
	maxChanges = 64
	freeBytes  = 64 << 10
)

const (
	headName  = "head"
	chunkName = "chunk/"
	chunkEnd  = "chunk0" // behind all that begins with chunkName
	aliveName = "alive/"
	aliveEnd  = "alive0"
)

// head says which chunks are the content of the catalog: those from First, the base, to Last.
type head struct {
	Format int    `json:"format"`
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	ID     string `json:"id"`    // of the last chunk
	Base   int    `json:"base"`  // bytes of the first chunk
	Bytes  int    `json:"bytes"` // of all chunks
}

// append adds a chunk of n bytes; base: it is a new base.
func (h head) append(id string, n int, base bool) head {
	if base {
		return head{format, h.Last + 1, h.Last + 1, id, n, n}
	}
	return head{format, h.First, h.Last + 1, id, h.Base, h.Bytes + n}
}

// due says whether a change of n bytes comes with a new base.
func (h head) due(n int) bool {
	return h.Last == 0 || h.Last-h.First >= maxChanges || h.Bytes-h.Base+n > max(h.Base, freeBytes)
}

func (h head) encode() []byte {
	p, err := json.Marshal(h)
	if err != nil {
		panic(err) // numbers and a string
	}
	return p
}

// decodeHead accepts any bytes.
func decodeHead(p []byte) (h head, err error) {
	if err := json.Unmarshal(p, &h); err != nil {
		return head{}, fmt.Errorf("%w: the head is %.40q: %w", ErrDamaged, p, err)
	}
	switch {
	case h.Format != format:
		return head{}, fmt.Errorf("%w: the head has format %d, and this release of txnode knows %d",
			layout.ErrFormat, h.Format, format)
	case h.First == 0 || h.Last < h.First || h.Base < 0 || h.Bytes < h.Base || len(h.ID) != idSize:
		return head{}, fmt.Errorf("%w: the head is %.200q", ErrDamaged, p)
	}
	return h, nil
}

// idSize is how many characters an id has.
const idSize = 32

// chunkPrefix begins the keys of a chunk, behind the prefix of the catalog; "": of all of the
// number.
func chunkPrefix(seq uint64, id string) string {
	if id == "" {
		return fmt.Sprintf("%s%016x-", chunkName, seq)
	}
	return fmt.Sprintf("%s%016x-%s/", chunkName, seq, id)
}

// after is behind all keys that begin with the prefix of a chunk.
func after(chunk string) string { return strings.TrimSuffix(chunk, "/") + "0" }

func pieceName(chunk string, piece int) string { return fmt.Sprintf("%s%06x", chunk, piece) }

// parsePiece takes a name apart.
func parsePiece(name string) (seq uint64, id string, piece uint64, ok bool) {
	number, rest, ok1 := strings.Cut(strings.TrimPrefix(name, chunkName), "-")
	id, index, ok2 := strings.Cut(rest, "/")
	seq, err1 := strconv.ParseUint(number, 16, 64)
	piece, err2 := strconv.ParseUint(index, 16, 24)
	return seq, id, piece, ok1 && ok2 && err1 == nil && err2 == nil
}

// encodeChunk encodes entries: of each the length of the key, the key, 0 for a deleted one or the
// length of the value and one, and the value; lengths are unsigned varints. A checksum follows.
func encodeChunk(entries []layout.Entry) []byte {
	n := crc32.Size
	for _, e := range entries {
		n += 2*binary.MaxVarintLen32 + len(e.Key) + len(e.Value)
	}
	p := make([]byte, 0, n)
	for _, e := range entries {
		p = append(binary.AppendUvarint(p, uint64(len(e.Key))), e.Key...)
		if e.Value == nil {
			p = append(p, 0)
			continue
		}
		p = append(binary.AppendUvarint(p, uint64(len(e.Value))+1), e.Value...)
	}
	return binary.LittleEndian.AppendUint32(p, checksum(p))
}

func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// apply makes the changes of a chunk to entries, which then share its bytes. It accepts any bytes.
func apply(entries map[string][]byte, p []byte) error {
	if len(p) < crc32.Size {
		return fmt.Errorf("%w: a chunk of %d bytes", ErrDamaged, len(p))
	}
	sum := binary.LittleEndian.Uint32(p[len(p)-crc32.Size:])
	if p = p[:len(p)-crc32.Size]; checksum(p) != sum {
		return fmt.Errorf("%w: a chunk does not match its checksum", ErrDamaged)
	}
	take := func(n uint64) (b []byte, ok bool) {
		if n > uint64(len(p)) {
			return nil, false
		}
		b, p = p[:n:n], p[n:]
		return b, true
	}
	number := func() (n uint64, ok bool) {
		n, k := binary.Uvarint(p)
		p = p[max(k, 0):]
		return n, k > 0
	}
	for len(p) > 0 {
		n, ok1 := number()
		key, ok2 := take(n)
		n, ok3 := number()
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("%w: an entry is cut off", ErrDamaged)
		}
		if n == 0 {
			delete(entries, string(key))
			continue
		}
		value, ok := take(n - 1)
		if !ok {
			return fmt.Errorf("%w: the value of %q is cut off", ErrDamaged, key)
		}
		entries[string(key)] = value
	}
	return nil
}

// content puts the chunks of a head together. kvs are keys and values in the order of keys, behind
// the prefix of the catalog; what is no piece of a chunk of the head is left out: it is garbage.
// The entries own their bytes.
func content(h head, kvs []*mvccpb.KeyValue, prefix string) ([]layout.Entry, error) {
	entries := map[string][]byte{}
	next, id := h.First, "" // the chunk of p
	var p []byte
	pieces := uint64(0)
	end := func() error { // of a chunk
		if pieces == 0 {
			return fmt.Errorf("%w: chunk %d of %d to %d is missing", ErrDamaged, next, h.First, h.Last)
		}
		if err := apply(entries, p); err != nil {
			return fmt.Errorf("chunk %d: %w", next, err)
		}
		next, id, p, pieces = next+1, "", nil, 0
		return nil
	}
	for _, kv := range kvs {
		seq, of, piece, ok := parsePiece(strings.TrimPrefix(string(kv.Key), prefix))
		if !ok || seq < h.First || seq > h.Last {
			continue
		}
		if seq != next {
			if err := end(); err != nil {
				return nil, err
			}
		}
		if seq != next || pieces > 0 && of != id || piece != pieces {
			return nil, fmt.Errorf("%w: chunk %d: unexpected key %q", ErrDamaged, next, kv.Key)
		}
		id, p, pieces = of, append(p, kv.Value...), pieces+1
	}
	if next == h.Last && pieces > 0 && id != h.ID {
		return nil, fmt.Errorf("%w: the last chunk is %s, and the head says %s", ErrDamaged, id, h.ID)
	}
	if err := end(); err != nil {
		return nil, err
	}
	if next != h.Last+1 {
		return nil, fmt.Errorf("%w: chunk %d of %d to %d is missing", ErrDamaged, next, h.First, h.Last)
	}
	return sorted(entries), nil
}

// sorted returns entries in the order of their keys.
func sorted(entries map[string][]byte) []layout.Entry {
	out := make([]layout.Entry, 0, len(entries))
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, layout.Entry{Key: k, Value: entries[k]})
	}
	return out
}
