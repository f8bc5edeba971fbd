//go:build unix && !linux

package main

import (
	"errors"
	"testing"
	"time"
)

// clock is one that all processes of the host share.
func clock() int64 { return time.Now().UnixNano() }

// apart would run the test on nodes of their own.
func apart(*testing.T, int) (why string) { return "it takes Linux" }

func join() {}

func joined() (network, string) { return nil, "" }

// limit would set a limit of a writer.
func (c *chaos) limit(int, int, uint64) (heal func() error, err error) {
	return nil, errors.ErrUnsupported
}
