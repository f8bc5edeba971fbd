package runner

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Environment is what a result was measured on. A field that cannot be found
// out is empty or zero.
type Environment struct {
	CPU        string // model
	Cores      int    // logical ones that the process may use
	GOMAXPROCS int
	MemoryMiB  int
	HugePages  string // transparent huge pages: always, madvise, never
	OS         string // of the build: linux/amd64
	Kernel     string
	Go         string // version
	Revision   string // of the source; "(modified)" is appended if there were changes
	Version    string // of the module
}

// ReadEnvironment finds out what this process runs on.
func ReadEnvironment() Environment {
	e := Environment{
		CPU:        cpuModel(),
		Cores:      runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		MemoryMiB:  memoryMiB(),
		HugePages:  selected(readLine("/sys/kernel/mm/transparent_hugepage/enabled")),
		OS:         runtime.GOOS + "/" + runtime.GOARCH,
		Kernel:     readLine("/proc/sys/kernel/osrelease"),
		Go:         runtime.Version(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		e.Version = info.Main.Version
		e.Revision = revision(info.Settings)
	}
	return e
}

func revision(settings []debug.BuildSetting) string {
	var rev, modified string
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				modified = " (modified)"
			}
		}
	}
	if rev == "" {
		return ""
	}
	return rev + modified
}

// cpuModel reads Linux's /proc/cpuinfo, which names x86 models only; elsewhere
// the architecture has to do.
func cpuModel() string {
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		return strings.Join(strings.Fields(name), " ")
	}
	return runtime.GOARCH
}

func memoryMiB() int {
	kib, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	return kib / 1024
}

// field returns what follows "name:" in the first such line of a file.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func readLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// selected returns the word in brackets of "always [madvise] never".
func selected(choices string) string {
	_, rest, _ := strings.Cut(choices, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}
