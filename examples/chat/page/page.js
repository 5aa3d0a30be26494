"use strict";

const $ = (id) => document.getElementById(id);

// el makes an element; children are elements and texts.
function el(tag, props = {}, ...children) {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...children);
  return e;
}

let chat = null;      // what the server says of the chat that is shown
let source = null;    // the EventSource of its run, if one goes on
let editing = null;   // the run whose message is written anew
let calls = new Map(); // the cards of calls, by ID
let textBox = null;   // the message that the model writes
const others = new BroadcastChannel("chat"); // tabs of the same browser

async function api(path, options) {
  let res;
  try {
    res = await fetch(path, options);
  } catch {
    throw new Error("The server cannot be reached. Try again in a moment.");
  }
  const body = res.status === 204 ? {} : await res.json().catch(() => ({}));
  if (!res.ok) throw Object.assign(new Error(body.error || `The server says ${res.status}.`), { status: res.status });
  return body;
}

function notice(text) {
  $("notice").hidden = !text;
  $("notice").textContent = text || "";
}

// file is the address of a file of the chat.
const file = (name) => `/chats/${chat.chat.id}/files/${name.split("/").map(encodeURIComponent).join("/")}`;

// ---- What the model writes

// inline makes **bold** and `code` of a line. The text goes through
// textContent, so that nothing of it is HTML.
function inline(line) {
  return line.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/).map((part) => {
    if (/^`.+`$/.test(part)) return el("code", {}, part.slice(1, -1));
    if (/^\*\*.+\*\*$/.test(part)) return el("strong", {}, part.slice(2, -2));
    if (/^\*.+\*$/.test(part)) return el("em", {}, part.slice(1, -1));
    return part;
  });
}

