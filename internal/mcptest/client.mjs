// A client of an MCP server that does what it is told on standard input, a JSON
// object in each line, and answers with one in each line.
import { createInterface } from 'node:readline'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

let client

const steps = {
  // server is {command, args, env} or {url, token}; mode is auto, legacy or {pin: revision}.
  async connect({ server, mode }) {
    const options = { capabilities: {}, versionNegotiation: { mode } }
    client = new Client({ name: 'driver', version: '1.0.0' }, options)
    const transport = server.url
      ? new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers: server.headers ?? {} } })
      : new StdioClientTransport({ ...server, stderr: 'inherit' })
    await client.connect(transport)
    return { protocol: client.getNegotiatedProtocolVersion(), server: client.getServerVersion() }
  },
  async list() {
    return client.listTools()
  },
  // after is when the call is cancelled, in milliseconds.
  async call({ name, arguments: args, after, timeout }) {
    const progress = []
    const abort = new AbortController()
    if (after !== undefined) setTimeout(() => abort.abort(new Error('cancelled by the driver')), after)
    const result = await client.callTool({ name, arguments: args }, {
      signal: abort.signal,
      timeout: timeout ?? 60_000,
      resetTimeoutOnProgress: true,
      onprogress: (p) => progress.push(p),
    })
    return { ...result, progress }
  },
  async close() {
    await client.close()
    return {}
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line)
  let answer
  try {
    answer = { result: await steps[step.do](step) }
  } catch (e) {
    answer = { error: String(e?.message ?? e), code: e?.code }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
await client?.close()
