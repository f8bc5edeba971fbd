package txn

import (
	"errors"
	"fmt"
)

// Durability is what a commit survives, once it was acknowledged. The zero value is
// DurabilityProcess.
type Durability uint8

// Durabilities. Under both a commit survives the loss of Options.Backups blades and of its worker.
// They differ in what a database with Options.Dir, or on blades of the caller's that can flush,
// survives as a whole.
const (
	// DurabilityProcess: a commit survives the end of the process, however it comes, SIGKILL
	// included. What was written is the kernel's, and a commit spends nothing on it. Nothing is
	// promised after a loss of power, or of the kernel.
	DurabilityProcess Durability = iota
	// DurabilityPower: a commit also survives the loss of power, or of the kernel, although what
	// was not flushed may be lost in part and in any order. A commit is acknowledged when its log
	// record is durable on Backups+1 blades. Commits at the same time share the flush. After a loss
	// of power the next Open restores the data and rebuilds the indexes, in time proportional to
	// the data. It needs PolicyDefault, and Dir or a fabric whose FLUSH is durable.
	DurabilityPower
)

var durabilityNames = [...]string{DurabilityProcess: "process", DurabilityPower: "power"}

// String returns the name that Set takes: process or power.
func (d Durability) String() string {
	if int(d) < len(durabilityNames) {
		return durabilityNames[d]
	}
	return fmt.Sprintf("Durability(%d)", uint8(d))
}

// Set makes d the durability of a name, process or power. With String and Type it
// makes a *Durability a value of packages flag and pflag.
func (d *Durability) Set(name string) error {
	for i, n := range durabilityNames {
		if n == name {
			*d = Durability(i)
			return nil
		}
	}
	return errors.New("durability must be one of process, power")
}

// Type is what pflag calls such a value.
func (d *Durability) Type() string { return "durability" }
