package shm

import (
	"errors"
	"fmt"
	"io"
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
//	24  life     of the server: welcome
//	32  boot     of the system
//
// and has the control words of each blade then (package region), which all clients map.
type keysHeader struct{ magic, version, blades, life, boot uint64 }

const keysMagic = 0x7379656b2e7874 // "tx.keys"

// keys are the control words of all blades of a server.
type keys struct {
	mem []byte
	f   *os.File
}

func keysSize(blades int) int { return headerSize + blades*region.WordsSize }

// words are the control words of a blade.
func (k *keys) words(b int) []byte {
	return k.mem[keysSize(b):keysSize(b+1):keysSize(b+1)]
}

func (k *keys) close() error { return errors.Join(unix.Munmap(k.mem), k.f.Close()) }

// makeKeys makes the file in the place of the one before, which nothing uses any more.
func makeKeys(path string, blades int, life, boot uint64) (*keys, error) {
	p := make([]byte, headerSize)
	*(*keysHeader)(unsafe.Pointer(&p[0])) = keysHeader{keysMagic, Version, uint64(blades), life, boot}
	f, err := makeFile(path, p, keysSize(blades))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	k, _, err := mapKeys(path, f)
	return k, err
}

// mapKeys maps a file of keys, which it has from then on.
func mapKeys(path string, f *os.File) (*keys, *keysHeader, error) {
	p := make([]byte, headerSize)
	h := (*keysHeader)(unsafe.Pointer(&p[0]))
	_, err := io.ReadFull(io.NewSectionReader(f, 0, headerSize), p)
	if err == nil {
		switch st, failed := f.Stat(); {
		case failed != nil:
			err = failed
		case h.magic != keysMagic || !st.Mode().IsRegular():
			err = errors.New("it is no file of keys")
		case h.version != Version:
			err = fmt.Errorf("it has version %d, and this program has %d", h.version, Version)
		case h.blades == 0 || h.blades > maxBlades || st.Size() != int64(keysSize(int(h.blades))):
			err = fmt.Errorf("it has %d bytes for %d blades", st.Size(), h.blades)
		}
	}
	k := &keys{f: f}
	if err == nil {
		k.mem, err = unix.Mmap(int(f.Fd()), 0, keysSize(int(h.blades)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, nil, errors.Join(damaged(path, "%v", err), f.Close())
	}
	return k, h, nil
}

// fenceBefore stops the blades of a server of this name that has ended without doing so. Its
// clients have their memory mapped still, and that of a blade's file is this server's, too.
func fenceBefore(path string, l *lanes) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	k, h, err := mapKeys(path, f)
	if err != nil {
		return err
	}
	for i := range int(h.blades) {
		region.Stop(k.words(i))
	}
	if h.boot == l.header.boot {
		err = l.Settle()
	}
	return errors.Join(err, k.close())
}
