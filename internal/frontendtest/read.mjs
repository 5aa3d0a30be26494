// Reads streams with the clients that front ends use, and says what a user would
// see: one JSON object a line on standard input, {client, stream, message}, and one
// a line on standard output, {message | messages, chunks, error}.
import readline from "node:readline";
import * as ai5 from "ai5";
import * as ai6 from "ai6";
import * as ai7 from "ai";
import { HttpAgent } from "@ag-ui/client";

const versions = { ai5, ai6, ai7 };

const answer = (stream) => async () =>
  new Response(stream, { headers: { "content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1" } });

async function readAI(ai, { stream, message }) {
  const transport = new ai.DefaultChatTransport({ api: "http://chat.invalid", fetch: answer(stream) });
  const chunks = await transport.sendMessages({ chatId: "c", messages: [], trigger: "submit-message" });
  let last = message ?? null;
  const errors = [];
  for await (const m of ai.readUIMessageStream({
    stream: chunks, message, terminateOnError: false, onError: (e) => errors.push(String(e?.message ?? e)),
  })) {
    last = m;
  }
  return { message: last, errors };
}

async function readAGUI({ stream, message }) {
  const seen = [];
  const agent = new HttpAgent({ url: "http://agent.invalid", threadId: "t", initialMessages: message ?? [], fetch: answer(stream) });
  const errors = [];
  let outcome = null;
  try {
    await agent.runAgent({ runId: "r" }, {
      onEvent: ({ event }) => { seen.push(event.type); if (event.type === "RUN_FINISHED") outcome = event.outcome; },
      onRunFailed: ({ error }) => { errors.push(String(error?.message ?? error)); },
    });
  } catch (e) {
    errors.push(String(e?.message ?? e));
  }
  return { messages: agent.messages, events: seen, outcome, errors };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  let out;
  try {
    out = job.client === "agui" ? await readAGUI(job) : await readAI(versions[job.client], job);
  } catch (e) {
    out = { errors: [String(e?.stack ?? e)] };
  }
  process.stdout.write(JSON.stringify(out) + "\n");
}
