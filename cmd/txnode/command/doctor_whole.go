package command

import (
	"context"
	"fmt"
	"strings"

	"txnode/cluster"
)

// command is a command of txnode on the cluster that is examined, with the flags by
// which it was reached.
func (e *exam) command(name string, more ...string) string {
	all := append([]string{"txnode", name, e.address}, more...)
	a := e.access
	for _, f := range [][2]string{
		{"secret-file", a.SecretFile}, {"server-user", a.ServerUser}, {"tls-cert", a.TLS.Cert}, {"tls-key", a.TLS.Key},
		{"tls-ca", a.TLS.CA}, {"tls-name", a.TLS.Name},
	} {
		if f[1] != "" {
			all = append(all, "--"+f[0], f[1])
		}
	}
	for i, word := range all[2:] {
		all[i+2] = inShell(word)
	}
	return strings.Join(all, " ")
}

// inShell is a word as a shell takes it for one.
func inShell(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-[]") == "" &&
		word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// checkWhole looks at the cluster as txnode cluster status does: at its copies, members, and
// blades that leave.
func (e *exam) checkWhole(ctx context.Context) {
	st, err := cluster.Ask(ctx, e.address, e.options)
	if err != nil {
		e.failed("catalog", e.address, err)
		return
	}
	if st.Layout == nil {
		return
	}
	if st.Behind != nil { // what it says of the rest is of another time
		e.bad(healthFail, bringCatalog, "catalog", st.Catalog, "%v", st.Behind)
		return
	}
	e.checkCopies(st)
	reach := true
	for _, x := range st.Troubles() {
		if x.Kind == cluster.TroubleCutOff {
			reach = false
			e.bad(healthFail, "on the host of that member, see what is in the way: "+e.command("doctor"), "members", "",
				"%s", troubleText(&x))
		}
	}
	if reach {
		e.ok("members", "", "processes: %d; none says that it does not reach a blade that others reach",
			len(st.Processes))
	}
	for i := range st.Blades {
		if b := &st.Blades[i]; b.State == cluster.BladeLeaving {
			e.bad(healthWarn, e.command("cluster heal")+"; or take it back: "+e.command("cluster add-blade",
				string(b.Server)), "leaving", fmt.Sprintf("blade %d", b.ID),
				"copies that are still to be moved from it: %d", b.Copies)
		}
	}
}

// checkCopies looks at the copies of the database.
func (e *exam) checkCopies(st *cluster.Status) {
	const check = "copies"
	c := &st.Copies
	before := len(e.found)
	if c.Lost > 0 {
		e.bad(healthFail,
			"restore the last backup into a new cluster: txnode cluster init --catalog NEW --blade ADDRESS ...; then "+
				"txnode restore FILE NEW",
			check, "", "%d of %d segments have none: their data is lost", c.Lost, c.Segments)
	}
	if c.Unavailable > 0 {
		e.bad(healthFail, e.bringBack(st), check, "",
			"those of %d of %d segments are all on blades that are away, and not given up: their data is unavailable",
			c.Unavailable, c.Segments)
	}
	if c.Undecided > 0 {
		e.bad(healthWarn, e.command("cluster heal"), check, "",
			"transactions wait until those of %d dead workers are decided", c.Undecided)
	}
	if c.Missing > 0 {
		e.bad(healthWarn, e.bringBack(st), check, "", "%d are missing of %d segments, and %d of these are being built",
			c.Missing, c.Segments, c.Building)
	}
	if len(e.found) == before {
		e.ok(check, "", "all %d segments have all of theirs, epoch %d", c.Segments, st.Layout.Epoch)
	}
}

// bringBack is how blades come back that are away.
func (e *exam) bringBack(st *cluster.Status) string {
	heal := e.command("cluster heal")
	for i := range st.Servers {
		if st.Servers[i].Err != nil {
			return "start the servers that fail above, each with the --dir that it had; then " + heal
		}
	}
	return heal
}
