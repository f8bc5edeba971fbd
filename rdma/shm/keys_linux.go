package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"txnode/rdma/region"
)

// The file of keys of a server begins with a page:
//
//	 0  magic
//	 8  version
//	16  blades
//	24  life     the number of the server as a member: welcome
//	32  lanes    the number of the file of lanes that it uses
//
// and has the control words of each blade then (package region), which all clients map.
type keysHeader struct{ magic, version, blades, life, lanes uint64 }

const keysMagic = 0x7379656b2e7874 // "tx.keys"

// keys are the control words of all blades of a server.
type keys struct {
	mem    []byte
	f      *os.File
	blades int
	life   member
	lanes  uint64
}

func keysSize(blades int) int { return headerSize + blades*region.WordsSize }

// words are the control words of a blade.
func (k *keys) words(b int) []byte {
	return k.mem[keysSize(b):keysSize(b+1):keysSize(b+1)]
}

func (k *keys) close() error { return errors.Join(unix.Munmap(k.mem), k.f.Close()) }

// makeKeys makes the file in the place of the one before, which nothing uses any more.
func makeKeys(path string, blades int, l *lanes) (*keys, error) {
	p := make([]byte, headerSize)
	*(*keysHeader)(unsafe.Pointer(&p[0])) = keysHeader{keysMagic, Version, uint64(blades), uint64(l.me), l.header.id}
	made := path + ".new"
	err := os.Remove(made)
	var f *os.File
	if err == nil || errors.Is(err, os.ErrNotExist) {
		f, err = os.OpenFile(made, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	if err = reserve(f, keysSize(blades)); err == nil {
		_, err = f.WriteAt(p, 0)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: making %s, of %d bytes: %w", ErrDirectory, path, keysSize(blades), err),
			f.Close(), os.Remove(made))
	}
	return mapKeys(path, f)
}

// mapKeys maps a file of keys, which it has from then on.
func mapKeys(path string, f *os.File) (*keys, error) {
	var h keysHeader
	size, err := readHeader(f, unsafe.Pointer(&h), unsafe.Sizeof(h))
	switch {
	case err != nil:
	case h.magic != keysMagic:
		err = errors.New("it is no file of keys")
	case h.version != Version:
		err = fmt.Errorf("it has version %d, and this program has %d", h.version, Version)
	case h.blades == 0 || h.blades > maxBlades || size != int64(keysSize(int(h.blades))):
		err = fmt.Errorf("it has %d bytes for %d blades", size, h.blades)
	case !member(h.life).valid():
		err = fmt.Errorf("it is of server %#x", h.life)
	}
	k := &keys{f: f, blades: int(h.blades), life: member(h.life), lanes: h.lanes}
	if err == nil {
		k.mem, err = mapShared(f, keysSize(k.blades))
	}
	if err != nil {
		return nil, errors.Join(damaged(path, "%v", err), f.Close())
	}
	return k, nil
}

// fenceBefore stops the blades of a server of this name that has ended without doing so. Its
// clients have their memory mapped still, and that of a blade's file is this server's, too.
func fenceBefore(dir, path string, l *lanes) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	if err := ownFile(f, dir); err != nil {
		return errors.Join(err, f.Close())
	}
	k, err := mapKeys(path, f)
	if err != nil {
		return err
	}
	if k.lanes != l.header.id {
		err = damaged(path, "its processes announced themselves in another file than %s, which was removed", l.f.Name())
	} else {
		err = l.shut(context.Background(), k)
	}
	return errors.Join(err, k.close())
}
