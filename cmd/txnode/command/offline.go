package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/verify"
)

// errCatalogGone: a directory has regions, and no catalog.
var errCatalogGone = errors.New("catalog.db is missing")

// offline is a database in a directory that is looked at without being opened.
type offline struct {
	*verify.Database
	host *embedded.Host
}

// databaseIn makes sure that a directory has a database, or what was one: another stays as it is.
func databaseIn(dir string) error {
	_, err := os.Stat(filepath.Join(dir, embedded.CatalogName))
	switch {
	case err == nil:
		return nil
	case dir == "":
		return usagef("the name of the directory is empty")
	case errors.Is(err, unix.ENOTDIR):
		return failf("%s is no directory: name that of a database, with catalog.db and the blades in it", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if regions := regionsIn(dir); len(regions) > 0 {
		return fmt.Errorf("%w from %s, which has %s: bring it back, or restore a backup",
			errCatalogGone, dir, filepath.Base(regions[0]))
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Readlink(dir); err == nil {
			return failf("%s is a link, and what it leads to is not there: mount or make that, or name "+
				"another directory", dir)
		}
		return failf("no database in %s: there is no such directory", dir)
	}
	return failf("no database in %s: there is no catalog.db", dir)
}

// attachOffline attaches to the database in a directory: shared with other readers
// or, to write, exclusively. Its catalog must be intact, and its files be there.
func attachOffline(dir string, write bool) (*offline, error) {
	return attachTo(dir, write, false)
}

// attachTo is attachOffline. With leaveOut, regions whose files are not there are blank, and
// host.LeftOut says which; then it attaches to read alone.
func attachTo(dir string, write, leaveOut bool) (*offline, error) {
	if err := databaseIn(dir); err != nil {
		return nil, err
	}
	h, err := embedded.Connect(embedded.Options{Dir: dir, ReadOnly: true, LeaveOut: leaveOut, KeepFaulty: true})
	if err == nil && write && len(h.LeftOut) == 0 { // it is a database; nothing is created below
		if err = h.Close(); err == nil {
			h, err = embedded.Connect(embedded.Options{Dir: dir, KeepFaulty: true})
		}
	}
	if err != nil {
		return nil, err
	}
	o := &offline{host: h}
	l, err := layout.LoadLayout(h.Catalog)
	if err == nil && l == nil {
		err = fmt.Errorf("%w: %s", layout.ErrNotFormatted, dir)
	}
	if err == nil {
		o.Database, err = verify.Attach(h.Fabric, l)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return o, nil
}

// Close detaches and unlocks the directory.
func (o *offline) Close() error { return errors.Join(o.Database.Close(), o.host.Close()) }
