package blink

import "fmt"

// plan decides how many images the new contents make, and returns their number.
func (b *Builder) plan() (int, error) {
	im := b.image(0, b.count, b.low, b.high, b.bytes())
	if b.fits(im) {
		b.images = append(b.images, im)
		return 1, nil
	}
	b.sum()
	var err error
	if b.appends() {
		err = b.fill()
	} else {
		err = b.halve(0, b.count, b.low, b.high)
	}
	if err != nil {
		b.images = b.images[:0]
	}
	return len(b.images), err
}

// appends reports whether all changes are entries behind the old ones.
func (b *Builder) appends() bool {
	last := b.runs[len(b.runs)-1]
	return last.source == changeList && last.at == b.nodes[firstNode].count && last.to-last.from == len(b.changes)
}

// prepends reports whether all changes are entries before the old ones, of which some are left.
func (b *Builder) prepends() bool {
	first := b.runs[0]
	return first.source == changeList && first.to-first.from == len(b.changes) && b.count > len(b.changes)
}

// sum fills sums: sums[i] is the length of the first i entries without a prefix cut off.
func (b *Builder) sum() {
	b.sums = append(b.sums[:0], 0)
	sum := 0
	for _, r := range b.runs {
		for i := r.from; i < r.to; i++ {
			if r.source == changeList {
				sum += b.length(&b.changes[i])
			} else {
				n := &b.nodes[r.source]
				at, end := n.entry(i)
				sum += end - at + slotSize + n.prefix
			}
			b.sums = append(b.sums, sum)
		}
	}
}

// halve makes images of the entries from, ..., to-1: one if they fit, else those of two parts.
func (b *Builder) halve(from, to int, low []byte, high fence) error {
	im := b.image(from, to, low, high, b.sums[to]-b.sums[from])
	if b.fits(im) {
		b.images = append(b.images, im)
		return nil
	}
	if to-from < 2 {
		return b.tooLong(im)
	}
	cut := b.middle(im)
	if better := b.better(im, cut); better != cut && b.fitsBoth(im, better) {
		cut = better
	}
	separator := b.keep(b.separator(cut))
	if err := b.halve(from, cut, low, fence{key: separator}); err != nil {
		return err
	}
	return b.halve(cut, to, separator, high)
}

// middle is where the two parts differ least: in entries, if these are limited and too many, else
// in bytes. The larger part then has at most half of the bytes and half an entry.
//
// Claim: both parts of a node that was full before one entry was added fit. Let K be the longest
// key, E > K the longest entry, and R >= 2K+4E the room behind the header. The old entries had at
// most R-low-high bytes. The left part with its fences has at most
//
//	(R-low-high+E)/2 + E/2 + low + K = R/2 + E + K + (low-high)/2 <= R/2 + E + 3K/2
//
// bytes, and the right part likewise. That is at most R, because R/2 >= K+2E >= E + 3K/2. In a last
// leaf the bytes that stay free count as the high fence. They can be K more than before the split,
// and R/2 >= E + 2K, too.
func (b *Builder) middle(im image) int {
	from, to := im.from, im.to
	if limit := b.geometry.MaxEntries; limit > 0 && to-from > limit {
		return from + (to-from)/2
	}
	all := b.part(im, to)
	cut, best := from+1, all
	for i := from + 1; i < to; i++ {
		left := b.part(im, i)
		larger := max(left, all-left)
		if larger >= best {
			break
		}
		cut, best = i, larger
	}
	return cut
}

// part is the length of im's entries before entry i.
func (b *Builder) part(im image, i int) int {
	return b.sums[i] - b.sums[im.from] - (i-im.from)*im.prefix
}

// better is a cut that promises more than the middle does. New entries before all old ones are
// cut off, because more of their kind may follow. Otherwise it is the cut with the shortest
// separator, and of these the one nearest to the middle, that leaves either part a sixth of the
// bytes. So keys that begin alike come together, and what is appended to each of several such
// groups fills their leaves.
func (b *Builder) better(im image, middle int) int {
	if b.level > 0 || b.geometry.MaxEntries > 0 {
		return middle
	}
	if b.prepends() && im.to-im.from == b.count {
		return len(b.changes)
	}
	all := b.part(im, im.to)
	cut, length := middle, b.separatorLen(middle)
	for i := im.from + 1; i < im.to; i++ {
		if left := b.part(im, i); min(left, all-left) < all/6 {
			continue
		}
		n := b.separatorLen(i)
		if n < length || n == length && max(i-middle, middle-i) < max(cut-middle, middle-cut) {
			cut, length = i, n
		}
	}
	return cut
}

