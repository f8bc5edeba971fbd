package etcd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"txnode/memory"
	"txnode/memory/layout"
)

// Client is a catalog in an etcd. All methods are safe for concurrent use.
type Client struct {
	o    Options
	etcd *clientv3.Client
	life context.Context // until Close
	end  context.CancelFunc

	watchTime time.Duration
	handshake atomic.Pointer[error] // why the last handshake of TLS has failed; nil: it has not

	mu      sync.Mutex
	closed  bool
	cluster uint64          // id of the etcd; 0: it has not answered
	store   int64           // the latest revision of etcd that an answer had
	rev     layout.Revision // the latest that is known
	known   place           // the latest that was read or written
	watch   watch
}

var _ layout.Catalog = (*Client)(nil)

// place is a head at a revision. The zero place is that of an empty catalog.
type place struct {
	rev  layout.Revision
	raw  []byte
	head head
}

// Pauses between attempts to connect and to ask.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// A connection without an answer for so long is asked whether it is alive, and closed if it does
// not say so. An etcd ends connections that ask more often than each 5 seconds.
const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second
)

// Open connects to an etcd, which must answer. What is there under the prefix is the catalog; it is
// empty if there is nothing. ctx bounds the connecting only. Errors: ErrOptions, ErrAway,
// ErrDamaged, layout.ErrFormat, and those of etcd, such as a refused user; they name the endpoints.
func Open(ctx context.Context, o Options) (*Client, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &Client{o: o, watchTime: watchTime}
	c.life, c.end = context.WithCancel(context.Background())
	connecting, cancel := context.WithTimeout(ctx, o.Control)
	defer cancel()
	dial := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastPause},
		MinConnectTimeout: o.Control,
	})}
	if o.TLS != nil && !strings.HasPrefix(o.Endpoints[0], "http://") {
		dial = append(dial, grpc.WithTransportCredentials(newHandshakes(&c.o, &c.handshake)))
	}
	var err error
	c.etcd, err = clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, TLS: o.TLS, Username: o.Username, Password: o.Password, Context: c.life,
		DialTimeout: o.Control, DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		MaxUnaryRetries: 10, Logger: zap.NewNop(),
		DialOptions: dial,
	})
	if err != nil {
		err = c.failed(err)
		c.end()
		return nil, err
	}
	at, _, err := c.ask(connecting)
	if err == nil && at.rev == 0 {
		err = c.alone(connecting)
	}
	if err != nil {
		_ = c.Close() // it was asked only
		if o.TLS == nil && errors.Is(err, ErrAway) {
			err = fmt.Errorf("%w; if it serves TLS, it does not answer without certificates", err)
		}
		return nil, err
	}
	return c, nil
}

// alone returns ErrOptions if the prefix of a catalog that is not there yet lies within that of
// another database: etcdctl del --prefix of one would delete both.
func (c *Client) alone(ctx context.Context) error {
	for above := strings.TrimSuffix(c.o.Prefix, "/"); ; {
		i := strings.LastIndex(above, "/")
		if i < 0 {
			return nil
		}
		above = above[:i]
		r, _, err := c.do(ctx, clientv3.OpGet(above+"/"+headName))
		if err == nil && len(r.Get().Kvs) > 0 { // an error: this user may not read there
			return fmt.Errorf("%w: the prefix %q lies within %q, which another database has: choose one beside it",
				ErrOptions, c.o.Prefix, above+"/")
		}
	}
}

// Name returns the address: "etcd://ENDPOINT,ENDPOINT/PREFIX".
func (c *Client) Name() string {
	return "etcd://" + strings.Join(c.o.Endpoints, ",") + "/" + c.o.Prefix
}

// Identity is of the etcd and the prefix in it.
func (c *Client) Identity() (id layout.Identity, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	binary.LittleEndian.PutUint64(id[:], c.cluster)
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.o.Prefix)) // a hash returns no error
	h.Sum(id[:8])
	return id, nil
}

