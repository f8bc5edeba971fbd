package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"txnode/txn"
)

// ready is what the child writes when its database is full.
const ready = "ready\n"

// fill is the child: it fills a database, and waits for its end.
func (b *bench) fill(ctx context.Context, dir string) error {
	each := 100
	if b.power { // a flush each
		each = 2000
	}
	_, err := with(ctx, b.inDir(dir), func(db *txn.DB, t *table) error {
		var done atomic.Int64
		stop := b.watch("directory", &done, b.keys)
		_, err := load(ctx, db, t, b.keys, each, 1, &done)
		stop()
		if err != nil {
			return err
		}
		fmt.Fprint(b.out, ready)
		<-ctx.Done()
		return ctx.Err()
	})
	return err
}

// inDir are the options of a database in dir.
func (b *bench) inDir(dir string) txn.Options {
	if b.power {
		return txn.Options{Dir: dir, Durability: txn.DurabilityPower}
	}
	return txn.Options{Dir: dir}
}

// killed has a child fill a database in dir, and kills it.
func (b *bench) killed(ctx context.Context, dir string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "--child", dir, "--keys", strconv.Itoa(b.keys),
		"--power="+strconv.FormatBool(b.power))
	cmd.Stderr = b.progress
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if said == ready {
		err = nil
	}
	kill := cmd.Process.Kill()
	ended := cmd.Wait()
	if err != nil {
		return fmt.Errorf("the child has not filled its database: %w", errors.Join(err, kill, ended))
	}
	return kill
}

// directory measures opening and closing, of a database that survives the end of its process, and
// of one that survives the loss of power, too.
func (b *bench) directory(ctx context.Context) error {
	defer func(was bool) { b.power = was }(b.power)
	for _, b.power = range []bool{false, true} {
		if err := b.reopened(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) reopened(ctx context.Context) error {
	dir, remove, err := b.temporary()
	if err != nil {
		return err
	}
	defer remove()
	if err := b.killed(ctx, dir); err != nil {
		return err
	}
	size, err := onDisk(dir)
	if err != nil {
		return err
	}
	for _, before := range []string{"after its process was killed", "after it was closed"} {
		var opening time.Duration
		start := time.Now()
		closing, err := with(ctx, b.inDir(dir), func(db *txn.DB, t *table) error {
			opening = time.Since(start)
			return loaded(ctx, db, t, b.keys, 1)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", before, err)
		}
		b.line("directory", fmt.Sprintf("%d keys, durability %v, %s", b.keys, b.inDir(dir).Durability, before),
			"%.0f MiB; opened in %v, closed in %v",
			size/mib, opening.Round(time.Millisecond), closing.Round(time.Millisecond))
	}
	return nil
}
