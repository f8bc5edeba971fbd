package etcdtest

import (
	"bytes"
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// Limits of an etcd by default.
const (
	maxRequest = 3 << 19 // bytes
	maxOps     = 128     // operations of a transaction
)

// Fate is what becomes of a request.
type Fate struct {
	Made bool  // it is executed
	Err  error // it is answered with this error; nil: with what it has come to
	// Late is called between the execution of a read and its answer; nil: nothing.
	Late func()
}

// StandIn is a stand-in for an etcd with one member: reads, transactions and watches of single
// keys, in memory, over gRPC on a unix socket. It has the limits of an etcd. All methods are safe
// for concurrent use.
type StandIn struct {
	// Endpoint is where it serves clients.
	Endpoint string
	// Address is another such place: HOST:PORT.
	Address string

	path    string
	options []grpc.ServerOption
	mu      sync.Mutex
	server  *grpc.Server
	served  chan struct{} // closed when the server has ended
	hook    func(request any) Fate
	store
}

// store is what the stand-in keeps. The lock of the stand-in guards it.
type store struct {
	cluster   uint64
	rev       int64
	compacted int64
	keys      map[string]*mvccpb.KeyValue
	log       []*mvccpb.Event // in the order of revisions
	moved     chan struct{}   // closed by the next change
}

func newStore(cluster uint64) store {
	return store{cluster: cluster, rev: 1, keys: map[string]*mvccpb.KeyValue{}, moved: make(chan struct{})}
}

// NewStandIn starts a stand-in, which ends with the test, with options of its gRPC, such as
// certificates.
func NewStandIn(t *testing.T, options ...grpc.ServerOption) *StandIn {
	t.Helper()
	s := &StandIn{
		path: filepath.Join(tempDir(t), "s"), options: append(options, grpc.MaxRecvMsgSize(4<<20)), store: newStore(1),
	}
	s.Endpoint = "unix://" + s.path
	t.Cleanup(s.Stop)
	s.Address = forward(t, s.path)
	s.Restart(t)
	return s
}

// Restart serves again after Stop.
func (s *StandIn) Restart(t *testing.T) {
	t.Helper()
	_ = os.Remove(s.path)
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(s.options...), make(chan struct{})
	etcdserverpb.RegisterKVServer(server, &kv{s: s})
	etcdserverpb.RegisterWatchServer(server, watcher{s})
	s.mu.Lock()
	s.server, s.served = server, served
	s.mu.Unlock()
	go func() { defer close(served); _ = server.Serve(l) }() // its error is that of Stop
}

// Stop closes all connections. The keys stay.
func (s *StandIn) Stop() {
	s.mu.Lock()
	server, served := s.server, s.served
	s.mu.Unlock()
	server.Stop()
	<-served
}

// Hook has f decide what becomes of each request: *etcdserverpb.RangeRequest,
// *etcdserverpb.TxnRequest or *etcdserverpb.WatchCreateRequest. f is called by several goroutines,
// without a lock; nil: all are made.
func (s *StandIn) Hook(f func(request any) Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = f
}

// fate asks the hook.
func (s *StandIn) fate(request any) Fate {
	s.mu.Lock()
	f := s.hook
	s.mu.Unlock()
	if f == nil {
		return Fate{Made: true}
	}
	return f(request)
}

// Replace makes it an empty etcd, with another id if other is true.
func (s *StandIn) Replace(other bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cluster := s.cluster
	if other {
		cluster++
	}
	close(s.moved)
	s.store = newStore(cluster)
}

// Compact forgets all earlier revisions.
func (s *StandIn) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted, s.log = s.rev, nil
}

// Keys returns all keys and values.
func (s *StandIn) Keys() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for k, kv := range s.keys {
		out[k] = string(kv.Value)
	}
	return out
}

// Put writes a key; "": it is deleted.
func (s *StandIn) Put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == "" {
		s.remove(&etcdserverpb.DeleteRangeRequest{Key: []byte(key)}, s.rev+1)
	} else {
		s.put(&etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value)}, s.rev+1)
	}
	s.advance()
}

