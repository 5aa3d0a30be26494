//go:build linux

package bubblewrap_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/packagestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// large makes an index with the stand-in of numpy and a package of as many files
// as numpy, pandas and matplotlib have together: five thousand modules, each with
// what it was compiled to.
func large(b *testing.B) []string {
	b.Helper()
	packagestest.Need(b, open(b, new(bubblewrap.Runner)))
	x := packagestest.NewIndex(b)
	x.AddWheel(b, packagestest.Numpy)
	files := map[string]string{"large/__init__.py": ""}
	for i := range 5000 {
		files[fmt.Sprintf("large/part%d/module%d.py", i%50, i)] = strings.Repeat(fmt.Sprintf("x%d = %d\n", i, i), 50)
	}
	x.AddWheel(b, packagestest.Wheel{Name: "large", Version: "1", Files: files})
	packages := []string{"numpy", "large"}
	require.NoError(b, open(b, &bubblewrap.Runner{Packages: packages}).Probe(b.Context()))
	return packages
}

// BenchmarkPackages compares programs that have packages with programs that have
// none, in sandboxes that are made for them and in such that are ready.
func BenchmarkPackages(b *testing.B) {
	packages := large(b)
	for _, warm := range []int{0, 2} {
		b.Run(fmt.Sprintf("warm=%d", warm), func(b *testing.B) {
			with := open(b, &bubblewrap.Runner{Packages: packages, Warm: warm})
			without := open(b, &bubblewrap.Runner{Warm: warm})
			call(b, without)
			pause := time.Duration(warm) * 50 * time.Millisecond
			compare(b, func() { call(b, with) }, func() { call(b, without) }, pause)
		})
	}
}

// BenchmarkPackagesFirst compares the first program of a runner whose packages are
// there with that of one that has none: the difference is what the check of the
// layer takes.
func BenchmarkPackagesFirst(b *testing.B) {
	packages := large(b)
	first := func(packages []string) func() {
		return func() {
			r := &bubblewrap.Runner{Packages: packages}
			call(b, r)
			require.NoError(b, r.Close())
		}
	}
	compare(b, first(packages), first(nil), 0)
}

// BenchmarkPreloadPackages compares a program that imports what was imported ahead with
// one that imports nothing, and with one that imports it by itself.
func BenchmarkPreloadPackages(b *testing.B) {
	const modules = "import decimal, email.message, http.client, json, unittest, xml.dom.minidom\n"
	ready := open(b, &bubblewrap.Runner{Warm: 2, Preload: []string{"decimal", "email.message", "http.client", "json", "unittest", "xml.dom.minidom"}})
	plain := open(b, &bubblewrap.Runner{Warm: 2})
	run := func(r *bubblewrap.Runner, source string) func() {
		return func() {
			if res, err := r.Run(b.Context(), fnloop.Program{Source: source}); err != nil || *res.ExitCode != 0 {
				b.Fatalf("Run() = %s, %v", res.Text(), err)
			}
		}
	}
	b.Run("against nothing", func(b *testing.B) {
		compare(b, run(ready, modules), run(plain, "pass\n"), time.Second)
	})
	b.Run("against an import", func(b *testing.B) {
		compare(b, run(ready, modules), run(plain, modules), time.Second)
	})
}