// do makes a request, and returns the revision of etcd that its answer has.
func (c *Client) do(ctx context.Context, op clientv3.Op) (r clientv3.OpResponse, store int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Control)
	defer cancel()
	c.mu.Lock()
	before := c.store
	c.mu.Unlock()
	if r, err = c.etcd.Do(ctx, op); err != nil {
		return r, 0, c.failed(err)
	}
	var h *etcdserverpb.ResponseHeader
	if op.IsTxn() {
		h = r.Txn().Header
	} else {
		h = r.Get().Header
	}
	return r, h.Revision, c.heard(before, h)
}

// heard checks that an answer is of the same etcd as those before. The request was made when
// answers had been of revision before.
func (c *Client) heard(before int64, h *etcdserverpb.ResponseHeader) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cluster == 0 {
		c.cluster = h.ClusterId
	}
	if h.ClusterId != c.cluster || h.Revision < before {
		return fmt.Errorf("%w at %s: cluster %x at revision %d, and it was cluster %x at %d: if it is the right one, "+
			"open the database again",
			ErrOther, strings.Join(c.o.Endpoints, ", "), h.ClusterId, h.Revision, c.cluster, before)
	}
	c.store = max(c.store, h.Revision)
	return nil
}

// found takes over a head that was read or written; nil: at revision store of etcd there was none.
func (c *Client) found(kv *mvccpb.KeyValue, store int64) (place, error) {
	var p place
	if kv != nil {
		h, err := decodeHead(kv.Value)
		if err != nil {
			return p, fmt.Errorf("catalog at %s: %w", c.Name(), err)
		}
		p = place{layout.Revision(kv.ModRevision), kv.Value, h}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.rev == 0 && c.known.rev != 0 && int64(c.known.rev) <= store { // and not an answer from before the first change
		return p, fmt.Errorf("%w: catalog at %s: its head was deleted. Restore etcd from a backup, or the database "+
			"as a new one", ErrDamaged, c.Name())
	}
	if p.rev > c.known.rev {
		c.known = p
	}
	c.note(p.rev)
	return p, nil
}

// note says that the catalog has been at a revision. The caller holds the lock.
func (c *Client) note(rev layout.Revision) {
	if rev > c.rev {
		c.rev = rev
		c.watch.wake()
	}
}

// ask reads the head. store is the revision of etcd at which it was so.
func (c *Client) ask(ctx context.Context) (p place, store int64, err error) {
	r, store, err := c.do(ctx, clientv3.OpGet(c.o.Prefix+headName))
	if err != nil {
		return p, 0, err
	}
	var kv *mvccpb.KeyValue
	if kvs := r.Get().Kvs; len(kvs) > 0 {
		kv = kvs[0]
	}
	p, err = c.found(kv, store)
	return p, store, err
}

// load reads the catalog.
func (c *Client) load(ctx context.Context) ([]layout.Entry, place, error) {
	r, store, err := c.do(ctx, clientv3.OpGet(c.o.Prefix+chunkName, clientv3.WithRange(c.o.Prefix+headName+"\x00")))
	if err != nil {
		return nil, place{}, err
	}
	kvs := r.Get().Kvs
	var top *mvccpb.KeyValue
	for _, kv := range kvs {
		if string(kv.Key) == c.o.Prefix+headName {
			top = kv
		}
	}
	p, err := c.found(top, store)
	if err != nil || top == nil {
		return nil, p, err
	}
	entries, err := content(p.head, kvs, c.o.Prefix)
	if err != nil {
		err = fmt.Errorf("catalog at %s: %w", c.Name(), err)
	}
	return entries, p, err
}

// Load reads all entries, at one revision of etcd.
func (c *Client) Load() ([]layout.Entry, layout.Revision, error) {
	entries, p, err := c.load(c.life)
	if err != nil {
		return nil, 0, err
	}
	return entries, p.rev, nil
}

// at returns the head of a revision: ErrRevision if the catalog is at another one.
func (c *Client) at(rev layout.Revision) (place, error) {
	c.mu.Lock()
	p := c.known
	c.mu.Unlock()
	if p.rev == rev {
		return p, nil
	}
	p, _, err := c.ask(c.life)
	if err == nil && p.rev != rev {
		err = fmt.Errorf("%w: the catalog at %s is at revision %d, not %d", memory.ErrRevision, c.Name(), p.rev, rev)
	}
	return p, err
}

// Apply makes the changes, in one request unless they are large or a new base is due. ErrAway
// leaves open whether they are made. A change that makes the catalog larger than 256 MiB is refused
// with memory.ErrNoSpace.
func (c *Client) Apply(rev layout.Revision, changes []layout.Entry) (layout.Revision, error) {
	p, err := c.at(rev)
	if err != nil {
		return 0, err
	}
	chunk := encodeChunk(changes)
	base := p.head.due(len(chunk))
	if base {
		if chunk, err = c.rebase(p, chunk); err != nil {
			return 0, err
		}
	}
	return c.write(p, chunk, base, c.members(changes)...)
}

// maxMembers is how many members a transaction registers or ends. An etcd takes 128 operations at
// once. If a change has more, the first ones are ended before it: until it is made, they cannot say
// that they are alive.
const maxMembers = 100

// members are the operations that register members, and end them, with changes.
func (c *Client) members(changes []layout.Entry) (ops []clientv3.Op) {
	for _, e := range changes {
		id, ok := layout.MemberOf(e.Key)
		switch {
		case !ok:
		case e.Value == nil:
			ops = append(ops, clientv3.OpDelete(c.o.Prefix+aliveKey(id)))
		default:
			ops = append(ops, c.put(aliveKey(id), []byte(unsigned)))
		}
	}
	return ops
}

func aliveKey(member uint32) string { return fmt.Sprintf("%s%08x", aliveName, member) }

// KeepAlive writes the key of a member, and reads those of all, in one request.
func (c *Client) KeepAlive(b layout.Beat) ([]layout.Beat, error) {
	all := clientv3.OpGet(c.o.Prefix+aliveName, clientv3.WithRange(c.o.Prefix+aliveEnd))
	op := clientv3.OpTxn(nil, []clientv3.Op{all}, nil)
	if b.Member != 0 {
		key := aliveKey(b.Member)
		there := clientv3.Compare(clientv3.ModRevision(c.o.Prefix+key), ">", 0)
		op = clientv3.OpTxn([]clientv3.Cmp{there}, []clientv3.Op{c.put(key, sign(b)), all}, nil)
	}
	r, _, err := c.do(c.life, op)
	if err != nil {
		return nil, err
	}
	if !r.Txn().Succeeded {
		return nil, fmt.Errorf("%w: process %d is registered no more in the catalog at %s",
			memory.ErrEnded, b.Member, c.Name())
	}
	answers := r.Txn().Responses
	kvs := answers[len(answers)-1].GetResponseRange().Kvs
	out := make([]layout.Beat, 0, len(kvs))
	for _, kv := range kvs {
		member, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), c.o.Prefix+aliveName), 16, 32)
		b, err2 := parseSign(string(kv.Value))
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("%w: catalog at %s: a sign of life %.40q is %.40q: %w",
				ErrDamaged, c.Name(), kv.Key, kv.Value, err)
		}
		b.Member, b.Count = uint32(member), uint64(kv.ModRevision)
		out = append(out, b)
	}
	return out, nil
}

