package bubblewrap_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// Packages are installed at the first use, and are there for all runners of this
// user then. It needs an index, so it is not run here.
func ExampleRunner_packages() {
	runner := &bubblewrap.Runner{
		Packages: []string{"numpy", "pandas==2.2.*"}, // or "-r requirements.txt"
		Preload:  []string{"pandas"},                 // imported before the program comes
		Warm:     2,
	}
	defer runner.Close()
	res, err := runner.Run(context.Background(), fnloop.Program{Source: "import numpy; print(numpy.arange(4).sum())"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(res.Stdout)
}

// A service installs when it starts, and shows how that goes on.
func ExampleRunner_installing() {
	ctx := context.Background()
	r := &bubblewrap.Runner{
		Packages:   []string{"numpy", "pandas==2.2.*", "-r requirements.txt"},
		Preload:    []string{"pandas"},
		Warm:       2,
		Installing: func(line string) { slog.Info(line) },
	}
	defer r.Close()
	if err := r.Probe(ctx); err != nil { // installs now, and not at the first call
		fmt.Println(err)
		return
	}
}
