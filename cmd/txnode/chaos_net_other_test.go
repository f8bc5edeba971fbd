//go:build unix && !linux

package main

import (
	"testing"
	"time"
)

// clock is one that all processes of the host share.
func clock() int64 { return time.Now().UnixNano() }

// apart would run TestChaos on nodes of their own.
func apart(*testing.T, int) (why string) { return "it takes Linux" }

func join() {}

func joined() (network, string) { return nil, "" }
