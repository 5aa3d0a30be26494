package interpreter_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

// A user uploads a file, and the model works with it in an interpreter that
// stays alive.
func ExampleSessions() {
	ctx := context.Background()
	srv := rt.NewServer(
		rt.Call("call_1", "python", `{"code":"import pandas as pd; df = pd.read_csv('data.csv'); len(df)"}`),
		rt.Text("The file has 2 rows."))
	defer srv.Close()
	runner := &fake.Runner{Cells: func(context.Context, *fake.Interpreter, interpreter.Cell) (interpreter.Execution, error) {
		return interpreter.Execution{Displays: []interpreter.Display{{Main: true, Data: map[string][]byte{"text/plain": []byte("2")}}}}, nil
	}} // bubblewrap.Runner and docker.Runner run it for real

	client := srv.Client()

	sessions := &interpreter.Sessions{Runner: runner}
	defer sessions.Close()
	loop := &fnloop.Loop{Client: client, Model: "gpt-6-astra", Tools: []fnloop.Tool{sessions.Tool()}}

	answer := new(fnloop.Answer) // of the conversation; store it when it changes
	session, release, err := sessions.Session(ctx, answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = session.Put(ctx, "data.csv", strings.NewReader("city,sales\nOslo,3\nRome,4\n"))
	release()
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err = loop.Continue(ctx, answer, "How many rows has data.csv?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Calls[0].Text)
	fmt.Println(answer.Text)
	// Output:
	// {"status":"ok","result":"2"}
	// The file has 2 rows.
}

// A program of one's own opens a session, passes a file in, and runs a cell.
func ExampleOpen() {
	runner := &fake.Runner{Cells: func(context.Context, *fake.Interpreter, interpreter.Cell) (interpreter.Execution, error) {
		return interpreter.Execution{Displays: []interpreter.Display{{Main: true, Data: map[string][]byte{"text/plain": []byte("3")}}}}, nil
	}} // bubblewrap.Runner and docker.Runner run it for real
	upload := strings.NewReader("city,sales\nOslo,3\nRome,4\n")
	if err := count(context.Background(), runner, upload); err != nil {
		fmt.Println(err)
	}
	// Output: ok {"status":"ok","result":"3"}
}

func count(ctx context.Context, runner fnloop.Runner, upload io.Reader) error {
	session, err := interpreter.Open(ctx, runner, interpreter.Config{})
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Put(ctx, "data.csv", upload); err != nil {
		return err
	}
	e, err := session.Run(ctx, interpreter.Cell{Source: "n = len(open('data.csv').readlines()); n"})
	if err != nil {
		return err // the runner is at fault, or ctx ended
	}
	fmt.Println(e.Status, e.Text())
	return nil
}

// A runner that keeps sessions by itself, as that of Runtime Cloud does, finds them
// again.
func ExampleResume() {
	ctx := context.Background()
	runner := &fake.Runner{Keep: true}
	session, err := interpreter.Open(ctx, runner, interpreter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ref := session.Ref()                      // empty where it cannot be kept
	if err := session.Release(); err != nil { // it stays
		log.Fatal(err)
	}
	session, err = interpreter.Resume(ctx, runner, interpreter.Config{}, ref) // here or in another process
	if err != nil {
		log.Fatal(err)
	}
	copies, err := session.Fork(ctx, 2) // with all variables and files
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range append(copies, session) {
		if err := s.Close(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(len(runner.Interpreters()), "interpreters, all closed:", runner.Interpreters()[0].Closed())
	// Output: 3 interpreters, all closed: true
}
