package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"txnode/memory"
	"txnode/memory/layout"
	"txnode/rdma/tcp"
)

// ServiceName is what a server calls the service of a catalog, in tcp.ServerOptions.Services.
const ServiceName = "catalog"

// longestPoll bounds how long a service lets a client wait.
const longestPoll = 10 * time.Second

// service answers requests about a catalog.
type service struct {
	cat   layout.Catalog
	limit int // bytes of the reply to a load

	mu   sync.Mutex
	size int // the reply to a load has no more bytes; 0: that is not known
}

// NewService makes a service of a catalog, which stays the caller's: it is closed after the
// server's Shutdown. Safe for concurrent use.
func NewService(cat layout.Catalog) tcp.Service {
	return (&service{cat: cat, limit: tcp.MaxMessage}).answer
}

// answer answers a request: see wire.go.
func (s *service) answer(ctx context.Context, request []byte) ([]byte, error) {
	p, err := s.execute(ctx, request)
	if err != nil {
		return nil, told(err)
	}
	return p, nil
}

func (s *service) execute(ctx context.Context, request []byte) ([]byte, error) {
	if len(request) < 2 || request[0] != format {
		return nil, fmt.Errorf("%w: this catalog speaks format %d: use the same release of txnode on both sides",
			errMessage, format)
	}
	op, p := request[1], request[2:]
	if op == opLoad && len(p) == 0 {
		return s.load()
	}
	if op == opAlive {
		return s.alive(p)
	}
	if op != opApply && op != opAwait {
		return nil, fmt.Errorf("%w: request %d of %d bytes", errMessage, op, len(p))
	}
	at, p, err := takePlace(p)
	if err != nil {
		return nil, err
	}
	if op == opApply {
		changes, err := getEntries(p)
		if err != nil {
			return nil, err
		}
		return s.apply(at, changes)
	}
	if len(p) != 4 {
		return nil, fmt.Errorf("%w: %d bytes behind the place", errMessage, len(p))
	}
	return s.await(ctx, at, min(time.Duration(wire.Uint32(p))*time.Millisecond, longestPoll))
}

// place is an answer that says where the catalog is.
func (s *service) place(rev layout.Revision) ([]byte, error) {
	id, err := s.cat.Identity()
	return place{id, rev}.append(nil), err
}

func (s *service) load() ([]byte, error) {
	entries, rev, err := s.cat.Load()
	if err != nil {
		return nil, err
	}
	at, err := s.place(rev)
	if err != nil {
		return nil, err
	}
	n := placeSize + sizeOf(entries)
	if n > s.limit {
		return nil, fmt.Errorf("the entries have %d bytes: at most %d can be sent to other processes", n, s.limit)
	}
	return appendEntries(append(make([]byte, 0, n), at...), entries), nil
}

func (s *service) apply(at place, changes []layout.Entry) ([]byte, error) {
	if id, err := s.cat.Identity(); err != nil || id != at.id {
		return nil, errors.Join(err, fmt.Errorf("%w: a change of catalog %v, and this is %v",
			layout.ErrForeign, at.id, id))
	}
	if err := s.room(changes); err != nil {
		return nil, err
	}
	rev, err := s.cat.Apply(at.rev, changes)
	if err != nil {
		return nil, err
	}
	return s.place(rev)
}

// alive notes a sign of life.
func (s *service) alive(p []byte) ([]byte, error) {
	beats, err := getBeats(p)
	if err == nil && len(beats) != 1 {
		err = fmt.Errorf("%w: %d beats", errMessage, len(beats))
	}
	if err != nil {
		return nil, err
	}
	all, err := s.cat.KeepAlive(beats[0])
	if err != nil {
		return nil, err
	}
	rev, err := s.cat.Revision()
	if err != nil {
		return nil, err
	}
	at, err := s.place(rev)
	return appendBeats(at, all...), err
}

// room refuses changes after which no client could load the catalog any more. It adds up what
// changes may take, and looks at the entries only when that is too much.
func (s *service) room(changes []layout.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := sizeOf(changes)
	if s.size > 0 && s.size+more <= s.limit {
		s.size += more
		return nil
	}
	entries, _, err := s.cat.Load()
	if err != nil {
		return err
	}
	was := placeSize + sizeOf(entries)
	next := was
	have := make(map[string]int, len(entries))
	for i := range entries {
		have[entries[i].Key] = len(entries[i].Value)
	}
	for _, c := range changes {
		n, there := have[c.Key]
		if there {
			next -= entryHead + len(c.Key) + n
			delete(have, c.Key)
		}
		if c.Value != nil {
			next += entryHead + len(c.Key) + len(c.Value)
		}
	}
	if next > s.limit && next > was {
		return fmt.Errorf("%w: the catalog would have %d bytes, and at most %d can be sent to other processes: drop "+
			"tables, or use larger segments", memory.ErrNoSpace, next, s.limit)
	}
	s.size = max(was, next) // the change may fail
	return nil
}

// await waits until the catalog is at another place; or until the time is over, or ctx ends.
func (s *service) await(ctx context.Context, at place, wait time.Duration) ([]byte, error) {
	id, err := s.cat.Identity()
	if err != nil {
		return nil, err
	}
	rev, err := s.cat.Revision()
	if err != nil {
		return nil, err
	}
	if wait > 0 && at == (place{id, rev}) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if _, err := s.cat.Await(ctx, at.rev); err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
			return nil, err
		}
		if rev, err = s.cat.Revision(); err != nil {
			return nil, err
		}
	}
	return s.place(rev)
}
