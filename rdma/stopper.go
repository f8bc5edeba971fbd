package rdma

// Stopper is a fabric whose blades can be made to die and to come back, for
// tests, demonstrations and drills. A fabric that cannot is one without the
// methods. They are safe for concurrent use where the fabric's are.
type Stopper interface {
	// StopBlade stops a blade, as if its machine had lost power: when it returns,
	// no verb takes effect there any more. Verbs fail with StatusNoBlade
	// (ErrBladeDown), and so do Thread.Reconnect, Fabric.Grant, Fabric.Revoke and
	// Fabric.Provision. A blade that is stopped stays so.
	StopBlade(b BladeID) error
	// RestartBlade brings a stopped blade back, with what its memory held or with all of it zero.
	// It has one access key, which is new, and another incarnation: clients learn both
	// from Fabric.Blades. Queue pairs that met the stopped blade are in the error state until
	// Thread.Reconnect. A blade that runs is left alone.
	RestartBlade(b BladeID, memory bool) error
}
