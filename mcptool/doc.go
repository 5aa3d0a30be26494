// Package mcptool joins fnloop and the Model Context Protocol, both ways: the tools
// of MCP servers become tools of a Loop, and tools of fnloop become an MCP server.
//
// [Connect] starts a server, or reaches one over HTTP, and [Conn.Tools] gives its
// tools. [Serve] offers tools on standard input and output, [Handler] over HTTP.
// Both ends speak all revisions of the protocol from 2024-11-05 to 2026-07-28.
//
// # Trust
//
// A server is a program of somebody else. What it says of its tools reaches the
// model: a description can hold instructions, and a tool that was harmless
// yesterday can be another one today. So take a server's tools by name
// ([Server.Only]), ask a person before calls with effects ([Server.NeedsApproval]),
// and hold what was approved ([Server.Pin]). A server's own hints about its tools
// decide nothing here. A server that is a process has the rights of this process
// and no sandbox; it gets an environment of its own, without the secrets of this
// one.
package mcptool
