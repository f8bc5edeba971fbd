//go:build mutants

package mutant

import (
	"fmt"
	"os"
	"strings"
)

// Variable is the environment variable that chooses a mutation.
const Variable = "TXNODE_MUTANT"

// Mutation is one wrong version of the protocol.
type Mutation struct {
	Name   string
	Breaks string // a sentence: what is done wrong, and what it breaks
}

var all []Mutation

// All lists the mutations.
func All() []Mutation { return all }

// chosen is the one that is in effect, "": none.
var chosen = os.Getenv(Variable)

func mutation(name, breaks string) bool {
	all = append(all, Mutation{name, breaks})
	return name == chosen
}

// init refuses a name that is not in the list: whoever misspells one would test
// the engine as it is.
func init() {
	var names []string
	for _, m := range all {
		if m.Name == chosen {
			return
		}
		names = append(names, m.Name)
	}
	if chosen != "" {
		fmt.Fprintf(os.Stderr, "%s=%s: no such mutation; there are: %s\n", Variable, chosen, strings.Join(names, ", "))
		os.Exit(2)
	}
}
