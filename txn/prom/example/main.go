package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"txnode/txn"
	"txnode/txn/prom"
)

// How long things may take.
const (
	headerTimeout   = 5 * time.Second  // for a client to send the header of a request
	readTimeout     = 10 * time.Second // and all of it
	requestTimeout  = 5 * time.Second  // for the transaction of a request
	writeTimeout    = 30 * time.Second // for a request, from the end of its header, and its answer
	idleTimeout     = 2 * time.Minute  // between two requests of a connection
	shutdownTimeout = 20 * time.Second // for requests under way when the program is told to end
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to serve at")
	dir := flag.String("dir", "", "`directory` of the database; by default it is in memory")
	flag.Parse()

	if err := run(*listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until a signal ends it.
func run(listen, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening at", l.Addr())
	return serve(ctx, l, txn.Options{Dir: dir})
}

// serve serves a database at l until ctx is done, and then ends in order. It closes l.
func serve(ctx context.Context, l net.Listener, o txn.Options) (err error) {
	db, err := txn.Open(ctx, o)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { // last: requests that were under way have ended
		// ctx is done, so the time to close has to come from elsewhere.
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		err = errors.Join(err, db.Close(ctx))
	}()
	handler, err := newBank(db)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(prom.NewCollector(db, prom.Options{})); err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served: // it could not go on
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		return errors.Join(err, server.Close()) // requests that take longer lose their connection
	}
	return nil
}