func (s *store) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: s.cluster, MemberId: 1, Revision: s.rev, RaftTerm: 1}
}

// within says whether a key is in a range of requests: end is behind it, or nil for one key.
func within(key string, from, end []byte) bool {
	if len(end) == 0 {
		return key == string(from)
	}
	return key >= string(from) && key < string(end)
}

func (s *store) get(r *etcdserverpb.RangeRequest) *etcdserverpb.RangeResponse {
	out := &etcdserverpb.RangeResponse{Header: s.header()}
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if within(k, r.Key, r.RangeEnd) {
			out.Kvs = append(out.Kvs, s.keys[k])
		}
	}
	out.Count = int64(len(out.Kvs))
	return out
}

func (s *store) put(r *etcdserverpb.PutRequest, rev int64) {
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, ModRevision: rev, CreateRevision: rev, Version: 1}
	if was := s.keys[string(r.Key)]; was != nil {
		kv.CreateRevision, kv.Version = was.CreateRevision, was.Version+1
	}
	s.keys[string(r.Key)] = kv
	s.log = append(s.log, &mvccpb.Event{Type: mvccpb.PUT, Kv: kv})
}

func (s *store) remove(r *etcdserverpb.DeleteRangeRequest, rev int64) {
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if within(k, r.Key, r.RangeEnd) {
			delete(s.keys, k)
			s.log = append(s.log,
				&mvccpb.Event{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte(k), ModRevision: rev}})
		}
	}
}

// advance begins a revision if there are changes of it.
func (s *store) advance() {
	if n := len(s.log); n > 0 && s.log[n-1].Kv.ModRevision > s.rev {
		s.rev++
		close(s.moved)
		s.moved = make(chan struct{})
	}
}

// holds says whether a condition of a transaction is fulfilled.
func (s *store) holds(c *etcdserverpb.Compare) bool {
	have := s.keys[string(c.Key)]
	if have == nil {
		have = &mvccpb.KeyValue{}
		if c.Target == etcdserverpb.Compare_VALUE {
			return false
		}
	}
	switch {
	case c.Result == etcdserverpb.Compare_GREATER && c.Target == etcdserverpb.Compare_MOD:
		return have.ModRevision > c.GetModRevision()
	case c.Result != etcdserverpb.Compare_EQUAL:
		panic("the stand-in compares for equality, and revisions of changes, only")
	case c.Target == etcdserverpb.Compare_MOD:
		return have.ModRevision == c.GetModRevision()
	case c.Target == etcdserverpb.Compare_VALUE:
		return bytes.Equal(have.Value, c.GetValue())
	}
	panic("the stand-in compares revisions of changes and values only")
}

// check refuses what an etcd refuses.
func check(r *etcdserverpb.TxnRequest) error {
	if r.Size() > maxRequest {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	puts := map[string]bool{}
	for _, op := range r.Success {
		if p := op.GetRequestPut(); p != nil {
			if puts[string(p.Key)] {
				return rpctypes.ErrGRPCDuplicateKey
			}
			puts[string(p.Key)] = true
		}
	}
	for _, op := range r.Success {
		if d := op.GetRequestDeleteRange(); d != nil {
			for k := range puts {
				if within(k, d.Key, d.RangeEnd) {
					return rpctypes.ErrGRPCDuplicateKey
				}
			}
		}
	}
	return nil
}

func (s *store) txn(r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	out := &etcdserverpb.TxnResponse{Succeeded: !slices.ContainsFunc(r.Compare, func(c *etcdserverpb.Compare) bool {
		return !s.holds(c)
	})}
	ops := r.Failure
	if out.Succeeded {
		ops = r.Success
	}
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil:
			s.put(op.GetRequestPut(), s.rev+1)
			out.Responses = append(out.Responses,
				&etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponsePut{
					ResponsePut: &etcdserverpb.PutResponse{},
				}})
		case op.GetRequestDeleteRange() != nil:
			s.remove(op.GetRequestDeleteRange(), s.rev+1)
			out.Responses = append(out.Responses,
				&etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseDeleteRange{
					ResponseDeleteRange: &etcdserverpb.DeleteRangeResponse{},
				}})
		case op.GetRequestRange() != nil:
			out.Responses = append(out.Responses,
				&etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: s.get(
					op.GetRequestRange())}})
		default:
			panic("the stand-in puts, deletes and reads in transactions only")
		}
	}
	s.advance()
	out.Header = s.header()
	return out, nil
}

