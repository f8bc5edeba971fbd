package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"txnode/rdma"
)

// direct executes the calls of a control connection, one after the other.
func (s *Server) direct(c net.Conn) error {
	var p [callSize]byte
	answer := make([]byte, answerSize+max(s.blades*bladeSize, maxText))
	for {
		// Between calls the client may be silent; a call comes at once.
		if err := s.deadline(c, time.Time{}); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, p[:1]); err != nil {
			if s.stopping() || closedByPeer(err) {
				return nil
			}
			return err
		}
		if err := c.SetDeadline(time.Now().Add(s.o.Timeout)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, p[1:]); err != nil {
			return err
		}
		var x call
		if err := x.get(p[:]); err != nil {
			return err
		}
		n := s.execute(&x, answer)
		if err := c.SetWriteDeadline(time.Now().Add(s.o.Timeout)); err != nil {
			return err
		}
		if _, err := c.Write(answer[:n]); err != nil {
			return err
		}
	}
}

// execute executes a call and encodes its answer, of n bytes.
func (s *Server) execute(x *call, answer []byte) (n int) {
	var err error
	body := answer[answerSize:]
	switch x.action {
	case actBlades:
		for i, b := range s.control.Blades() {
			putBlade(body[i*bladeSize:], &b)
		}
		n = s.blades * bladeSize
	case actProvision:
		err = s.control.Provision(rdma.BladeID(x.blade), x.off, x.n)
	case actGrant:
		var k rdma.Key
		if k, err = s.control.Grant(rdma.BladeID(x.blade)); err == nil {
			wire.PutUint64(body, uint64(k))
			n = keySize
		}
	case actRevoke:
		err = s.control.Revoke(rdma.BladeID(x.blade), x.key)
	}
	o := outcomeOf(err)
	if err != nil {
		n = copy(body[:maxText], err.Error())
	}
	putAnswer(answer, o, n)
	return answerSize + n
}

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return callDone
	case errors.Is(err, rdma.ErrNoMemory):
		return callNoMemory
	case errors.Is(err, rdma.ErrBladeDown):
		return callBladeDown
	case errors.Is(err, rdma.ErrClosed):
		return callClosed
	case errors.Is(err, rdma.ErrStaleKey):
		return callStaleKey
	}
	return callFailed
}

// errorOf is the client's error for a call that has failed with a text.
func errorOf(o outcome, server, text string) error {
	switch o {
	case callNoMemory:
		return fmt.Errorf("%s: %s: %w", server, text, rdma.ErrNoMemory)
	case callBladeDown:
		return fmt.Errorf("%s: %s: %w", server, text, rdma.ErrBladeDown)
	case callStaleKey:
		return fmt.Errorf("%s: %s: %w", server, text, rdma.ErrStaleKey)
	case callClosed:
		return fmt.Errorf("%s: %s: %w: %w", server, text, rdma.ErrClosed, rdma.ErrBladeDown)
	}
	return fmt.Errorf("%s: %s", server, text)
}
