package cluster

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestToLogger: what happens to an RDMA device is a line of the program's log.
func TestToLogger(t *testing.T) {
	if toLogger(nil) != nil {
		t.Error("without a logger there is something to call")
	}
	core, seen := observer.New(zap.WarnLevel)
	toLogger(zap.New(core))(errors.Join(errors.New("the port is down"), errors.New("look at the cable")))
	if all := seen.All(); len(all) != 1 || all[0].ContextMap()["event"] != "the port is down; look at the cable" {
		t.Errorf("%+v", all)
	}
}
