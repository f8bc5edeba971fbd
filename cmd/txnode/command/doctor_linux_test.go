package command_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"txnode/cmd/txnode/command"
)

// onSmallTmpfs names a directory on which the test binary mounts a small file system, in name
// spaces of its own, to serve blades of shared memory there.
const onSmallTmpfs = "TXNODE_TEST_ON_SMALL_TMPFS"

func init() { programs[onSmallTmpfs] = serveOnSmallTmpfs }

func serveOnSmallTmpfs(dir string) int {
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return noFilter
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return command.Main(ctx, command.System(), []string{"serve", "--shm", filepath.Join(dir, "x"), "--memory", "1MiB"})
}

// TestServeSmallShm: blades of shared memory whose directory has no room are refused in one line.
func TestServeSmallShm(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path)
	c.Env = append(os.Environ(), onSmallTmpfs+"="+socketDir(t))
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	var errs strings.Builder
	c.Stderr = &errs
	err = c.Run()
	if c.ProcessState == nil || c.ProcessState.ExitCode() == noFilter {
		t.Skipf("this host has no name spaces to mount in: %v %s", err, errs.String())
	}
	if code := c.ProcessState.ExitCode(); code != 1 || strings.Count(errs.String(), "\n") != 1 ||
		!strings.Contains(errs.String(), "no space left on device; make room there") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
