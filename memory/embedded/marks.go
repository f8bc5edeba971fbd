package embedded

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"txnode/internal/owndir"
)

// Who opens a database that is to survive a loss of power reads what the system has in memory of
// the region files, and after a write has failed that is not what is on the disk, without anybody
// being told (inproc.BladeOptions.Settle). So all of it is written again, unless it is proved
// that the disk has it:
//
//  1. When the file was opened before, in the same life of the system, it was written again, or
//     proved to be there, or made.
//  2. When it was closed, everything was written to the disk (inproc.Fabric.Sync), and no write
//     had failed since it was opened: each is told to the handle that was open all the time, and
//     then no other flush succeeds.
//  3. Nobody has changed it since: it is the same file, of the same change time, which a write
//     moves, by whatever program, through a mapping, too, on the file systems that count: the
//     clock that such times are taken from has moved on before it was closed, which it does only
//     every few milliseconds.
//
// That is noted in a file beside the regions when they are closed, and taken away by whoever
// opens the database for writing next, whatever he promises: it is good once. After a restart of
// the system it is worth nothing, and need not be: what it has in memory then it has read from
// the disk.

// marksName is the file of the notes.
const marksName = "settled.json"

// marks says of region files that the disk has all of them, by their names.
type marks map[string]mark

// mark is what a file was when it was closed.
type mark struct {
	Boot  string `json:"boot"` // which life of the system
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	Sec   int64  `json:"sec"` // change time
	Nsec  int64  `json:"nsec"`
}

// note writes everything to the disk of the region files of which the disk had the rest, and
// returns what they are now.
func (h *Host) note() marks {
	if h.dir == "" {
		return nil
	}
	m := marks{}
	for _, path := range h.sound {
		for _, b := range h.fabric.Blades() {
			if h.Options.BladeNames[b.ID] != path || h.fabric.Sync(b.ID) != nil {
				continue
			}
			was, known := h.own[path]
			if x, ok := markOf(h.now(path)); ok && known && x.Dev == was.Dev && x.Inode == was.Inode && x.outlasted() {
				m[filepath.Base(path)] = x
			}
		}
	}
	return m
}

// now is where a region file is sought when it is closed.
func (h *Host) now(path string) string { return filepath.Join(h.dir, filepath.Base(path)) }

// recognize looks at the region files that are mapped now, so that nothing is noted of others:
// of a database that has come to be in this place since, nobody knows what the disk has.
func (h *Host) recognize() {
	if h.dir == "" {
		return
	}
	h.own = map[string]mark{}
	for _, path := range h.sound {
		if x, ok := markOf(h.now(path)); ok {
			h.own[path] = x
		}
	}
}

// outlasted waits until a change of the file would move its change time; false: it does not
// come to that, as when the clock was set back.
func (x mark) outlasted() bool {
	for range 100 {
		sec, nsec, ok := fileClock()
		if !ok || sec > x.Sec || sec == x.Sec && nsec > x.Nsec {
			return ok
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// put notes it in a directory. Where that fails, it is not noted.
func (m marks) put(dir string) {
	if len(m) == 0 {
		return
	}
	p, err := json.Marshal(m)
	if err != nil {
		return
	}
	path := filepath.Join(dir, marksName)
	if os.WriteFile(path+".new", p, owndir.FileMode) != nil || os.Rename(path+".new", path) != nil {
		_ = os.Remove(path + ".new")
	}
}

// takeMarks returns what is noted in a directory, and makes sure that nobody else believes it.
func takeMarks(dir string) marks {
	path := filepath.Join(dir, marksName)
	p, err := os.ReadFile(path)
	if err != nil || os.Remove(path) != nil {
		return nil
	}
	var m marks
	if json.Unmarshal(p, &m) != nil {
		return nil
	}
	return m
}

// hold reports whether a region file is what it was when it was closed.
func (m marks) hold(path string) bool {
	was, noted := m[filepath.Base(path)]
	now, ok := markOf(path)
	return noted && ok && was == now
}