// unsigned is the sign of life of a member that has given none yet.
const unsigned = "0 0"

// sign is what a member says with a sign of life: the epoch that it knows, and the revision
// that it rests behind.
func sign(b layout.Beat) []byte { return fmt.Appendf(nil, "%d %d", b.Knows, b.Rested) }

func parseSign(text string) (b layout.Beat, err error) {
	knows, rested, _ := strings.Cut(text, " ")
	e, err := strconv.ParseUint(knows, 10, 32)
	rev, err2 := strconv.ParseUint(rested, 10, 63)
	b.Knows, b.Rested = layout.Epoch(e), layout.Revision(rev)
	return b, errors.Join(err, err2)
}

// rebase makes a base of the catalog at a place and a change of it.
func (c *Client) rebase(p place, change []byte) ([]byte, error) {
	entries := map[string][]byte{}
	if p.rev != 0 {
		have, now, err := c.load(c.life)
		if err != nil {
			return nil, err
		}
		if now.rev != p.rev {
			return nil, fmt.Errorf("%w: the catalog at %s is at revision %d, not %d",
				memory.ErrRevision, c.Name(), now.rev, p.rev)
		}
		for _, e := range have {
			entries[e.Key] = e.Value
		}
	}
	if err := apply(entries, change); err != nil {
		return nil, err
	}
	chunk := encodeChunk(sorted(entries))
	if len(chunk) > maxBytes && len(chunk) > p.head.Base {
		return nil,
			&fullError{text: fmt.Sprintf("catalog at %s: it would have %d bytes, and at most %d are possible: drop "+
				"tables, or use larger segments", c.Name(), len(chunk), maxBytes)}
	}
	return chunk, nil
}

