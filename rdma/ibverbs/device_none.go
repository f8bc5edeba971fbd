//go:build !(linux && cgo && ibverbs)

package ibverbs

// Built reports whether this program can open devices: it was built with the tag ibverbs.
const Built = false

func openDevice(Device) (device, error) { return nil, ErrNotBuilt }
