// The official TypeScript client against the gateway with its built-in simulated models, as the README shows it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";

const root = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../..");
const binary = process.env.TIDEGATE ?? path.join(root, "target/debug/tidegate");
const key = "sdk-tests-inference-key";
const messages = [{ role: "user", content: "Hello there" }];
let child;
let client;

before(async () => {
  const folder = mkdtempSync(path.join(tmpdir(), "tidegate-"));
  child = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--data-dir", path.join(folder, "data")], {
    env: { TIDEGATE__KEYS__INFERENCE_KEY: key, TIDEGATE__LOG__LEVEL: "warn", TIDEGATE__SERVICE__DRAIN_DELAY: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const baseURL = await new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (data) => {
      text += data;
      const found = text.match(/listening on (http:\/\/\S+)/);
      if (found) resolve(found[1]);
    });
    child.on("exit", (code) => reject(new Error(`the gateway ended with ${code}`)));
  });
  client = new Anthropic({ baseURL, apiKey: key, maxRetries: 0 });
});

after(() => child.kill("SIGTERM"));

test("a message is answered", async () => {
  const message = await client.messages.create({ model: "tidegate/sim", max_tokens: 64, messages });
  assert.equal(message.content[0].text, "You said: Hello there");
  assert.equal(message.model, "tidegate/sim");
  assert.match(message._request_id, /^gen-/);
});

test("a message is streamed", async () => {
  const pieces = [];
  const stream = client.messages.stream({ model: "tidegate/sim", max_tokens: 64, messages });
  stream.on("text", (text) => pieces.push(text));
  const message = await stream.finalMessage();
  assert.ok(pieces.length > 1);
  assert.equal(pieces.join(""), "You said: Hello there");
  assert.equal(message.stop_reason, "end_turn");
});

test("errors are the client's own", async () => {
  await assert.rejects(
    client.messages.create({ model: "tidegate/sim-status-429", max_tokens: 64, messages }),
    (error) => error instanceof Anthropic.RateLimitError && error.status === 429,
  );
  await assert.rejects(
    client.messages.create({ model: "tidegate/sim-error-mid", max_tokens: 64, messages, stream: true }).then(async (stream) => {
      for await (const event of stream) assert.notEqual(event.type, "message_stop");
    }),
    Anthropic.APIError,
  );
});