// write writes a chunk behind those of a place, or as a new base instead of them, with other
// operations: see the package's documentation.
func (c *Client) write(p place, chunk []byte, base bool, more ...clientv3.Op) (layout.Revision, error) {
	var random [idSize / 2]byte
	_, _ = rand.Read(random[:]) // never fails
	h := p.head.append(hex.EncodeToString(random[:]), len(chunk), base)
	mine := chunkPrefix(h.Last, h.ID)
	piece := 0
	for ; len(chunk) > pieceSize; piece++ {
		if _, err := c.commit(p, c.put(pieceName(mine, piece), chunk[:pieceSize])); err != nil {
			return 0, err
		}
		chunk = chunk[pieceSize:]
	}
	raw := h.encode()
	from := chunkPrefix(h.Last, "") // pieces that other writers have left
	if base {
		from = chunkName
	}
	for ; len(more) > maxMembers; more = more[maxMembers:] {
		if _, err := c.commit(p, more[:maxMembers]...); err != nil {
			return 0, err
		}
	}
	more = append(more, c.remove(from, mine), c.remove(after(mine), chunkEnd), c.put(pieceName(mine, piece), chunk),
		c.put(headName, raw))
	rev, err := c.commit(p, more...)
	if err != nil {
		return 0, err
	}
	_, err = c.found(&mvccpb.KeyValue{Value: raw, ModRevision: rev}, rev)
	return layout.Revision(rev), err
}

func (c *Client) put(name string, value []byte) clientv3.Op {
	return clientv3.OpPut(c.o.Prefix+name, string(value))
}

// remove deletes the keys from one up to another, which stays.
func (c *Client) remove(from, to string) clientv3.Op {
	return clientv3.OpDelete(c.o.Prefix+from, clientv3.WithRange(c.o.Prefix+to))
}

// commit makes a transaction on the condition that the catalog is at a place, and returns the
// revision of etcd that it has made. ErrRevision: it was at another one.
func (c *Client) commit(p place, ops ...clientv3.Op) (int64, error) {
	key := c.o.Prefix + headName
	condition := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", int64(p.rev))}
	if p.rev != 0 {
		condition = append(condition, clientv3.Compare(clientv3.Value(key), "=", string(p.raw)))
	}
	r, store, err := c.do(c.life, clientv3.OpTxn(condition, ops, nil))
	if err != nil {
		return 0, err
	}
	if !r.Txn().Succeeded {
		return 0, fmt.Errorf("%w: the catalog at %s is not at revision %d any more",
			memory.ErrRevision, c.Name(), p.rev)
	}
	return store, nil
}

// Close ends the requests that are under way, and what waits, with memory.ErrClosed. The catalog
// stays in etcd. To close again does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	was := c.closed
	c.closed = true
	c.end()
	c.watch.wake()
	c.mu.Unlock()
	c.watch.done.Wait()
	if was {
		return nil
	}
	if err := c.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("catalog at %s: %w", c.Name(), err)
	}
	return nil
}
