package mcptool_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
	"github.com/fnloop/fnloop/responsestest"
)

// clock is a server with one tool.
func clock() *httptest.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "clock", Version: "1"}, nil)
	type place struct {
		City string `json:"city"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "time_in", Description: "The time in a city."}, func(_ context.Context, _ *mcp.CallToolRequest, in place) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "in " + in.City + " it is noon"}}}, nil, nil
	})
	return httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
}

// The tools of a server in a Loop. A server that is a program has a Command instead
// of a URL.
func ExampleConnect() {
	srv := clock()
	defer srv.Close()
	ctx := context.Background()

	conn, err := mcptool.Connect(ctx, mcptool.Server{Name: "clock", URL: srv.URL, NeedsApproval: fnloop.Always})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	tools, err := conn.Tools(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	model := responsestest.NewServer(
		responsestest.Call("call_1", "clock__time_in", `{"city":"Lisbon"}`),
		responsestest.Text("It is noon there."),
	)
	defer model.Close()
	loop := &fnloop.Loop{Client: model.Client(), Model: "gpt-6-astra", Tools: tools}
	answer, err := loop.Run(ctx, "What time is it in Lisbon?")
	for _, call := range answer.Waiting() {
		fmt.Println("may it call", call.Name, string(call.Arguments))
		answer.Approve(call.ID)
	}
	if answer, err = loop.Continue(ctx, answer, ""); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Calls[0].Output.Text)
	fmt.Println(answer.Text)
	// Output:
	// may it call clock__time_in {"city":"Lisbon"}
	// in Lisbon it is noon
	// It is noon there.
}

// A server that is down does not keep the others from working.
func ExampleConnectAll() {
	srv := clock()
	defer srv.Close()
	conns, err := mcptool.ConnectAll(context.Background(),
		mcptool.Server{Name: "clock", URL: srv.URL},
		mcptool.Server{Name: "files", Command: "/nonexistent/server"},
	)
	fmt.Println(err)
	for _, c := range conns {
		defer c.Close()
		fmt.Println("connected to", c.Name())
	}
	// Output:
	// mcptool: server files: it cannot be started: fork/exec /nonexistent/server: no such file or directory
	// connected to clock
}

// Tools of a back end for any program that speaks the protocol. [mcptool.Serve] is
// for those that start this one as a process.
func ExampleHandler() {
	type place struct {
		City string `json:"city"`
	}
	weather := fnloop.MustTool("weather", "Tomorrow's weather in a city.", func(_ context.Context, in place) (string, error) {
		return "sun in " + in.City, nil
	})
	ctx := context.Background()
	handler, err := mcptool.Handler(ctx, mcptool.ServeOptions{Name: "weather", Version: "1", Token: "secret"}, weather)
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(handler) // a back end has http.ListenAndServe("127.0.0.1:8080", handler)
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println("without the token:", resp.Status)
	// Output: without the token: 401 Unauthorized
}

// A server of one's own on standard input and output: a program with these lines in
// its main is one that MCP clients can start.
func ExampleServe() {
	add := fnloop.MustTool("add", "Adds two numbers.", func(_ context.Context, in struct {
		A int `json:"a"`
		B int `json:"b"`
	}) (int, error) {
		return in.A + in.B, nil
	})
	// A client would write this.
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}` + "\n")
	err := mcptool.Serve(context.Background(), mcptool.ServeOptions{Name: "sums", Version: "1", Stdin: in, Stdout: io.Discard}, add)
	fmt.Println(err)
	// Output: <nil>
}

// A server that is a program, with some of its tools, beside one that is reached over
// HTTP.
func ExampleServer() {
	ctx := context.Background()
	files := mcptool.Server{
		Name: "files", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/home/you/notes"},
		Only:          []string{"list_directory", "read_text_file", "edit_file"},
		NeedsApproval: func(_ context.Context, call fnloop.Call) bool { return call.Name == "files__edit_file" },
	}
	tracker := mcptool.Server{Name: "tracker", URL: "https://tracker.example/mcp", Timeout: time.Minute}
	conns, err := mcptool.ConnectAll(ctx, files, tracker) // one that is down does not keep the other from working
	if err != nil {
		log.Print(err)
	}
	var tools []fnloop.Tool
	for _, c := range conns {
		defer c.Close()
		more, err := c.Tools(ctx)
		if err != nil {
			log.Print(err) // names tools that cannot be used; the others can
		}
		tools = append(tools, more...)
	}
	loop := &fnloop.Loop{Model: "gpt-6-astra", Tools: tools}
	if err := loop.Check(ctx); err != nil {
		log.Print(err)
	}
}

// The servers that another program has been told of.
func ExampleReadServers() {
	file := `{"mcpServers": {
		"notes": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${HOME}/notes"]},
		"tracker": {"type": "http", "url": "https://tracker.example/mcp", "headers": {"Authorization": "Bearer ${TRACKER_TOKEN}"}}
	}}`
	home := map[string]string{"HOME": "/home/you", "TRACKER_TOKEN": "secret"}
	servers, err := mcptool.ReadServers([]byte(file), func(name string) (string, bool) { // os.LookupEnv, as a rule
		value, ok := home[name]
		return value, ok
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range servers {
		fmt.Println(s.Name, s.Command+s.URL, s.Args)
	}
	// Output:
	// notes npx [-y @modelcontextprotocol/server-filesystem /home/you/notes]
	// tracker https://tracker.example/mcp []
}

// The names are a function of the pair, so that a stored conversation means the
// same tomorrow.
func ExampleToolName() {
	fmt.Println(mcptool.ToolName("files", "read_file"))
	fmt.Println(mcptool.ToolName("files", "fs.read"))
	// Output:
	// files__read_file
	// files__fs_read_ada9233e
}
