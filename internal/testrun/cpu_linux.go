package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// processorTime is what the processes of a group, and those of their children that have ended,
// have used of the processors.
func processorTime(group int) time.Duration {
	var ticks int64
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		p, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The process's name, in parentheses, may have anything in it; the third field follows.
		f := bytes.Fields(p[bytes.LastIndexByte(p, ')')+1:])
		const pgrp, utime, cstime = 5 - 3, 14 - 3, 17 - 3 // proc(5)
		if len(f) <= cstime || string(f[pgrp]) != strconv.Itoa(group) {
			continue
		}
		for _, v := range f[utime : cstime+1] {
			n, _ := strconv.ParseInt(string(v), 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * (10 * time.Millisecond) // USER_HZ is 100 wherever Go runs
}
