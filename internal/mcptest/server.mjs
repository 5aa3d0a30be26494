// A server of the protocol of 2026-07-28, and of no older one. With an address as
// its argument it serves HTTP there, else standard input and output.
import { createServer } from 'node:http'
import { createMcpHandler, fromJsonSchema, McpServer } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'

function make() {
  const server = new McpServer({ name: 'modern', version: '1.0.0' })
  const inputSchema = fromJsonSchema({
    type: 'object',
    properties: { b: { type: 'number' }, a: { type: 'number' } },
    required: ['b', 'a'],
    additionalProperties: false,
  })
  server.registerTool('add', { description: 'Adds two numbers.', inputSchema }, async ({ a, b }) => ({
    content: [{ type: 'text', text: String(a + b) }],
    structuredContent: { sum: a + b },
  }))
  return server
}

const port = process.argv[2]
if (port === undefined) {
  serveStdio(make, { legacy: 'reject' })
} else {
  const handler = createMcpHandler(make)
  createServer(async (req, res) => {
    const chunks = []
    for await (const chunk of req) chunks.push(chunk)
    const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined
    const answer = await handler.fetch(new Request(`http://${req.headers.host}${req.url}`, { method: req.method, headers: req.headers, body }))
    res.writeHead(answer.status, Object.fromEntries(answer.headers))
    for await (const chunk of answer.body ?? []) res.write(chunk)
    res.end()
  }).listen(Number(port), '127.0.0.1', function () {
    console.error(`listening on ${this.address().port}`)
  })
}
