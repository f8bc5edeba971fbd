package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"txnode/txn"
)

// TestServe: the program answers requests and scrapes, refuses what is wrong with the right status,
// and ends in order: the directory opens again with what was committed.
func TestServe(t *testing.T) {
	o := txn.Options{Dir: t.TempDir() + "/db", BladeSize: 64 << 20, Arena: 1 << 20, CacheBytes: 1 << 20}
	start := func() (base string, stop func()) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- serve(ctx, l, o) }()
		return "http://" + l.Addr().String(), func() {
			t.Helper()
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the end of the program: %v", err)
			}
		}
	}
	base, stop := start()
	ask := func(method, path string, status int, says string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || !strings.Contains(string(body), says) {
			t.Errorf("%s %s: %s %q (%v) instead of %d and %q", method, path, resp.Status, body, err, status, says)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	ask("POST", "/accounts/1?add=100", 200, "100")
	ask("POST", "/accounts/2?add=5", 200, "5")
	ask("POST", "/transfer?from=1&to=2&amount=30", 200, "70")
	ask("POST", "/transfer?from=1&to=2&amount=71", 409, "not enough")
	ask("POST", "/transfer?from=1&to=3&amount=1", 404, "")
	ask("POST", "/transfer?from=1&to=2&amount=-1", 400, "")
	ask("GET", "/accounts/2", 200, "35")
	ask("GET", "/accounts/9", 404, "")
	ask("GET", "/accounts/x", 400, "")
	ask("GET", "/metrics", 200, `txnode_transactions_total{outcome="committed"} 4`)
	ask("GET", "/metrics", 200, `txnode_table_operations_total{operation="insert",table="accounts"} 2`)
	stop()
	base, stop = start()
	ask("GET", "/accounts/1", 200, "70")
	stop()
}

// TestShutdownWaits: a request that is under way when the program is told to end gets its answer.
func TestShutdownWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx, l, txn.Options{BladeSize: 64 << 20, Arena: 1 << 20, CacheBytes: 1 << 20}) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// The head of a request, with a body to come: the handler waits for it.
	const body = "add=7"
	if _, err := io.WriteString(c,
		"POST /accounts/1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	// "100 Continue" says that the handler reads the body.
	buf := make([]byte, 512)
	if n, err := c.Read(buf); err != nil || !strings.Contains(string(buf[:n]), "100 Continue") {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	cancel()
	if _, err := io.WriteString(c, body); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "200 OK") || !strings.HasSuffix(string(answer), "7\n") {
		t.Errorf("%q, %v", answer, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
