package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Flags of a daemon can also come from the environment and from a file: a flag that is given goes before
// TXNODE_NAME, that before the file, and that before the default.

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

// applySettings sets the flags that were not given, by the environment or else by the file.
func applySettings(cmd *cobra.Command, getenv func(string) string, file string) error {
	fs := cmd.Flags()
	var faults []string
	fs.VisitAll(func(f *pflag.Flag) {
		name := settingVariable(f.Name)
		text := getenv(name)
		if f.Changed || !isSetting(f) || text == "" {
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
	if faults != nil {
		return usagef("%s", strings.Join(faults, "; "))
	}
	if file == "" {
		file = getenv(settingVariable("config"))
	}
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return failf("--config: %w", err)
	}
	if faults := settingsOf(fs, file, text); faults != nil {
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

// settingsOf sets the flags that are not set yet by a file: a mapping from names of flags to values, or to lists of values
// for flags that can be given several times. It returns what is wrong, each with its line.
func settingsOf(fs *pflag.FlagSet, file string, text []byte) (faults []string) {
	wrong := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: %s", file, line, fmt.Sprintf(format, args...)))
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // it is empty
		return nil
	case err != nil:
		return []string{fmt.Sprintf("%s: %s", file, strings.TrimPrefix(oneLine(err), "yaml: "))}
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return []string{file + ": it has several documents; one is possible"}
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		wrong(root.Line, "lines of NAME: VALUE are expected")
		return faults
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
		given := f.Changed // by the command line or the environment, which go before
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
