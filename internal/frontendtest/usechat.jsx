// A page with useChat of the AI SDK, for the test of examples/chat that drives it in
// a browser.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const id = location.pathname.slice(1);
const transport = new DefaultChatTransport({ api: "/api/chat" });

function Part({ part, decide }) {
  if (part.type === "text") return <p className="text">{part.text}</p>;
  if (!part.toolCallId) return null;
  const approval = part.state === "approval-requested" && part.approval;
  return (
    <div className="tool" data-state={part.state}>
      {part.toolName ?? part.type} {JSON.stringify(part.input)} <output>{JSON.stringify(part.output)}</output>
      {approval && <button className="approve" onClick={() => decide({ id: approval.id, approved: true })}>Approve</button>}
    </div>
  );
}

function Chat() {
  const [text, setText] = useState("");
  const chat = useChat({ id, transport, resume: true, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
  const send = (e) => {
    e.preventDefault();
    chat.sendMessage({ text });
    setText("");
  };
  const stop = () => {
    fetch(`/api/chat/${id}/stop`, { method: "POST" }); // which ends the run, and so the stream
  };
  return (
    <main>
      {chat.messages.map((m) => (
        <section key={m.id} className={m.role}>
          {m.parts.map((part, i) => <Part key={i} part={part} decide={chat.addToolApprovalResponse} />)}
        </section>
      ))}
      <p id="status">{chat.status}</p>
      <p id="error">{chat.error?.message}</p>
      <form onSubmit={send}>
        <input id="text" value={text} onChange={(e) => setText(e.target.value)} />
        <button type="button" id="stop" onClick={stop}>Stop</button>
      </form>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