// fitsBoth reports whether both parts of im fit if it is cut at i.
func (b *Builder) fitsBoth(im image, i int) bool {
	separator := b.separator(i)
	return b.fits(b.image(im.from, i, im.low, fence{key: separator}, b.sums[i]-b.sums[im.from])) &&
		b.fits(b.image(i, im.to, separator, im.high, b.sums[im.to]-b.sums[i]))
}

// fill makes images of all entries, each as full as can be.
func (b *Builder) fill() error {
	from, low := 0, b.low
	for {
		im := b.image(from, b.count, low, b.high, b.sums[b.count]-b.sums[from])
		if b.fits(im) {
			b.images = append(b.images, im)
			return nil
		}
		if b.count-from < 2 {
			return b.tooLong(im)
		}
		if im = b.longest(from, low); !b.fits(im) {
			return b.tooLong(im)
		}
		im.high.key = b.keep(im.high.key)
		b.images = append(b.images, im)
		from, low = im.to, im.high.key
	}
}

// longest is the longest image that begins with entry from and fits, of all but the last entry at
// most. Its high fence is good until the next separator.
//
// When one entry was added behind those of a leaf, it has all of them but one at least. The
// separator in front of the last one has the prefix of the leaf, and is no longer than that entry's
// key. So it needs at most the prefix more than the entry. A high fence has had these bytes, or
// image has kept them free.
func (b *Builder) longest(from int, low []byte) image {
	end := func(to int) image {
		return b.image(from, to, low, fence{key: b.separator(to)}, b.sums[to]-b.sums[from])
	}
	// What fits whatever the separator is, and then one by one.
	to := from + 1
	most := b.geometry.Room() - headerSize - len(low) - b.geometry.MaxKey
	for to+1 < b.count && !b.geometry.full(to+1-from, 0) && b.sums[to+1]-b.sums[from] <= most {
		to++
	}
	for to+1 < b.count && b.fits(end(to+1)) {
		to++
	}
	return end(to)
}

// tooLong is the error for an entry that is too long for a node. A valid geometry has none.
func (b *Builder) tooLong(im image) error {
	return fmt.Errorf("%w: one entry needs %d bytes in a node of at most %d", ErrGeometry, im.size, b.geometry.Room())
}

// separator is the low fence of an image that begins with entry i: in a leaf the shortest key that
// is above entry i-1. It is good until the next call.
func (b *Builder) separator(i int) []byte {
	b.keys[1] = b.appendKey(b.keys[1][:0], i)
	if b.level > 0 {
		return b.keys[1]
	}
	b.keys[0] = b.appendKey(b.keys[0][:0], i-1)
	return b.keys[1][:commonPrefix(b.keys[0], b.keys[1])+1]
}

// separatorLen is the length of separator(i) in a leaf. It copies no keys if it need not.
func (b *Builder) separatorLen(i int) int {
	for _, r := range b.runs {
		if k := r.from + i - r.at; k > r.from && k < r.to && r.source != changeList {
			n := &b.nodes[r.source]
			return n.prefix + commonPrefix(n.Suffix(k-1), n.Suffix(k)) + 1
		}
	}
	return len(b.separator(i))
}

// keep returns a copy of a separator that is good as long as the images.
func (b *Builder) keep(separator []byte) []byte {
	start := len(b.separators)
	b.separators = append(b.separators, separator...)
	return b.separators[start:len(b.separators):len(b.separators)]
}

// appendKey appends the key of entry i of the new contents to dst.
func (b *Builder) appendKey(dst []byte, i int) []byte {
	for _, r := range b.runs {
		k := r.from + i - r.at
		switch {
		case k >= r.to:
			continue
		case r.source == changeList:
			return append(dst, b.changes[k].Key...)
		default:
			return b.nodes[r.source].AppendKey(dst, k)
		}
	}
	return dst
}
