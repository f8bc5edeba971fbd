//go:build !linux

package catalog

import (
	"errors"
	"os"
)

// dirtyPages is for systems that can be asked.
func dirtyPages(*os.File) (uint64, error) { return 0, errors.ErrUnsupported }
