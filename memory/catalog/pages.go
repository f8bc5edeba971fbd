package catalog

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// Numbers of bbolt's file format, version 2, in the byte order of the machine:
// pages, of which the first two are copies of the meta page, one of the last
// commit and one of the commit before.
const (
	pageHeader     = 16 // id 8, flags 2, count 2, overflow 4
	pageBranch     = 0x01
	pageLeaf       = 0x02
	pageFreelist   = 0x10
	branchElement  = 16 // pos 4, key size 4, page 8
	leafElement    = 16 // flags 4, pos 4, key size 4, value size 4
	leafBucket     = 0x01
	bucketHeader   = 16 // page of its root, or 0: a page follows here, without a number; 8
	metaSum        = 56 // the checksum of what is before it
	freelistMany   = 0xFFFF
	maxBucketDepth = 16 // of pages, much more than a file of 64-bit size has
)

// pages is a look at a bbolt file's structure: which pages its tree consists of,
// and which its list of free pages has. bbolt itself takes the older of its two meta
// pages if the newer one is damaged, so that the last commit is gone, and hands
// pages out that the list calls free, whether the tree uses them or not.
type pages struct {
	file io.ReaderAt
	size uint64 // of a page
	end  uint64 // the first page that has never been used
	used []bool // by number
	free []bool
}

// checkPages reads the file of an open catalog, length bytes in pages of size, and says
// what is wrong with it, or nil. Entries are not looked at: they have checksums. It
// takes bytes from the file, not from a mapping of it, and trusts none of them.
func checkPages(file io.ReaderAt, length int64, size int) (*pages, error) {
	p := &pages{file: file, size: uint64(size)}
	var newest []byte
	for id := range uint64(2) {
		meta, err := p.read(id, 1)
		if err != nil {
			return nil, err
		}
		meta = meta[pageHeader:]
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:metaSum])
		if u64(meta[metaSum:]) != sum.Sum64() {
			return nil, fmt.Errorf("copy %d of its meta page is damaged, which may have been the last commit", id)
		}
		if newest == nil || u64(meta[48:]) > u64(newest[48:]) {
			newest = meta
		}
	}
	root, list := u64(newest[16:]), u64(newest[32:])
	if p.end = u64(newest[40:]); p.end > uint64(length)/p.size {
		return nil, fmt.Errorf("%d pages do not fit %d bytes", p.end, length)
	}
	p.used, p.free = make([]bool, p.end), make([]bool, p.end)
	if err := p.tree(root, maxBucketDepth); err != nil {
		return nil, err
	}
	if err := p.freelist(list); err != nil {
		return nil, err
	}
	for id := uint64(2); id < p.end; id++ {
		if p.used[id] == p.free[id] {
			return nil, fmt.Errorf("page %d is in use: %v, and is in the list of free pages: %v",
				id, p.used[id], p.free[id])
		}
	}
	return p, nil
}

// tree marks the pages of the tree below page id.
func (p *pages) tree(id uint64, depth int) error {
	if depth == 0 {
		return fmt.Errorf("page %d is too far from the root", id)
	}
	page, err := p.take(id)
	if err != nil {
		return err
	}
	return p.elements(id, page, depth)
}

// elements looks at the elements of a page, or of a bucket that is in an element of page id.
// What they are about, keys and values, follows them without gaps and in their order: so none
// is missing from their number, which would be entries that nobody misses.
func (p *pages) elements(id uint64, page []byte, depth int) error {
	flags, count := u16(page[8:]), int(u16(page[10:]))
	if flags != pageBranch && flags != pageLeaf {
		return fmt.Errorf("page %d is not one of the tree: flags %#x", id, flags)
	}
	elements := page[pageHeader:]
	next := uint64(count) * leafElement // a branch element is as large
	if next > uint64(len(elements)) {
		return fmt.Errorf("page %d is said to have %d elements", id, count)
	}
	for i := range count {
		at := i * leafElement
		e := elements[at:]
		pos := uint64(u32(e))
		var value, end uint64
		if flags == pageLeaf {
			pos = uint64(u32(e[4:]))
			value = next + uint64(u32(e[8:]))
			end = value + uint64(u32(e[12:]))
		} else {
			end = next + uint64(u32(e[4:]))
		}
		if uint64(at)+pos != next || end > uint64(len(elements)) {
			return fmt.Errorf("element %d of page %d, which is said to have %d, is not where it should be",
				i, id, count)
		}
		next = end
		switch {
		case flags == pageBranch:
			if err := p.tree(u64(e[8:]), depth-1); err != nil {
				return err
			}
		case u32(e)&leafBucket != 0:
			if err := p.bucket(id, elements[value:end], depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket looks at what an element of page id says of a bucket.
func (p *pages) bucket(id uint64, value []byte, depth int) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("page %d has a bucket of %d bytes", id, len(value))
	}
	if root := u64(value); root != 0 {
		return p.tree(root, depth-1)
	}
	if value = value[bucketHeader:]; len(value) < pageHeader || depth == 0 { // it is here itself
		return fmt.Errorf("page %d has a bucket that is cut off", id)
	}
	return p.elements(id, value, depth-1)
}

// freelist marks the pages in the list of free ones, and those of the list as used.
func (p *pages) freelist(id uint64) error {
	page, err := p.take(id)
	if err != nil {
		return err
	}
	if flags := u16(page[8:]); flags != pageFreelist {
		return fmt.Errorf("page %d is not the list of free pages: flags %#x", id, flags)
	}
	count, list := uint64(u16(page[10:])), page[pageHeader:]
	if count == freelistMany {
		count, list = u64(list), list[8:]
	}
	if count > uint64(len(list))/8 {
		return fmt.Errorf("the list of free pages is said to have %d of them", count)
	}
	for i := range count {
		free := u64(list[i*8:])
		if free < 2 || free >= p.end || p.free[free] {
			return fmt.Errorf("the list of free pages has page %d, which does not exist or is in it twice", free)
		}
		p.free[free] = true
	}
	return nil
}

// take reads page id with the pages that continue it, and marks them as used.
func (p *pages) take(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end {
		return nil, fmt.Errorf("there is no page %d of the tree", id)
	}
	head, err := p.read(id, 1)
	if err != nil {
		return nil, err
	}
	more := uint64(u32(head[12:]))
	if more >= p.end-id {
		return nil, fmt.Errorf("page %d is said to be continued by %d", id, more)
	}
	if u64(head) != id {
		return nil, fmt.Errorf("page %d says that it is page %d", id, u64(head))
	}
	for i := id; i <= id+more; i++ {
		if p.used[i] {
			return nil, fmt.Errorf("page %d is in use twice", i)
		}
		p.used[i] = true
	}
	if more == 0 {
		return head, nil
	}
	return p.read(id, 1+more)
}

// read reads n pages from page id on.
func (p *pages) read(id, n uint64) ([]byte, error) {
	out := make([]byte, n*p.size)
	if _, err := p.file.ReadAt(out, int64(id*p.size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return out, nil
}

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
