package crashtest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"txnode/occ"
	"txnode/txn"
)

// life is the settings of a database and of who writes to it.
type life struct {
	Dir        string
	Policy     occ.Policy
	Blades     int
	Backups    int
	Workers    int
	Accounts   uint64 // keys below are accounts, with money; the next as many come and go
	Seed       uint64
	Durability txn.Durability
	Loss       bool // a blade stops while the writer runs, and may come back
}

func (l *life) options() txn.Options {
	return txn.Options{
		Dir: l.Dir, Blades: l.Blades, Backups: txn.F(l.Backups), Policy: l.Policy,
		BladeSize: 256 << 20, SegmentSize: 1 << 20, LogArea: 64 << 10, // a ring that comes round soon
		IndexGroups: 8, // an index that splits soon
		CacheBytes:  1 << 20,
		Durability:  l.Durability,
	}
}

func (l *life) String() string {
	return fmt.Sprintf("policy %v, %d blades, %d backups, %d workers, durability %v, loss of a blade %v, seed %d",
		l.Policy, l.Blades, l.Backups, l.Workers, l.Durability, l.Loss, l.Seed)
}

func (l *life) spec() string {
	p, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return string(p)
}

// A record's value is the id of the transaction that wrote it, a balance, and
// padding that makes records move.
func value(id uint64, balance int64, pad int) []byte {
	p := binary.LittleEndian.AppendUint64(nil, id)
	p = binary.LittleEndian.AppendUint64(p, uint64(balance))
	for i := range pad {
		p = append(p, byte(id)+byte(i))
	}
	return p
}

func parse(p []byte) (id uint64, balance int64, pad int, err error) {
	if len(p) < 16 {
		return 0, 0, 0, fmt.Errorf("a value of %d bytes", len(p))
	}
	id, balance = binary.LittleEndian.Uint64(p), int64(binary.LittleEndian.Uint64(p[8:]))
	for i, b := range p[16:] {
		if b != byte(id)+byte(i) {
			return id, balance, i, fmt.Errorf("the value of transaction %#x is not what it wrote: byte %d", id, 16+i)
		}
	}
	return id, balance, len(p) - 16, nil
}

// op is one operation: what it saw, and what it does.
type op struct {
	Key     uint64
	Kind    byte   // 'r', 'w', 'd'
	Seen    uint64 // id of the writer of what was there, 0: nothing
	Balance int64  // for 'w': the new one
	Pad     int64
}

// frame is what the victim says: what a transaction is about to commit, or that it
// has committed.
type frame struct {
	Worker  int64
	Commit  bool // it has committed: only ID and Time count
	ID      uint64
	Time    int64 // ns: of its beginning, or of the acknowledgement
	Deposit int64 // by which it changes the sum of balances
	Ops     []op
}

// send writes a frame with one system call, so that it is either said or not.
func send(f *os.File, x *frame) error {
	p := make([]byte, 4, 128)
	var err error
	for _, v := range []any{x.Worker, x.Commit, x.ID, x.Time, x.Deposit, uint32(len(x.Ops)), x.Ops} {
		if p, err = binary.Append(p, binary.LittleEndian, v); err != nil {
			return err
		}
	}
	binary.LittleEndian.PutUint32(p, uint32(len(p)-4))
	_, err = f.Write(p)
	return err
}

// receive reads frames until the victim is gone. A frame that is cut off was not said.
func receive(r io.Reader, fn func(*frame)) error {
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		var n uint32
		if err := binary.Read(in, binary.LittleEndian, &n); err != nil {
			return nil //nolint:nilerr // the victim is gone
		}
		p := make([]byte, n)
		if _, err := io.ReadFull(in, p); err != nil {
			return nil //nolint:nilerr // cut off: not said
		}
		x := &frame{}
		var ops uint32
		at := 0
		for _, v := range []any{&x.Worker, &x.Commit, &x.ID, &x.Time, &x.Deposit, &ops} {
			k, err := binary.Decode(p[at:], binary.LittleEndian, v)
			if err != nil {
				return fmt.Errorf("a frame of %d bytes: %w", n, err)
			}
			at += k
		}
		x.Ops = make([]op, ops)
		if _, err := binary.Decode(p[at:], binary.LittleEndian, x.Ops); err != nil {
			return fmt.Errorf("a frame of %d bytes: %w", n, err)
		}
		fn(x)
	}
}
