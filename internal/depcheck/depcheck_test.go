package depcheck

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tree builds a source tree from path and content pairs; "// want" marks in
// the content say on which lines a rule must report something.
func tree(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, source := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(source)}
	}
	return fsys
}

// wanted returns the "file:line text" of every want mark, sorted by file.
func wanted(files map[string]string) []string {
	var marks []string
	for name, source := range files {
		for i, line := range strings.Split(source, "\n") {
			if _, text, ok := strings.Cut(line, "// want "); ok {
				marks = append(marks, fmt.Sprintf("%s:%d %s", name, i+1, text))
			}
		}
	}
	slices.Sort(marks)
	return marks
}

// compare checks that there is exactly one finding per mark, at its file and
// line, with its text within the finding's.
func compare(t *testing.T, findings []Finding, marks []string) {
	t.Helper()
	rest := slices.Clone(findings)
	for _, mark := range marks {
		place, text, _ := strings.Cut(mark, " ")
		i := slices.IndexFunc(rest, func(f Finding) bool {
			return fmt.Sprintf("%s:%d", f.File, f.Line) == place && strings.Contains(f.Text, text)
		})
		if i < 0 {
			t.Errorf("no finding at %s with %q", place, text)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	for _, f := range rest {
		t.Errorf("unexpected finding %v", f)
	}
}

func load(t *testing.T, files map[string]string) []Package {
	t.Helper()
	packages, err := Load(tree(files))
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func TestLayering(t *testing.T) {
	const m = "example.org/m"
	cases := []struct {
		name  string
		files map[string]string
	}{
		{"downwards is fine, and so are siblings, leaves, internals, other modules", map[string]string{
			"cmd/tool/a.go":        `package main; import (_ "example.org/m/benchmarks/b"; _ "example.org/m/rdma"; _ "fmt")`,
			"benchmarks/b/a.go":    `package b; import (_ "example.org/m/benchmarks/c"; _ "example.org/m/txn"; _ "example.org/m/check")`,
			"txn/a.go":             `package txn; import (_ "example.org/m/txn/supervisor"; _ "example.org/m/occ"; _ "example.org/m/history"; _ "example.org/m/internal/x")`,
			"occ/a.go":             `package occ; import (_ "example.org/m/index/race"; _ "example.org/m/log")`,
			"index/race/a.go":      `package race; import _ "example.org/m/index"`,
			"rdma/inproc/a.go":     `package inproc; import (_ "example.org/m/rdma"; _ "example.org/m/rdma/inproc/sub"; _ "example.org/mm/txn")`,
			"rdma/inproc/sub/a.go": `package sub`,
			"check/a.go":           `package check; import _ "example.org/m/history"`,
		}},
		{"every layer above", map[string]string{
			"benchmarks/b/a.go": "package b\nimport _ \"example.org/m/cmd/tool\" // want layer \"commands\" is " +
				"above layer \"benchmarks\"",
			"txn/a.go": "package txn\nimport _ \"example.org/m/benchmarks/b\" // want above layer " +
				"\"transactions\"",
			"txn/supervisor/a.go": "package supervisor\nimport _ \"example.org/m/occ\"\n" +
				"import _ \"example.org/m/txn\" // want above layer \"supervision\"",
			"occ/a.go":   "package occ\nimport _ \"example.org/m/txn\" // want above layer \"protocol\"",
			"log/a.go":   "package log\nimport _ \"example.org/m/occ/sub\" // want above layer \"log\"",
			"index/a.go": "package index\nimport _ \"example.org/m/log\" // want above layer \"indexes\"",
			"memory/a.go": "package memory\nimport _ \"example.org/m/index/race\" // want above " +
				"layer \"memory\"",
			"channel/a.go": "package channel\nimport _ \"example.org/m/memory/catalog\" // want above layer " +
				"\"channels\"",
			"rdma/a.go": "package rdma\nimport _ \"example.org/m/memory\" // want above layer \"verbs\"",
		}},
		{"a renamed import and one under a build constraint", map[string]string{
			"log/a.go": "//go:build never\n\npackage log\n\nimport (\n\t\"fmt\"\n" +
				"\tx \"example.org/m/txn\" // want log imports txn\n)\n",
		}},
		{"devices have the control path of sockets", map[string]string{
			"rdma/ibverbs/a.go": "package ibverbs\nimport _ \"example.org/m/rdma/tcp\"",
			"rdma/tcp/a.go": "package tcp\nimport _ \"example.org/m/rdma/ibverbs\" // want fabrics are " +
				"alternatives",
		}},
		{"fabrics are alternatives", map[string]string{
			"rdma/sim/core/a.go": "package core\nimport _ \"example.org/m/rdma/inproc\" // want fabrics are " +
				"alternatives",
		}},
		{"leaves and internals import no layer", map[string]string{
			"history/a.go":    "package history\nimport _ \"example.org/m/check\" // want leaves listed after it",
			"check/a.go":      "package check\nimport _ \"example.org/m/txn\" // want a leaf imports no layer",
			"internal/x/a.go": "package x\nimport _ \"example.org/m/rdma\" // want import none",
		}},
		{"what is large is imported by few", map[string]string{
			"memory/catalog/etcd/a.go":          `package etcd; import _ "go.etcd.io/etcd/client/v3"`,
			"memory/catalog/etcd/etcdtest/a.go": `package etcdtest; import _ "google.golang.org/grpc"`,
			"cluster/etcd/a.go":                 `package etcd; import _ "example.org/m/memory/catalog/etcd"`,
			"cmd/txnode/command/a.go":           `package command; import _ "example.org/m/cluster/etcd"`,
			"memory/catalog/a.go": "package catalog\nimport _ \"go.etcd.io/bbolt\"\n" +
				"import _ \"go.etcd.io/etcd/api/v3/mvccpb\" // want gRPC belong\n",
			"cluster/a.go": "package cluster\nimport _ \"example.org/m/cluster/etcd\" // want " +
				"only programs ask\n",
			"txn/a.go": "package txn\nimport _ \"example.org/m/memory/catalog/etcd\" // " +
				"want only programs ask\n",
			"internal/x/a.go": "package x\nimport _ \"google.golang.org/grpc/codes\" // want " +
				"gRPC belong\n",
			"txn/b.go": "package txn\nimport _ \"example.org/m/verify\" // want for " +
				"programs that ask for one\n",
			"memory/a.go": "package memory\nimport _ \"example.org/m/channel\" // want stand " +
				"beside transactions\n",
			"verify/a.go": `package verify; import _ "example.org/m/memory"`,
			"benchmarks/b/a.go": "package b\nimport _ \"example.org/m/cluster/etcd\" // want only " +
				"programs ask\n",
		}},
		{"what is for all indexes imports none", map[string]string{
			"txn/a.go": "package txn\nimport _ \"example.org/m/index\"\n" +
				"import _ \"example.org/m/index/tree\" // want for all indexes\n",
			"txn/supervisor/a.go": "package supervisor\nimport _ \"example.org/m/index/race\" // want for " +
				"all indexes\n",
			"verify/a.go": "package verify\nimport _ \"example.org/m/index/blink\" // want for all indexes\n",
			"occ/recovery/a.go": "package recovery\nimport _ \"example.org/m/index/race/sub\" // want for " +
				"all indexes\n",
			"occ/a.go":      `package occ; import _ "example.org/m/index/addrcache"`,
			"cmd/tool/a.go": `package main; import _ "example.org/m/index/race"`,
		}},
		{"an unknown directory, and the root", map[string]string{
			"a.go":       "package m // want package . belongs to no layer",
			"extra/a.go": "package extra // want package extra belongs to no layer",
		}},
		{"tests stand outside, and nothing imports them", map[string]string{
			"rdma/a_test.go":     `package rdma_test; import _ "example.org/m/txn"`,
			"extra/a_test.go":    `package extra`,
			"rdma/rdmatest/a.go": `package rdmatest; import _ "example.org/m/memory"`,
			"memory/a.go": "package memory\nimport _ \"example.org/m/rdma/rdmatest\" // want imported " +
				"by tests only",
			"index/indextest/a.go":     `package indextest; import _ "example.org/m/rdma/rdmatest"`,
			"index/testdata/a.go":      `package broken; import _ "example.org/m/cmd/tool"`,
			"index/_old/a.go":          `package old; import _ "example.org/m/cmd/tool"`,
			".git/a.go":                `not Go at all`,
			"benchmarks/nested/go.mod": `module example.org/m/benchmarks/nested`,
			"benchmarks/nested/main.go": "package main\nimport _ \"example.org/m/cmd/tool\" // want above layer " +
				"\"benchmarks\"",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			compare(t, Layering(m, load(t, c.files)), wanted(c.files))
		})
	}
}

// TestDebts: a debt is of one file and one import.
func TestDebts(t *testing.T) {
	debts := Debts
	defer func() { Debts = debts }()
	Debts = []Debt{{File: "occ/recovery/a.go", Imports: "index/race"}}
	files := map[string]string{
		"occ/recovery/a.go": "package recovery\nimport _ \"m/index/race\"\n" +
			"import _ \"m/index/race/sub\" // want for all indexes\n",
		"occ/recovery/b.go": "package recovery\nimport _ \"m/index/race\" // want for all indexes\n",
	}
	compare(t, Layering("m", load(t, files)), wanted(files))
}

func TestDeterminism(t *testing.T) {
	clock := `package p
import (
	"context"
	"time"
	t2 "time"
)
type d struct {
	timeout *time.Timer // want time.Timer
}
var now = t2.Now // want time.Now
func f(ctx context.Context) {
	time.Sleep(time.Second) // want time.Sleep
	<-time.After(1) // want time.After
	_ = time.Since(t2.Time{}) // want time.Since
	time.AfterFunc(1, nil) // want time.AfterFunc
	time.NewTicker(1) // want time.NewTicker
	context.WithTimeout(ctx, 1) // want context.WithTimeout
	context.AfterFunc(ctx, nil) // want context.AfterFunc
	context.WithCancel(ctx)
	{
		time := clock{}
		time.Now()
	}
	_ = context.Background
}
type clock struct{}
func (clock) Now() {}
`
	random := `package p
import (
	"math/rand"
	_ "crypto/rand" // want import of crypto/rand
	v2 "math/rand/v2"
	"hash/maphash" // want import of hash/maphash
)
func f(seed uint64) {
	r := v2.New(v2.NewPCG(seed, seed))
	r.IntN(5)
	var z *rand.Zipf = rand.NewZipf(rand.New(rand.NewSource(1)), 2, 2, 2)
	rand.Intn(5) // want math/rand.Intn
	v2.IntN(5) // want math/rand/v2.IntN
	v2.N(5) // want math/rand/v2.N
	rand.Shuffle(1, nil) // want math/rand.Shuffle
	_, _ = z, maphash.MakeSeed()
}
`
	outside := `package p
import (
	"os" // want import of os
	"os/exec" // want import of os/exec
	"net" // want import of net
	"net/netip" // want import of net/netip
	"syscall" // want import of syscall
	"golang.org/x/sys/unix" // want import of golang.org/x/sys/unix
	"golang.org/x/sys/cpu"
	bolt "go.etcd.io/bbolt" // want import of go.etcd.io/bbolt
	. "time" // want dot import of time
	"network"
)
`
	goroutines := `package p
import "sync"
func f(wg *sync.WaitGroup) {
	go f(wg) // want go statement
	func() {
		go func() {}() // want go statement
	}()
	wg.Go(func() {}) // want method named Go
}
`
	for name, source := range map[string]string{
		"clock": clock, "random": random, "outside": outside, "goroutines": goroutines,
	} {
		t.Run(name, func(t *testing.T) {
			for _, dir := range []string{
				"rdma", "memory", "memory/segment", "channel", "index", "index/race", "log",
				"occ", "occ/policy", "rdma/coroutine",
			} {
				files := map[string]string{dir + "/a.go": source}
				marks := wanted(files)
				if len(marks) == 0 {
					t.Fatal("the source breaks no rule")
				}
				compare(t, Determinism(load(t, files)), marks)
			}
			for _, name := range []string{
				"memory/catalog/a.go", "memory/embedded/a.go", "rdma/region/a.go", "rdma/inproc/a.go",
				"rdma/tcp/wire/a.go", "txn/a.go", "cmd/tool/a.go",
				"check/a.go", "index/indextest/a.go", "occ/a_test.go", "indexes/a.go",
			} {
				compare(t, Determinism(load(t, map[string]string{name: source})), nil)
			}
		})
	}
}

func TestDocumentation(t *testing.T) {
	files := map[string]string{
		"good/doc.go":  "// Package good is good.\npackage good\n",
		"good/a.go":    "// A comment that belongs to nothing.\n\npackage good\n",
		"bare/a.go":    "package bare\n",
		"empty/doc.go": "package empty // want doc.go has no package comment\n",
		"detached/doc.go": "// Package detached has a blank line too many.\n\n" +
			"package detached // want doc.go has no package comment\n",
		"begins/doc.go": "// This package begins wrongly. // want must begin with \"Package begins \"\n" +
			"package begins\n",
		"prefix/doc.go": "// Package prefixed is another one. // want must begin with \"Package prefix \"\n" +
			"package prefix\n",
		"names/doc.go": "// Package names is here.\npackage names\n",
		"names/a.go": "package names\n\n// twoWords does it.\nfunc oneWord() {} // want the comment of oneWord " +
			"begins with another name\n\n// SMART does it, as oneWord: does.\nfunc three() {}\n\n// fourWords: it.\n" +
			"func fourWords() {}\n\n// FiveWords, a type.\ntype sixWords int // want the comment of sixWords\n",
		"twice/doc.go":     "// Package twice is here.\npackage twice\n",
		"twice/a.go":       "// Package twice is here too. // want a second package comment\npackage twice\n",
		"cmd/tool/doc.go":  "// Tool does it.\npackage main\n",
		"tests/a_test.go":  "package tests\n",
		"a/utils/doc.go":   "// Package utils is a heap. // want name it after\npackage utils\n",
		"testdata/doc.txt": "",
	}
	marks := wanted(files)
	marks = append(marks, "bare/doc.go:1 missing", "tests/doc.go:1 missing")
	compare(t, Documentation(load(t, files)), marks)
}

func TestFindingsAreInOrderAndPrintTheirPlace(t *testing.T) {
	packages := load(t, map[string]string{
		"log/b.go": "package log\nimport _ \"m/txn\"\nfunc f() {\n\tgo f()\n}\n",
		"log/a.go": "package log\nimport _ \"os\"\n",
	})
	var got []string
	for _, f := range Check("m", packages) {
		place, _, _ := strings.Cut(f.String(), ": ")
		rule, _, _ := strings.Cut(strings.TrimPrefix(f.String(), place+": "), ":")
		got = append(got, place+" "+rule)
	}
	want := []string{
		"log/a.go:2 determinism", "log/b.go:2 layering", "log/b.go:4 determinism", "log/doc.go:1 documentation",
	}
	if !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
}

func TestLoadRefusesWhatDoesNotParse(t *testing.T) {
	_, err := Load(tree(map[string]string{"log/a.go": "package log\nfunc {"}))
	if err == nil || !strings.Contains(err.Error(), "log/a.go:2") {
		t.Errorf("error %v does not name log/a.go:2", err)
	}
}

// The tables must not contradict each other: no directory is a root of two layers, none
// both in a layer and a leaf, and every exception inside what it excepts from.
func TestTables(t *testing.T) {
	seen := map[string]string{}
	claim := func(dir, owner string) {
		for other, by := range seen {
			if dir == other || owner == "leaves" && (within(dir, other) || within(other, dir)) {
				t.Errorf("%s of %s overlaps %s of %s", dir, owner, other, by)
			}
		}
		seen[dir] = owner
	}
	for i, l := range Layers {
		for _, root := range l.Roots {
			claim(root, l.Name)
			if layerOf(root+"/sub") != i {
				t.Errorf("%s is not of layer %s", root, l.Name)
			}
		}
	}
	for _, leaf := range Leaves {
		claim(leaf, "leaves")
	}
	for _, r := range Restrictions {
		for _, dir := range slices.Concat(r.By, r.Of) {
			if layerOf(dir) < 0 {
				t.Errorf("%s, to which a rule about imports of %v is, is in no layer", dir, r.Imports)
			}
		}
		if (r.By == nil) == (r.Of == nil) {
			t.Errorf("imports of %v: exactly one of By and Of is to be given", r.Imports)
		}
	}
	for _, dir := range seams {
		if indexWithin(dir, dataPath) < 0 {
			t.Errorf("seam %s is not in the data path", dir)
		}
	}
	for _, dir := range dataPath {
		if layerOf(dir) < 0 {
			t.Errorf("data path directory %s is in no layer", dir)
		}
	}
}

// TestRepository applies the rules to this repository.
func TestRepository(t *testing.T) {
	root := filepath.Join("..", "..")
	module := modulePath(t, filepath.Join(root, "go.mod"))
	packages, err := Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	self := slices.ContainsFunc(packages, func(p Package) bool {
		return p.Dir == "internal/depcheck" && len(p.Files) > 0
	})
	if !self || len(packages) < 2 {
		t.Fatalf("%d packages found below %s, and this one among them: %v; the walk is broken",
			len(packages), root, self)
	}
	for _, f := range Check(module, packages) {
		t.Error(f)
	}
	debts := Debts
	defer func() { Debts = debts }()
	Debts = nil
	owed := Layering(module, packages)
	for _, d := range debts {
		if !slices.ContainsFunc(owed, func(f Finding) bool {
			return f.File == d.File && strings.Contains(f.Text, " imports "+d.Imports+": ")
		}) {
			t.Errorf("the debt that %s imports %s is paid: take it off the list", d.File, d.Imports)
		}
	}
}

func modulePath(t *testing.T, gomod string) string {
	t.Helper()
	content, err := os.ReadFile(gomod)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if module, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(module)
		}
	}
	t.Fatalf("%s has no module line", gomod)
	return ""
}
