package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes a command end with the thread that starts it.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func threadID() int { return unix.Gettid() }
