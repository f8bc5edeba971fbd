package command

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"txnode/cluster"
)

// reportOf is how the daemon is, for those that ask by its own protocol: txnode top and txnode
// doctor.
func (d *daemon) reportOf(o *serveOptions) func() cluster.Report {
	e := d.w.Environment()
	host, _ := os.Hostname() // "" then
	files := limitOf(unix.RLIMIT_NOFILE)
	return func() cluster.Report {
		s := d.look(time.Now())
		r := cluster.Report{
			Version: e.Version, Revision: e.Revision, Host: host, PID: os.Getpid(), Time: s.At, Began: s.Began,
			Full: fullDisks(s.Disks), Connections: s.Net.Connections, Limit: o.Connections,
			OpenFiles: files, Counted: s.Counted,
		}
		for i := range s.Blades {
			b := &s.Blades[i]
			x := cluster.BladeReport{
				Size: b.Region.Size, Provisioned: b.Region.Provisioned, KeyChanges: b.Region.Grants + b.Region.Revokes,
				Connections: b.Data.Connections, Verbs: b.Data.Verbs, Failed: b.Data.Failed,
				BytesRead: b.Data.BytesRead, BytesWritten: b.Data.BytesWritten,
			}
			if b.Region.Err != nil {
				x.Fault = oneLine(b.Region.Err)
			}
			r.Blades = append(r.Blades, x)
		}
		return r
	}
}