// kv serves reads and transactions.
type kv struct {
	etcdserverpb.UnimplementedKVServer
	s *StandIn
}

func (k *kv) Range(_ context.Context, r *etcdserverpb.RangeRequest) (out *etcdserverpb.RangeResponse, err error) {
	f := k.s.fate(r)
	if f.Made {
		k.s.mu.Lock()
		out = k.s.get(r)
		k.s.mu.Unlock()
	}
	if f.Late != nil {
		f.Late()
	}
	return out, f.Err
}

func (k *kv) Txn(_ context.Context, r *etcdserverpb.TxnRequest) (out *etcdserverpb.TxnResponse, err error) {
	f := k.s.fate(r)
	if f.Made {
		k.s.mu.Lock()
		out, err = k.s.txn(r)
		k.s.mu.Unlock()
	}
	if f.Err != nil {
		err = f.Err
	}
	return out, err
}

// watcher serves watches.
type watcher struct{ s *StandIn }

// Watch serves a stream, which has any number of watches.
func (w watcher) Watch(stream etcdserverpb.Watch_WatchServer) error {
	var mu sync.Mutex
	send := func(r *etcdserverpb.WatchResponse) {
		mu.Lock()
		defer mu.Unlock()
		_ = stream.Send(r) // if it is broken, Recv says so
	}
	var all sync.WaitGroup
	ctx, end := context.WithCancel(stream.Context())
	defer all.Wait()
	defer end()
	cancel := map[int64]func(){}
	for id := int64(0); ; {
		r, err := stream.Recv()
		if err != nil {
			return nil // the client has gone
		}
		if c := r.GetCancelRequest(); c != nil && cancel[c.WatchId] != nil {
			cancel[c.WatchId]()
			w.s.mu.Lock()
			h := w.s.header()
			w.s.mu.Unlock()
			send(&etcdserverpb.WatchResponse{Header: h, WatchId: c.WatchId, Canceled: true})
		}
		if c := r.GetCreateRequest(); c != nil {
			if f := w.s.fate(c); f.Err != nil {
				return f.Err
			}
			one, stop := context.WithCancel(ctx)
			cancel[id] = stop
			mine := id
			all.Go(func() { w.s.follow(one, mine, c, send) })
			id++
		}
	}
}

// follow sends the events of a watch.
func (s *StandIn) follow(ctx context.Context, id int64, r *etcdserverpb.WatchCreateRequest,
	send func(*etcdserverpb.WatchResponse)) {
	s.mu.Lock()
	h, from := s.header(), r.StartRevision
	if from == 0 {
		from = s.rev + 1
	}
	s.mu.Unlock()
	send(&etcdserverpb.WatchResponse{Header: h, WatchId: id, Created: true})
	for {
		s.mu.Lock()
		out := &etcdserverpb.WatchResponse{Header: s.header(), WatchId: id}
		moved := s.moved
		if from <= s.compacted {
			out.Canceled, out.CompactRevision = true, s.compacted+1
		}
		for _, e := range s.log {
			if e.Kv.ModRevision >= from && within(string(e.Kv.Key), r.Key, r.RangeEnd) {
				out.Events = append(out.Events, e)
			}
		}
		from = max(from, s.rev+1)
		s.mu.Unlock()
		if out.Canceled || len(out.Events) > 0 {
			send(out)
		}
		if out.Canceled {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}
