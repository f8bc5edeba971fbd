package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var (
	only = flag.String("only", ".", "regular expression of the commands to run")
	list = flag.Bool("list", false, "print the commands, and run none")
)

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(pages []string) error {
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if len(pages) == 0 {
		return errors.New("name the pages, such as docs/simulator-*.md")
	}
	dir, err := os.MkdirTemp("", "txnode-figures")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "txnode")
	if !*list {
		if out, err := exec.Command("go", "build", "-o", program, "./cmd/txnode").CombinedOutput(); err != nil {
			return fmt.Errorf("building txnode: %w\n%s", err, out)
		}
	}
	for _, page := range pages {
		if err := update(page, pattern, program); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return nil
}

// update writes the tables of a page anew, each when it has been printed.
func update(page string, pattern *regexp.Regexp, program string) error {
	commands, err := commandsOf(page)
	if err != nil {
		return err
	}
	for _, command := range commands {
		if !pattern.MatchString(command) {
			continue
		}
		fmt.Println(page+":", "txnode", command)
		if *list {
			continue
		}
		began := time.Now()
		var stdout, stderr strings.Builder
		c := exec.Command(program, append(strings.Fields(command), "--markdown")...)
		c.Stdout, c.Stderr = &stdout, &stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("txnode %s: %w\n%s", command, err, stderr.String())
		}
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		changed, err := replace(string(text), command, stdout.String())
		if err != nil {
			return err
		}
		if err := os.WriteFile(page, []byte(changed), 0o644); err != nil { // a page that everybody may read
			return err
		}
		fmt.Printf("  %v\n", time.Since(began).Round(time.Second))
	}
	return nil
}

const (
	open  = "<!-- txnode "
	shut  = " -->"
	after = "<!-- end -->"
)

// commandsOf lists the commands whose tables are on a page.
func commandsOf(page string) ([]string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), open); ok {
			command, ok = strings.CutSuffix(command, shut)
			if !ok {
				return nil, fmt.Errorf("%q does not end with %q", strings.TrimSpace(line), shut)
			}
			out = append(out, command)
		}
	}
	return out, nil
}

// replace puts a table where that of a command is.
func replace(text, command, table string) (string, error) {
	head := open + command + shut + "\n"
	before, rest, ok := strings.Cut(text, head)
	if !ok {
		return "", fmt.Errorf("the table of txnode %s is gone", command)
	}
	_, behind, ok := strings.Cut(rest, after)
	if !ok {
		return "", fmt.Errorf("no %q behind the table of txnode %s", after, command)
	}
	return before + head + "\n" + strings.Trim(table, "\n") + "\n\n" + after + behind, nil
}