function markdown(text) {
  const out = [];
  text.split(/^```.*\n?/m).forEach((block, i) => {
    if (i % 2) return out.push(el("pre", {}, el("code", {}, block.replace(/\n$/, ""))));
    for (const para of block.split(/\n{2,}/)) {
      if (!para.trim()) continue;
      const lines = para.trim().split("\n");
      if (lines.every((l) => /^[-*] /.test(l))) out.push(el("ul", {}, ...lines.map((l) => el("li", {}, ...inline(l.slice(2))))));
      else out.push(el("p", {}, ...lines.flatMap((l, n) => (n ? [el("br"), ...inline(l)] : inline(l)))));
    }
  });
  return out;
}

function write(text) {
  if (!textBox) {
    textBox = el("div", { className: "text" });
    textBox.source = "";
    $("log").append(textBox);
  }
  textBox.source += text;
  textBox.replaceChildren(...markdown(textBox.source));
}

// ---- Calls

const names = { python: "Python", orders: "Looks up orders", refund: "Refund" };

function card(id, name, anew) {
  let c = calls.get(id);
  if (c && !anew) return c;
  c = {
    state: el("span", { className: "state" }), code: el("pre", { className: "code", hidden: true }), out: null,
    box: el("article", { className: "call" }),
  };
  c.box.dataset.call = id;
  c.box.append(el("header", {}, el("b", {}, names[name] || name), c.state), c.code);
  calls.set(id, c);
  textBox = null;
  $("log").append(c.box);
  return c;
}

function set(c, state, busy) {
  c.state.textContent = state;
  c.state.className = busy ? "state busy" : "state";
}

// showArguments shows a program as it is, and other arguments as JSON.
function showArguments(c, e) {
  let args = e.arguments;
  if (args === undefined || args === null) return;
  c.code.textContent = typeof args.code === "string" ? args.code : JSON.stringify(args);
  c.code.hidden = false;
}

function print(c, text) {
  if (!c.out) {
    c.out = el("pre", { className: "out" });
    c.box.append(c.out);
  }
  c.out.append(text);
  c.out.scrollTop = c.out.scrollHeight;
}

const show = {
  text_delta(e) { write(e.text); },
  call_announced(e) { set(card(e.id, e.name, true), "is being written…", true); },
  call_delta(e) {
    const c = card(e.id, "");
    if (e.property !== "code") return;
    c.code.hidden = false;
    c.code.textContent += e.value || "";
    c.code.scrollTop = c.code.scrollHeight;
  },
  approval_requested(e) {
    const c = card(e.id, e.name);
    showArguments(c, e);
    set(c, "waits for your approval");
  },
  call_started(e) {
    const c = card(e.id, e.name);
    showArguments(c, e);
    set(c, "runs…", true);
  },
  call_output(e) { print(card(e.id, ""), e.text); },
  figure(e) {
    const c = card(e.call, "");
    c.atEnd = atEnd();
    if (e.picture) c.box.append(el("img", { className: "figure", src: file(e.picture), alt: "A figure", onload: () => scroll(c.atEnd) }));
    else if (e.html) {
      // Without allow-scripts no script of the code runs.
      const frame = el("iframe", { sandbox: "allow-same-origin", srcdoc: "<meta charset=utf-8><style>body{font:13px system-ui;margin:8px}table{border-collapse:collapse}td,th{padding:3px 8px;border-bottom:1px solid #ddd;text-align:right}</style>" + e.html });
      frame.onload = () => { frame.style.height = Math.min(frame.contentDocument.documentElement.scrollHeight + 4, 420) + "px"; };
      c.box.append(frame);
    } else if (e.text) c.box.append(el("pre", {}, e.text));
  },
  files_changed(e) {
    const c = card(e.call, "");
    for (const f of e.files || []) {
      if (f.change === "removed") continue;
      c.box.append(el("a", { className: "chip", href: file(f.name), download: "" }, `↓ ${f.name} (${f.size.toLocaleString()} bytes)`));
    }
  },
  call_finished(e) {
    const c = card(e.id, e.name);
    c.box.querySelector(".decide")?.remove();
    let text = typeof e.output === "string" ? e.output : "", failed = e.is_error;
    showArguments(c, e);
    if (e.name === "python") {
      let doc = {};
      try { doc = JSON.parse(text); } catch { print(c, text); }
      failed ||= doc.status && doc.status !== "ok";
      if (doc.error) print(c, doc.error);
      if (doc.notice) c.box.append(el("p", { className: "note" }, doc.notice));
    } else if (text) print(c, text);
    c.box.classList.toggle("bad", !!failed);
    set(c, failed ? "failed" : `done in ${((e.duration_ms || 0) / 1000).toFixed(1)} s`);
  },
  retry(e) { notice(`The model is busy; another attempt follows in ${Math.ceil(e.wait_ms / 1000)} s.`); },
  missed() { chat.missed = true; },
  problem(e) { $("log").append(el("p", { className: "note error" }, e.message)); },
  done(e) { finish(e.answer); },
};

const endings = {
  approval: "", answered: "",
  cancelled: "Stopped.", deadline: "The time was up.",
  max_turns: "The model made too many rounds of calls.", max_tokens: "Your budget of tokens is used up.", max_calls: "The model made too many calls.",
  truncated: "The answer was cut at its greatest length.", filtered: "The answer was held back by a content filter.",
  refused: "", empty: "The model gave no answer.", request: "The model could not be reached, or did not take the message.", stream: "The connection to the model broke off.",
  failed: "The model failed.", aborted: "A tool has stopped the run; the log of the server says why.",
};

// settle says of the calls of a run that is over that none goes on.
function settle() {
  for (const c of calls.values()) if (c.state.classList.contains("busy")) set(c, "was stopped");
}

function finish(answer) {
  textBox = null;
  notice("");
  settle();
  if (answer.stop === "approval") return decide(answer.pending || []);
  const why = endings[answer.stop] ?? `The run ended: ${answer.stop}.`;
  if (why) goOn(why);
}

// goOn says why there is no answer, with a button to go on.
function goOn(why) {
  $("log").append(el("p", { className: "note again" }, why, el("button", { onclick: () => post({}) }, "Continue")));
}

// decide asks for a decision on each of the calls, and posts all at once.
function decide(waiting) {
  const made = {};
  for (const call of waiting) {
    const c = card(call.id, call.name);
    set(c, "waits for your approval");
    const choose = (approve) => {
      made[call.id] = approve ? { approve } : { approve, reason: "The user has said no." };
      set(c, approve ? "approved" : "rejected");
      bar.remove();
      if (Object.keys(made).length === waiting.length) post({ decisions: JSON.stringify(made) });
    };
    const bar = el("div", { className: "decide" },
      el("button", { className: "primary approve", onclick: () => choose(true) }, "Approve"),
      el("button", { className: "reject", onclick: () => choose(false) }, "Reject"));
    c.box.append(bar);
  }
}

// ---- Chats

function showPrompt(run) {
  const p = run.prompt;
  if (!p.text && !p.files && !p.pictures) return; // a decision, or go on
  calls = new Map();
  textBox = null;
  const box = el("div", { className: "prompt" }, p.text);
  for (const name of p.pictures || []) box.append(el("img", { src: file(name), alt: "A picture that you sent" }));
  if (p.files) box.append(el("div", {}, ...p.files.map((name) => el("a", { className: "chip", href: file(name), download: "" }, name))));
  box.append(el("button", { className: "edit", onclick: () => edit(run) }, "Edit"));
  $("log").append(box);
}

async function edit(run) {
  editing = run;
  const sent = [...(run.prompt.pictures || []), ...(run.prompt.files || [])];
  pick(await Promise.all(sent.map(async (name) => {
    const res = await fetch(file(name));
    return new File([await res.blob()], name);
  })));
  $("text").value = run.prompt.text;
  $("text").focus();
  notice("You write this message anew; what follows it will be replaced. Press Escape to leave it.");
}

// load shows a chat as the server has it, and follows its run if one goes on.
async function load(id) {
  source?.close();
  source = null;
  const got = await api(`/chats/${id}`);
  if (location.hash.slice(1) !== id) return;
  chat = got;
  $("log").replaceChildren();
  calls = new Map();
  chat.runs ||= [];
  chat.runs.forEach((run, i) => {
    showPrompt(run);
    textBox = null;
    const last = i === chat.runs.length - 1;
    if (last && chat.running) return follow(id);
    for (const event of run.events) {
      if (event.type !== "done") show[event.type]?.(event);
      else if (last) finish(event.answer);
      else if (event.answer.stop === "cancelled") $("log").append(el("p", { className: "note" }, "Stopped."));
    }
    if (last && !run.ended) finish({ stop: "interrupted" });
    else settle();
  });
  busy(chat.running);
  scroll(true);
  list();
}
endings.interrupted = "The server was restarted while it answered. What was finished is kept.";

// follow shows a run as it happens. When the connection breaks the browser
// connects again and says which event it had last.
function follow(id) {
  let tag = "", failures = 0;
  source = new EventSource(`/chats/${id}/events`);
  const here = source;
  for (const [type, handle] of Object.entries(show)) {
    here.addEventListener(type, (m) => {
      if (here !== source) return;
      failures = 0;
      const of = m.lastEventId.split("-")[0];
      if (of && tag && of !== tag) return load(id); // another run by now
      tag = of || tag;
      const follows = atEnd();
      handle(JSON.parse(m.data));
      scroll(follows);
      if (type !== "done") return;
      here.close();
      source = null;
      busy(false);
      if (chat.missed) load(id);
      list();
    });
  }
  here.onerror = () => {
    if (here !== source) return;
    notice("The connection is lost; trying again…");
    if (here.readyState !== EventSource.CLOSED && ++failures < 3) return; // the browser tries again
    here.close();
    setTimeout(() => reload(id), 500);
  };
  here.onopen = () => notice("");
}

// reload shows a chat again, as soon as the server can be reached.
async function reload(id) {
  try {
    await load(id);
    notice("");
  } catch (err) {
    notice(err.message);
    if (!err.status || err.status >= 500) setTimeout(() => reload(id), 1000);
  }
}

function busy(on) {
  $("stop").hidden = !on;
  $("send").hidden = on;
}

// atEnd tells whether the user looks at the end, which then stays in sight.
function atEnd() {
  return $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 80;
}

function scroll(wanted) {
  if (wanted) $("log").scrollTop = $("log").scrollHeight;
}

async function list() {
  const all = await api("/chats").catch(() => null);
  if (!all) return;
  $("chats").replaceChildren(...(all.chats || []).map((c) =>
    el("a", { href: "#" + c.id, className: chat?.chat.id === c.id ? "here" : "" }, c.title)));
  $("budget").textContent = `${all.tokens.toLocaleString()} of ${all.budget.toLocaleString()} tokens used today`;
}

// post sends a message, decisions, or neither to go on. What the server refuses
// stays in the form.
async function post({ text = "", files = [], decisions }) {
  $("send").disabled = true;
  notice("");
  try {
    if (!chat) {
      const { id } = await api("/chats", { method: "POST" });
      chat = { chat: { id, version: 0, head: "" }, runs: [] };
      history.replaceState(null, "", "#" + id);
    }
    const id = chat.chat.id;
    const form = new FormData();
    form.set("version", chat.chat.version);
    form.set("parent", editing ? editing.parent : chat.chat.head);
    form.set("text", text);
    if (decisions) form.set("decisions", decisions);
    for (const f of files) form.append("file", f);
    await api(`/chats/${id}/runs`, { method: "POST", body: form });
    editing = null;
    if (text || files.length) {
      $("text").value = "";
      pick([]);
    }
    others.postMessage(id);
    await load(id);
  } catch (err) {
    if (err.status === 409 || (err.status === 503 && chat)) await load(chat.chat.id).catch(() => {});
    notice(err.message);
  } finally {
    $("send").disabled = false;
  }
}

const maxUpload = 32 << 20; // as the server has it, which a browser may not hear of while it sends
let picked = [];
function pick(files) {
  const size = files.reduce((sum, f) => sum + f.size, 0);
  if (size > maxUpload) return notice("The files have more than 32 MiB together; send fewer or smaller ones.");
  picked = files;
  $("picked").replaceChildren(...picked.map((f) =>
    el("button", { type: "button", className: "chip", title: "Leave it out", onclick: () => pick(picked.filter((p) => p !== f)) }, f.name + " ×")));
  $("files").value = "";
}

$("files").onchange = () => pick([...picked, ...$("files").files]);
$("form").onsubmit = (e) => {
  e.preventDefault();
  const text = $("text").value.trim();
  if ((text || picked.length) && $("stop").hidden) post({ text, files: picked });
};
$("text").onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $("form").requestSubmit();
  } else if (e.key === "Escape" && editing) {
    editing = null;
    $("text").value = "";
    pick([]);
    notice("");
  }
};
$("stop").onclick = () => api(`/chats/${chat.chat.id}/stop`, { method: "POST" }).catch((err) => notice(err.message));
$("new").onclick = () => { location.hash = ""; };
document.ondragover = (e) => e.preventDefault();
document.ondrop = (e) => {
  e.preventDefault();
  pick([...picked, ...e.dataTransfer.files]);
};
others.onmessage = (m) => { if (m.data === chat?.chat.id) reload(m.data); };
window.onfocus = async () => { // another browser may have gone on with the chat
  if (!chat || source) return;
  const now = await api(`/chats/${chat.chat.id}`).catch(() => null);
  if (now && now.chat.version !== chat.chat.version) reload(chat.chat.id);
};
window.onhashchange = () => {
  notice("");
  editing = null;
  const id = location.hash.slice(1);
  if (id && id !== chat?.chat.id) return reload(id);
  if (!id) {
    source?.close();
    source = chat = null;
    $("log").replaceChildren();
    busy(false);
    list();
  }
};
list();
if (location.hash.length > 1) reload(location.hash.slice(1));
$("text").focus();
