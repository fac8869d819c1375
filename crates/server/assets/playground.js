// A conversation with a model through this gateway, read while it comes. The key stays in this tab.
const field = (name) => document.getElementById(name);
const [form, talk, told] = [field("ask"), field("talk"), field("told")];
const turns = [];
let running = null;

field("key").value = sessionStorage.getItem("key") ?? "";

function show(kind, text = "") {
  const block = document.createElement("div");
  block.className = kind;
  block.textContent = text;
  talk.append(block);
  return block;
}

// Events of a stream, each as the object that its data holds.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data:"));
      if (data) yield JSON.parse(data.slice(5));
    }
  }
}

async function ask() {
  const body = { model: field("model").value, max_tokens: Number(field("most").value), stream: true, messages: turns };
  const system = field("system").value.trim();
  if (system) body.system = system;
  running = new AbortController();
  const answer = await fetch("/v1/messages", {
    method: "POST",
    headers: { "authorization": `Bearer ${field("key").value.trim()}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: running.signal,
  });
  const id = answer.headers.get("x-generation-id");
  if (!answer.ok) {
    const problem = await answer.json();
    throw new Error(problem.error?.message ?? `status ${answer.status}`);
  }
  let [text, block, usage] = ["", null, {}];
  for await (const event of events(answer.body)) {
    if (event.type === "content_block_start") block = null;
    if (event.type === "content_block_delta") {
      const piece = event.delta.text ?? event.delta.thinking;
      if (piece === undefined) continue;
      const kind = event.delta.text === undefined ? "thinking" : "assistant";
      block ??= show(kind);
      block.textContent += piece;
      if (kind === "assistant") text += piece;
    }
    if (event.type === "message_delta") usage = event.usage ?? {};
    if (event.type === "error") throw new Error(event.error.message);
  }
  if (text) turns.push({ role: "assistant", content: text });
  const cost = usage.cost == null ? ", cost unknown" : `, $${usage.cost.toFixed(9).replace(/\.?0+$/, "")}`;
  told.textContent = `${usage.input_tokens ?? "?"} tokens in, ${usage.output_tokens ?? "?"} out${cost}. `;
  if (id) {
    const link = document.createElement("a");
    link.href = `/dashboard/requests/${id}`;
    link.textContent = "Its story";
    told.append(link);
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return;
  sessionStorage.setItem("key", field("key").value);
  const message = field("message").value;
  turns.push({ role: "user", content: message });
  show("user", message);
  field("message").value = "";
  told.textContent = "…";
  field("stop").disabled = false;
  try {
    await ask();
  } catch (problem) {
    told.textContent = problem.name === "AbortError" ? "Stopped." : problem.message;
    // What was not answered can be asked again.
    if (turns.at(-1)?.role === "user") field("message").value = turns.pop().content;
  }
  running = null;
  field("stop").disabled = true;
  field("message").focus();
});

field("stop").addEventListener("click", () => running?.abort());
field("clear").addEventListener("click", () => {
  running?.abort();
  turns.length = 0;
  talk.replaceChildren();
  told.textContent = "";
});
