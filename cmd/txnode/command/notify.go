package command

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier tells systemd how the daemon is: sd_notify(3). Its zero value tells nothing.
type notifier struct {
	socket string        // NOTIFY_SOCKET; "": systemd does not listen
	every  time.Duration // how often it wants to hear of the daemon; 0: never
}

func newNotifier(getenv func(string) string) notifier {
	n := notifier{socket: getenv("NOTIFY_SOCKET")}
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n
	}
	if us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		n.every = time.Duration(us) * time.Microsecond / 2
	}
	return n
}

// tell sends a state, such as READY=1.
func (n notifier) tell(state string) error {
	if n.socket == "" {
		return nil
	}
	c, err := net.Dial("unixgram", n.socket)
	if err == nil {
		_, err = c.Write([]byte(state))
		_ = c.Close() // the datagram has been sent, or not
	}
	if err != nil {
		return fmt.Errorf("telling systemd %q: %w", state, err)
	}
	return nil
}

// watch tells until ctx ends that the daemon lives, each time behind alive, which
// returns if it does.
func (n notifier) watch(ctx context.Context, alive func()) {
	if n.socket == "" || n.every == 0 {
		return
	}
	ticks := time.NewTicker(n.every)
	defer ticks.Stop()
	for {
		alive()
		_ = n.tell("WATCHDOG=1") // systemd notices what it does not hear
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}
