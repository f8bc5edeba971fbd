package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Flags of a daemon can also come from the environment and from a file: a flag that is given goes
// before TXNODE_NAME, that before the file, and that before the default.

// settingVariable is the environment variable of a flag.
func settingVariable(flag string) string {
	return "TXNODE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// isSetting reports whether a flag can come from elsewhere.
func isSetting(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "config" && f.Name != untilInput
}

// several reports whether a flag can be given several times.
func several(f *pflag.Flag) bool {
	_, sizes := f.Value.(*sizeList)
	return sizes || f.Value.Type() == "stringArray"
}

// others are environment variables of txnode that are no settings of a daemon.
var others = []string{historyEnv, "TXNODE_DEBUG", settingVariable("config")}

// alternatives are flags that exclude each other, unless there is a third one. What gives one of
// them goes before what comes later and gives the other.
var alternatives = [][3]string{
	{"memory", "blade"}, {"dir", "huge-pages"}, {"listen", "shm", "catalog"}, {"secret-file", "shm", "catalog"},
}

// unknownSettings says which names of the environment look like settings and are none.
func unknownSettings(fs *pflag.FlagSet, environ []string) (faults []string) {
	for _, text := range environ {
		name, _, _ := strings.Cut(text, "=")
		if !strings.HasPrefix(name, "TXNODE_") || slices.Contains(others, name) ||
			strings.HasPrefix(name, "TXNODE_TEST_") {
			continue
		}
		best, least := "", -1
		known := false
		fs.VisitAll(func(f *pflag.Flag) {
			v := settingVariable(f.Name)
			known = known || isSetting(f) && v == name
			if d := distance(v, name); isSetting(f) && (least < 0 || d < least) {
				best, least = v, d
			}
		})
		if !known {
			faults = append(faults, fmt.Sprintf("%s is no setting; the nearest is %s", name, best))
		}
	}
	return faults
}

// settled tells of each flag whether something that goes before has decided it: given are the flags
// that were given, and has says which ones are given anywhere.
func settled(fs *pflag.FlagSet, has func(name string) bool) func(name string) bool {
	given := map[string]bool{}
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	return func(name string) bool {
		for _, a := range alternatives {
			if a[2] != "" && has(a[2]) {
				continue
			}
			if name == a[0] && given[a[1]] || name == a[1] && given[a[0]] {
				return true
			}
		}
		return given[name]
	}
}

// applySettings sets the flags that were not given, by the environment or else by the file.
func applySettings(cmd *cobra.Command, w *World, file string) error {
	fs, getenv := cmd.Flags(), w.Getenv
	var faults []string
	if w.Environ != nil {
		faults = unknownSettings(fs, w.Environ())
	}
	if file == "" {
		file = getenv(settingVariable("config"))
	}
	var root *yaml.Node // nil: there is no file, or nothing in it
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return failf("--config: %w", err)
		}
		var wrong []string
		root, wrong = parseSettings(file, text)
		faults = append(faults, wrong...)
	}
	has := func(name string) bool {
		return fs.Changed(name) || getenv(settingVariable(name)) != "" || root != nil &&
			slices.ContainsFunc(root.Content, func(n *yaml.Node) bool { return n.Value == name })
	}
	before := settled(fs, has)
	fs.VisitAll(func(f *pflag.Flag) {
		name := settingVariable(f.Name)
		text := getenv(name)
		if before(f.Name) || !isSetting(f) || text == "" {
			return
		}
		values := []string{text}
		if several(f) {
			values = strings.Split(text, ",")
		}
		for _, v := range values {
			if err := fs.Set(f.Name, v); err != nil {
				faults = append(faults, fmt.Sprintf("%s is %q: %v", name, text, settingFault(err)))
				return
			}
		}
	})
	if faults == nil && root != nil {
		faults = settingsOf(fs, file, root, settled(fs, has))
	}
	if faults != nil {
		return usagef("%s", strings.Join(faults, "; "))
	}
	return nil
}

// settingFault is what is wrong with a value, without the words of the library of flags around it.
func settingFault(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return invalid.Unwrap()
	}
	return err
}

// parseSettings reads a file of settings: a mapping from names of flags to values, or to lists of
// values for flags that can be given several times.
func parseSettings(file string, text []byte) (root *yaml.Node, faults []string) {
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // it is empty
		return nil, nil
	case err != nil:
		return nil, []string{fmt.Sprintf("%s: %s", file, strings.TrimPrefix(oneLine(err), "yaml: "))}
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, []string{file + ": it has several documents; one is possible"}
	}
	root = doc.Content[0]
	switch {
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null":
		return nil, nil
	case root.Kind != yaml.MappingNode:
		return nil, []string{fmt.Sprintf("%s:%d: lines of NAME: VALUE are expected", file, root.Line)}
	}
	return root, nil
}

// settingsOf sets the flags by a file that nothing before has settled, and returns what is wrong,
// each with its line.
func settingsOf(fs *pflag.FlagSet, file string, root *yaml.Node, settled func(name string) bool) (faults []string) {
	wrong := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: %s", file, line, fmt.Sprintf(format, args...)))
	}
	before := map[string]int{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		f := fs.Lookup(key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || f == nil || !isSetting(f):
			wrong(key.Line, "%q is no setting; the nearest is %q", key.Value, nearestFlag(fs, key.Value))
			continue
		case before[key.Value] != 0:
			wrong(key.Line, "%s is there twice, first in line %d", key.Value, before[key.Value])
			continue
		}
		before[key.Value] = key.Line
		values := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			if !several(f) {
				wrong(value.Line, "%s has one value, and no list", f.Name)
				continue
			}
			values = value.Content
		}
		given := settled(f.Name) // by the command line or the environment, which go before
		for _, v := range values {
			if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
				wrong(v.Line, "%s needs a value", f.Name)
				break
			}
			if given {
				continue
			}
			if err := fs.Set(f.Name, v.Value); err != nil {
				wrong(v.Line, "%s is %q: %v", f.Name, v.Value, settingFault(err))
				break
			}
		}
	}
	return faults
}

// nearestFlag is the setting whose name has the fewest differences from another one.
func nearestFlag(fs *pflag.FlagSet, name string) (best string) {
	least := -1
	fs.VisitAll(func(f *pflag.Flag) {
		if d := distance(f.Name, name); isSetting(f) && (least < 0 || d < least) {
			best, least = f.Name, d
		}
	})
	return best
}
