package embedded

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"txnode/internal/eintr"
)

// believed are the kinds of file systems of which it is known that any write moves the change
// time of the file, that one through a mapping, too.
var believed = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC}

// markOf says what a file is; false: that cannot be told.
func markOf(path string) (mark, bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(boot) == 0 {
		return mark{}, false
	}
	var fs unix.Statfs_t
	if eintr.Repeat(func() error { return unix.Statfs(path, &fs) }) != nil ||
		!slices.Contains(believed, int64(fs.Type)) { //nolint:unconvert // it has another type on some machines
		return mark{}, false
	}
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return mark{}, false
	}
	return mark{
		string(boot), uint64(st.Dev), st.Ino, st.Size, //nolint:unconvert // it has another type on some machines
		int64(st.Ctim.Sec), int64(st.Ctim.Nsec), //nolint:unconvert // the same
	}, true
}

// fileClock is the clock that change times are taken from, or, on newer systems, one that is not
// ahead of it.
var fileClock = func() (sec, nsec int64, ok bool) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now)
	sec, nsec = now.Unix()
	return sec, nsec, err == nil
}
