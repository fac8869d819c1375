// Claude Code in print mode, on upstreams that speak other protocols: it asks, runs the tool that it is told to, and
// answers with what the tool said. Everything stays on loopback.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const binary = process.env.TIDEGATE ?? path.resolve(here, "../../target/debug/tidegate");
const claude = path.join(here, "node_modules/.bin/claude");
const key = "claude-code-inference-key";
const protocols = {
  chat: ["openai-chat", "/v1"],
  gemini: ["gemini", "/v1beta"],
  responses: ["openai-responses", "/v1"],
  converse: ["bedrock-converse", ""],
  cohere: ["cohere", ""],
};
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-"));
const children = [];
let upstream;
let gateway;

function started(words, env) {
  const child = spawn(binary, words, { env, stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (data) => {
      text += data;
      const found = text.match(/listening on (http:\/\/\S+)/);
      if (found) resolve(found[1]);
    });
    child.on("exit", (code) => reject(new Error(`${words[0]} ended with ${code}`)));
  });
}

before(async () => {
  upstream = await started(["sim"], {});
  const input = { command: "echo the tide is $((40 + 1))", description: "Ask for the tide" };
  const script = { behaviour: { calls: { name: "Bash", input } } };
  const set = await fetch(`${upstream}/_sim/script`, { method: "PUT", body: JSON.stringify(script) });
  assert.ok(set.ok, await set.text());
  const entries = Object.entries(protocols).map(
    ([name, [protocol, base]]) => `
[[providers]]
slug = "the-${name}"
protocol = "${protocol}"
base_url = "${upstream}${base}"
api_key = "upstream-secret"
[[models]]
id = "${name}/agent"
context_length = 200000
max_output_tokens = 32000
[[models.endpoints]]
provider = "the-${name}"
model = "scripted"
pricing = { input = 0, output = 0 }
`,
  );
  const config = path.join(folder, "tidegate.toml");
  writeFileSync(config, `[service]\nlisten = "127.0.0.1:0"\ndrain_delay = 0\n${entries.join("")}`);
  gateway = await started(["serve", "--config", config, "--data-dir", path.join(folder, "data")], {
    TIDEGATE__KEYS__INFERENCE_KEY: key,
    TIDEGATE__LOG__LEVEL: "warn",
  });
});

after(() => children.forEach((child) => child.kill("SIGTERM")));

for (const name of Object.keys(protocols)) {
  test(`a session with a tool on a ${name} upstream`, async () => {
    const home = path.join(folder, name);
    mkdirSync(home);
    const words = ["-p", "What is the tide?", "--model", `${name}/agent`, "--allowedTools", "Bash", "--output-format", "json"];
    const env = {
      PATH: process.env.PATH,
      HOME: home,
      ANTHROPIC_BASE_URL: gateway,
      ANTHROPIC_API_KEY: key,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
      DISABLE_TELEMETRY: "1",
    };
    const running = promisify(execFile)(claude, words, { cwd: home, env, timeout: 120_000 });
    running.child.stdin.end();
    const { stdout } = await running;
    const session = JSON.parse(stdout);
    assert.equal(session.is_error, false, stdout);
    assert.equal(session.num_turns, 2, stdout);
    assert.match(session.result, /the tide is 41/);
  });
}
