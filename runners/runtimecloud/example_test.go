package runtimecloud_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/fake"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

func ExampleRunner() {
	runner := &runtimecloud.Runner{} // with RUNTIME_API_KEY in the environment
	defer runner.Close()             // waits until the sandboxes are deleted
	if err := runner.Probe(context.Background()); err != nil {
		log.Fatal(err) // a bad key, before any program meets it
	}
	tool := fnloop.PythonTool(runner, fnloop.Limits{Time: 20 * time.Second})
	fmt.Println(tool.Name)
}

// The stand-in of package runtimetest takes the service's place in tests. Here
// it plays what its sandboxes answer.
func ExampleRunner_Run() {
	api := &runtimetest.Server{Exec: func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
		fmt.Fprintln(cmd.Stdout, 6*7)
		return runtimetest.Exit{Code: 0}
	}}
	srv := httptest.NewServer(api)
	defer srv.Close()

	runner := &runtimecloud.Runner{Key: runtimetest.Key, URL: srv.URL}
	result, err := runner.Run(context.Background(), fnloop.Program{Source: "print(6 * 7)"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Text())
	if err := runner.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("left alive:", len(api.Live()))
	// Output:
	// {"exit_code":0,"timed_out":false,"stdout":"42\n","stderr":""}
	// left alive: 0
}

func ExampleError() {
	api := new(runtimetest.Server)
	api.Fail(runtimetest.StepCreate, runtimetest.Fault{
		Status: 402, Code: "insufficient_funds", Message: "The balance is used up.", Hint: "Add credit.",
	})
	runner := &runtimecloud.Runner{Key: runtimetest.Key, Transport: api}
	defer runner.Close()

	_, err := runner.Run(context.Background(), fnloop.Program{Source: "pass"})
	if e, ok := errors.AsType[*runtimecloud.Error](err); ok {
		fmt.Println(e.Op, e.Code, e.Status, e.Retryable())
		fmt.Println(e.Hint)
	}
	// Output:
	// create insufficient_funds 402 false
	// Add credit.
}

// A session is kept by the service, and found again by another process. Here
// package fake plays the interpreter.
func ExampleRunner_ResumeInterpreter() {
	ctx := context.Background()
	api := &runtimetest.Server{Python: &fake.Runner{}}
	open := func() *runtimecloud.Runner {
		return &runtimecloud.Runner{Key: runtimetest.Key, Transport: api, Keep: 30 * 24 * time.Hour}
	}

	runner := open()
	session, err := interpreter.Open(ctx, runner, interpreter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.Run(ctx, interpreter.Cell{Source: "x = 1"}); err != nil {
		log.Fatal(err)
	}
	ref := session.Ref() // to be stored; Sessions keeps it in the Answer
	if err := errors.Join(session.Release(), runner.Close()); err != nil {
		log.Fatal(err)
	}

	runner = open() // in another process, days later
	defer runner.Close()
	session, err = interpreter.Resume(ctx, runner, interpreter.Config{}, ref)
	if err != nil {
		log.Fatal(err)
	}
	e, err := session.Run(ctx, interpreter.Cell{Source: "x"})
	if err != nil {
		log.Fatal(err)
	}
	cost, err := runner.Cost(ctx, ref)
	fmt.Println(e.Status, "lost:", e.Loss != nil, "costs:", cost.Micros, err)
	fmt.Println(session.Close(), len(api.Live()))
	// Output:
	// ok lost: false costs: 0 <nil>
	// <nil> 0
}

// An image is built once, and every sandbox then starts with what is in it.
func ExampleRunner_BuildImage() {
	api := new(runtimetest.Server)
	runner := &runtimecloud.Runner{Key: runtimetest.Key, Transport: api}
	defer runner.Close()
	id, err := runner.BuildImage(context.Background(), runtimecloud.ImageRecipe{Name: "science", Pip: []string{"scipy", "polars"}})
	if err != nil {
		log.Fatal(err)
	}
	sandboxes := &runtimecloud.Runner{Image: id} // or "science"
	fmt.Println(sandboxes.Image != "")
	// Output: true
}

// Packages are installed with nothing but PyPI in reach, and the network is
// closed again before the program is there.
func ExamplePipInstall() {
	runner := &runtimecloud.Runner{Setup: runtimecloud.PipInstall("httpx==0.28.1", "rich==14.2.0")}
	fmt.Println(runner.Setup.Network.Allow, runner.Network.Internet)
	// Output: [pypi.org files.pythonhosted.org] false
}

// Code in the sandbox calls an API with a key that it never holds.
func ExampleRunner_SetSecret() {
	api := new(runtimetest.Server)
	runner := &runtimecloud.Runner{
		Key: runtimetest.Key, Transport: api,
		Network: runtimecloud.Network{Internet: true, Allow: []string{"api.weather.example"}},
	}
	defer runner.Close()

	secret := runtimecloud.EgressSecret{
		Name: "WEATHER_KEY", Value: "w-12345", Hosts: []string{"api.weather.example"},
		Header: "Authorization", Format: "Bearer {value}",
	}
	stored, err := runner.SetSecret(context.Background(), secret)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored.Name, stored.Hosts)
	fmt.Printf("%+v\n", secret.Value)
	// Output:
	// WEATHER_KEY [api.weather.example]
	// [redacted]
}

// A program that crashed may have left sandboxes. Whatever is older than any
// run can be is deleted.
func ExampleRunner_Sweep() {
	runner := &runtimecloud.Runner{}
	defer runner.Close()
	deleted, err := runner.Sweep(context.Background(), 30*time.Minute)
	if err != nil {
		log.Print(err)
	}
	for _, id := range deleted {
		log.Printf("deleted %s", id)
	}
}

// What a run cost is told once its sandbox is gone.
func ExampleCharge() {
	runner := &runtimecloud.Runner{
		Charged: func(_ context.Context, c runtimecloud.Charge) {
			about := ""
			if c.Estimate {
				about = "at most "
			}
			log.Printf("run %s: %s%.6f USD", c.Run, about, float64(c.Micros)/1e6)
		},
	}
	defer runner.Close()
}
