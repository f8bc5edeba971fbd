package command_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestServeJoin: a cluster is made of servers that join; another one takes a place by itself;
// status lists them, before there is a cluster, too.
func TestServeJoin(t *testing.T) {
	c := &smallCluster{t: t, dir: socketDir(t), ends: map[string]func() (int, string){}}
	c.catalog = c.address("c")
	c.serveCatalog()
	code, _, stderr := inSystem(t, "cluster", "init", "--catalog", c.catalog, "--blades", "2", "--wait", "1ms")
	if code != 1 || !strings.Contains(stderr, "servers with 0 of 2 blades have announced themselves") ||
		!strings.HasPrefix(stderr, "blades that have joined: 0 of 2\n") {
		t.Errorf("without servers: exit code %d, %s", code, stderr)
	}
	c.serve("x", "--join", c.catalog, "--domain", "rack 7")
	status := func() (st struct {
		Joined []struct {
			Address, Lease, Domain string
			Blades                 []int
		}
	}) {
		t.Helper()
		_, out, stderr := inSystem(t, "cluster", "status", c.catalog, "-o", "json")
		if out != "" {
			if err := json.Unmarshal([]byte(out), &st); err != nil {
				t.Fatalf("%v: %s%s", err, out, stderr)
			}
		}
		return st
	}
	until := func(what string, fn func() bool) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); !fn(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it takes minutes: %s: %+v", what, status())
			}
		}
	}
	until("a candidate", func() bool { st := status(); return len(st.Joined) == 1 && st.Joined[0].Lease == "alive" })
	if st := status(); st.Joined[0].Address != c.address("x") || st.Joined[0].Domain != "rack 7" ||
		len(st.Joined[0].Blades) != 0 {
		t.Errorf("%+v", st)
	}
	if _, out, _ := inSystem(t, "cluster", "status", c.catalog); !strings.Contains(out, "rack 7") ||
		!strings.Contains(out, "none yet") {
		t.Errorf("%s", out)
	}
	c.serve("y", "--join", c.catalog)
	code, out, stderr := inSystem(t, "cluster", "init", "--catalog", c.catalog, "--blades", "2",
		"--segment-size", "1MiB")
	if code != 0 || !strings.Contains(out, "has 2 blades of 2 servers, 128MiB together, and 2 vacant places") {
		t.Fatalf("exit code %d, %s%s", code, out, stderr)
	}
	c.serve("z", "--join", c.catalog)
	until("a third blade", func() bool { st := status(); return len(st.Joined) == 3 && len(st.Joined[2].Blades) == 1 })
	if st := status(); st.Joined[2].Blades[0] != 2 {
		t.Errorf("%+v", st)
	}
	if code, out, stderr := inSystem(t, "cluster", "init", "--catalog", c.catalog, "--blades", "2", "--segment-size",
		"1MiB"); code != 0 || !strings.Contains(out, "was there already") {
		t.Errorf("once more: exit code %d, %s%s", code, out, stderr)
	}
}

// TestJoinFaults: addresses that others cannot connect to, and flags that exclude each other, are
// told of before anything is served.
func TestJoinFaults(t *testing.T) {
	for _, x := range []struct{ args, say string }{
		{"--listen tcp:0.0.0.0:7000 --join unix:/tmp/c", `--listen is "0.0.0.0:7000", which --join tells others`},
		{"--listen tcp:[::]:7000 --join unix:/tmp/c", "give --advertise HOST:PORT"},
		{"--listen tcp::7000 --join unix:/tmp/c", "give --advertise HOST:PORT"},
		{"--listen tcp:127.0.0.1:0 --join unix:/tmp/c --advertise 0.0.0.0:1", `--advertise is "0.0.0.0:1"`},
		{"--listen tcp:127.0.0.1:0 --join unix:/tmp/c --advertise here", `--advertise is "here"`},
		{"--listen tcp:127.0.0.1:0 --join unix:/tmp/c --advertise here:0", `--advertise is "here:0"`},
		{"--listen unix:/tmp/x --join unix:/tmp/c --advertise here:1", "--advertise is for TCP"},
		{"--listen unix:/tmp/x --advertise here:1", "--advertise and --domain are for --join"},
		{"--listen unix:/tmp/x --domain rack", "--advertise and --domain are for --join"},
		{"--listen unix:/tmp/x --join there", "--join: "},
		{"--listen unix:/tmp/x --join unix:/tmp/c --domain " + strings.Repeat("d", 256), "--domain has 256 bytes"},
		{"--listen unix:/tmp/x --join unix:/tmp/c --catalog memory --memory 0", "--join is for blades of --listen"},
		{"--shm /tmp/x --join unix:/tmp/c", "--join is for blades of --listen"},
	} {
		if code, _, stderr := inSystem(t, append([]string{"serve"}, strings.Fields(x.args)...)...); code != 2 ||
			!strings.Contains(stderr, x.say) {
			t.Errorf("%s: exit code %d, %s", x.args, code, stderr)
		}
	}
	for _, x := range []struct{ args, say string }{
		{"--blades 65", "--blades is 65; 1 to 64 are possible"},
		{"--blades 2 --blade unix:/tmp/x", "--blade and --blades are both given"},
		{"--blade unix:/tmp/x --wait 1s", "--wait is 1s; it is how long --blades waits"},
		{"--blades 2 --wait -1s", "--wait is -1s"},
	} {
		if code, _, stderr := inSystem(t, append([]string{"cluster", "init", "--catalog", "unix:/tmp/c"},
			strings.Fields(x.args)...)...); code != 2 || !strings.Contains(stderr, x.say) {
			t.Errorf("%s: exit code %d, %s", x.args, code, stderr)
		}
	}
}
