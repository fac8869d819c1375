// OpenRouter's own TypeScript client against the account operations: it refuses answers that lack what its types require.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { OpenRouter } from "@openrouter/sdk";
import * as errors from "@openrouter/sdk/models/errors";

const root = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../..");
const binary = process.env.TIDEGATE ?? path.join(root, "target/debug/tidegate");
const managementKey = "sdk-tests-management-key";
const inferenceKey = "sdk-tests-inference-key";
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const instant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const newYear = new Date("2099-01-01T00:00:00Z");
const nobody = "00000000-0000-7000-8000-000000000000";
let child;
let url;
let client;
let ada;

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const fresh = (prefix) => prefix + randomBytes(6).toString("hex");
const clientOf = (apiKey) => new OpenRouter({ apiKey, serverURL: `${url}/api/v1`, appTitle: "SDK tests" });
const refusal = (kind, status, message) => (error) =>
  error instanceof kind && error.statusCode === status && error.error.code === status && error.error.message === message;

before(async () => {
  const folder = mkdtempSync(path.join(tmpdir(), "tidegate-"));
  const config = path.join(folder, "tidegate.toml");
  writeFileSync(
    config,
    `[service]
name = "openrouter"
listen = "127.0.0.1:0"
drain_delay = 0
[log]
level = "warn"
[limits]
auth_failures_per_minute = 600000
management_rpm = 600000
exchanges_per_minute = 600000
exchange_failures_per_minute = 600000
`,
  );
  const settings = ["--config", config, "--data-dir", path.join(folder, "data")];
  const env = { TIDEGATE__KEYS__INFERENCE_KEY: inferenceKey, TIDEGATE__KEYS__MANAGEMENT_KEY: managementKey };
  child = spawn(binary, ["serve", ...settings], { env, stdio: ["ignore", "pipe", "inherit"] });
  url = await new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (data) => {
      text += data;
      const found = text.match(/listening on (http:\/\/\S+)/);
      if (found) resolve(found[1]);
    });
    child.on("exit", (code) => reject(new Error(`the gateway ended with ${code}`)));
  });
  client = clientOf(managementKey);
  const words = ["members", "add", "--email", "ada@example.com", "--role", "admin", "--first-name", "Ada"];
  ada = execFileSync(binary, [...words, ...settings], { env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
});

after(() => child.kill("SIGTERM"));

async function newWorkspace() {
  const slug = fresh("w");
  return (await client.workspaces.create({ createWorkspaceRequest: { name: slug, slug } })).data;
}

async function sayHello(key) {
  const answer = await fetch(`${url}/v1/messages`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "openrouter/sim", max_tokens: 64, messages: [{ role: "user", content: "Hello" }] }),
  });
  return answer.status;
}

test("a code becomes a key that works", async () => {
  const workspace = await newWorkspace();
  const { codeChallenge, codeVerifier } = await client.oAuth.createSHA256CodeChallenge();
  const { data: code } = await client.oAuth.createAuthCode({
    requestBody: {
      callbackUrl: "https://app.example.com/callback",
      codeChallenge,
      codeChallengeMethod: "S256",
      expiresAt: newYear,
      keyLabel: "a laptop",
      limit: 12.5,
      usageLimitType: "weekly",
      workspaceId: workspace.id,
    },
  });
  assert.match(code.id, /^auth_code_[0-9A-Za-z]{43}$/);
  assert.ok(Number.isInteger(code.appId) && code.appId > 0);
  assert.match(code.createdAt, instant);
  const exchange = (requestBody) => clientOf(undefined).oAuth.exchangeAuthCodeForAPIKey({ requestBody });
  await assert.rejects(
    exchange({ code: code.id, codeVerifier: "a".repeat(43) }),
    refusal(errors.ForbiddenResponseError, 403, "Invalid code or code_verifier"),
  );
  const made = await exchange({ code: code.id, codeVerifier, codeChallengeMethod: "S256" });
  assert.match(made.key, /^sk-tg-v1-/);
  assert.equal(made.userId, null);
  assert.equal(await sayHello(made.key), 200);
  const { data: key } = await client.apiKeys.get({ hash: sha256(made.key) });
  assert.deepEqual([key.name, key.limit, key.limitReset, key.workspaceId], ["a laptop", 12.5, "weekly", workspace.id]);
  assert.equal(key.expiresAt.getTime(), newYear.getTime());
});

test("the address that the client makes is that of the page", async () => {
  const { codeChallenge } = await client.oAuth.createSHA256CodeChallenge();
  const address = await client.oAuth.createAuthorizationUrl({
    callbackUrl: "http://localhost:3000/callback",
    codeChallenge,
    codeChallengeMethod: "S256",
    limit: 5,
  });
  assert.equal(new URL(address).origin, url);
  const page = await fetch(address);
  assert.equal(page.status, 200);
  assert.match(page.headers.get("content-type"), /^text\/html/);
  assert.match(await page.text(), /Sign in/);
});

test("the life of a key", async () => {
  const workspace = await newWorkspace();
  await client.workspaces.bulkAddMembers({ id: workspace.id, bulkAddWorkspaceMembersRequest: { userIds: [ada] } });
  const made = await client.apiKeys.create({
    requestBody: {
      name: "first",
      creatorUserId: ada,
      expiresAt: newYear,
      external: { user: "customer-7" },
      includeByokInLimit: true,
      limit: 3.25,
      limitReset: "monthly",
      workspaceId: workspace.id,
    },
  });
  const key = made.data;
  assert.equal(key.hash, sha256(made.key));
  assert.equal(key.label, `${made.key.slice(0, 12)}...${made.key.slice(-4)}`);
  assert.deepEqual(
    [key.name, key.disabled, key.creatorUserId, key.workspaceId, key.includeByokInLimit],
    ["first", false, ada, workspace.id, true],
  );
  assert.deepEqual([key.limit, key.limitRemaining, key.limitReset], [3.25, 3.25, "monthly"]);
  assert.equal(key.expiresAt.getTime(), newYear.getTime());
  assert.match(key.createdAt, instant);
  assert.equal(key.updatedAt, null);
  for (const member of ["usage", "usageDaily", "usageWeekly", "usageMonthly", "byokUsage", "byokUsageDaily"]) {
    assert.equal(key[member], 0, member);
  }
  assert.deepEqual((await client.apiKeys.get({ hash: key.hash })).data, key);

  const update = async (requestBody) => (await client.apiKeys.update({ hash: key.hash, requestBody })).data;
  const changed = await update({ name: "second", limit: null, limitReset: null, includeByokInLimit: false });
  assert.deepEqual([changed.name, changed.limit, changed.limitRemaining, changed.limitReset], ["second", null, null, null]);
  assert.match(changed.updatedAt, instant);
  assert.equal((await update({ disabled: true })).disabled, true);
  assert.equal(await sayHello(made.key), 401);
  const listed = async (filters) => (await client.apiKeys.list({ workspaceId: workspace.id, ...filters })).data.length;
  assert.equal(await listed({}), 0);
  assert.equal(await listed({ includeDisabled: true }), 1);
  assert.equal((await client.apiKeys.delete({ hash: key.hash })).deleted, true);
  await assert.rejects(
    client.apiKeys.get({ hash: key.hash }),
    refusal(errors.NotFoundResponseError, 404, "Resource not found"),
  );
});

test("the key that calls, and credits", async () => {
  for (const [key, isManagement] of [[inferenceKey, false], [managementKey, true]]) {
    const { data } = await clientOf(key).apiKeys.getCurrentKeyMetadata();
    assert.deepEqual([data.isManagementKey, data.isProvisioningKey, data.isFreeTier], [isManagement, isManagement, false]);
    assert.equal(data.rateLimit.requests, -1);
    assert.ok(data.label.length > 0);
  }
  const { data } = await client.credits.getCredits();
  assert.ok(Math.abs(data.totalCredits - data.totalUsage - 1_000_000) < 1e-6);
});

test("the life of a credential", async () => {
  const workspace = await newWorkspace();
  const key = await client.apiKeys.create({ requestBody: { name: "allowed", workspaceId: workspace.id } });
  const { data: made } = await client.byok.create({
    createBYOKKeyRequest: {
      provider: "anthropic",
      key: "sk-ant-0123456789abcdefWXYZ",
      name: "team a",
      workspaceId: workspace.id,
      isRequired: true,
      declaredZdr: true,
      allowedModels: ["anthropic/claude-sonnet-4.5"],
      allowedUserIds: [ada],
      allowedApiKeyHashes: [key.data.hash],
    },
  });
  assert.match(made.id, uuid);
  assert.match(made.createdAt, instant);
  assert.deepEqual([made.provider, made.name, made.label, made.sortOrder], ["anthropic", "team a", "sk-...WXYZ", 0]);
  assert.deepEqual([made.disabled, made.isFallback, made.isRequired, made.isByokOnly], [false, false, true, false]);
  assert.deepEqual([made.declaredZdr, made.workspaceId], [true, workspace.id]);
  assert.deepEqual(made.allowedModels, ["anthropic/claude-sonnet-4.5"]);
  assert.deepEqual([made.allowedUserIds, made.allowedApiKeyHashes], [[ada], [key.data.hash]]);
  assert.deepEqual((await client.byok.get({ id: made.id })).data, made);

  const update = async (change) => (await client.byok.update({ id: made.id, updateBYOKKeyRequest: change })).data;
  assert.deepEqual(await update({}), made);
  assert.equal((await update({ name: "team b" })).name, "team b");
  assert.equal((await update({ name: null })).name, null);
  assert.equal((await update({ disabled: true })).disabled, true);
  assert.equal((await update({ allowedModels: null })).allowedModels, null);
  assert.deepEqual((await update({ allowedUserIds: [] })).allowedUserIds, []);
  assert.equal((await update({ key: "sk-ant-another-secret-9876" })).label, "sk-...9876");
  assert.equal((await update({ isFallback: true })).isFallback, true);
  await assert.rejects(
    update({ isByokOnly: true }),
    refusal(errors.BadRequestResponseError, 400, "Invalid request parameters"),
  );
  assert.equal((await client.byok.delete({ id: made.id })).deleted, true);
  await assert.rejects(update({}), refusal(errors.NotFoundResponseError, 404, "Resource not found"));
});

test("credentials are listed page by page", async () => {
  const workspace = await newWorkspace();
  const made = [];
  for (let n = 0; n < 5; n++) {
    const request = { provider: "openai", key: "secret", workspaceId: workspace.id };
    made.push((await client.byok.create({ createBYOKKeyRequest: request })).data.id);
  }
  const seen = [];
  for await (const page of await client.byok.list({ workspaceId: workspace.id, provider: "openai", limit: 2 })) {
    assert.equal(page.result.totalCount, 5);
    seen.push(...page.result.data.map((credential) => credential.id));
  }
  assert.deepEqual(seen, made);
});

test("the life of a workspace", async () => {
  const slug = fresh("s-");
  const { data: made } = await client.workspaces.create({
    createWorkspaceRequest: {
      name: "Team",
      slug,
      description: "Who builds",
      defaultTextModel: "tidegate/sim",
      defaultProviderSort: "price",
      ioLoggingApiKeyIds: [1, 2],
      ioLoggingSamplingRate: 0.5,
      isDataDiscountLoggingEnabled: true,
      isObservabilityBroadcastEnabled: false,
      isObservabilityIoLoggingEnabled: true,
    },
  });
  assert.match(made.id, uuid);
  assert.match(made.defaultGuardrailId, uuid);
  assert.match(made.createdAt, instant);
  assert.deepEqual([made.name, made.slug, made.description], ["Team", slug, "Who builds"]);
  assert.deepEqual([made.defaultTextModel, made.defaultImageModel, made.defaultProviderSort], ["tidegate/sim", null, "price"]);
  assert.deepEqual([made.ioLoggingApiKeyIds, made.ioLoggingSamplingRate], [[1, 2], 0.5]);
  assert.deepEqual([made.isObservabilityBroadcastEnabled, made.isObservabilityIoLoggingEnabled], [false, true]);
  assert.deepEqual([made.updatedAt, made.createdBy, made.isDataDiscountLoggingEnabled], [null, null, true]);
  assert.deepEqual((await client.workspaces.get({ id: slug })).data, made);
  const change = { name: "Crew", description: null };
  const { data: changed } = await client.workspaces.update({ id: made.id, updateWorkspaceRequest: change });
  assert.deepEqual([changed.name, changed.description, changed.slug], ["Crew", null, slug]);
  const seen = [];
  for await (const page of await client.workspaces.list({ limit: 1 })) seen.push(...page.result.data.map(({ id }) => id));
  assert.ok(seen.includes(made.id) && new Set(seen).size === seen.length);
  assert.equal((await client.workspaces.delete({ id: made.id })).deleted, true);
  await assert.rejects(
    client.workspaces.delete({ id: "default" }),
    refusal(errors.ForbiddenResponseError, 403, "The default workspace cannot be deleted"),
  );
});

test("members and budgets", async () => {
  const workspace = await newWorkspace();
  const who = { userIds: [ada] };
  const added = await client.workspaces.bulkAddMembers({ id: workspace.id, bulkAddWorkspaceMembersRequest: who });
  assert.equal(added.addedCount, 1);
  const [member] = added.data;
  assert.deepEqual([member.userId, member.role, member.workspaceId], [ada, "admin", workspace.id]);
  assert.match(member.id, uuid);
  assert.match(member.createdAt, instant);
  const listed = await client.workspaces.listMembers({ id: workspace.id });
  assert.deepEqual(listed.result.data, added.data);
  const removed = await client.workspaces.bulkRemoveMembers({ id: workspace.id, bulkRemoveWorkspaceMembersRequest: who });
  assert.equal(removed.removedCount, 1);
  const people = (await client.organization.listMembers()).result;
  const person = people.data.find(({ id }) => id === ada);
  assert.deepEqual(person, { id: ada, email: "ada@example.com", firstName: "Ada", lastName: null, role: "org:admin" });

  const ref = { workspaceRef: workspace.id, interval: "monthly" };
  const wanted = { limitUsd: 100.5, includeByokInBudgets: true };
  const put = await client.workspaces.setBudget({ ...ref, upsertWorkspaceBudgetRequest: wanted });
  assert.deepEqual([put.data.limitUsd, put.data.resetInterval, put.includeByokInBudgets], [100.5, "monthly", true]);
  assert.match(put.data.updatedAt, instant);
  assert.deepEqual((await client.workspaces.getBudget(ref)).data, put.data);
  assert.deepEqual((await client.workspaces.listBudgets({ workspaceRef: workspace.slug })).data, [put.data]);
  assert.equal((await client.workspaces.deleteBudget(ref)).deleted, true);
  await assert.rejects(client.workspaces.getBudget(ref), refusal(errors.NotFoundResponseError, 404, "Resource not found"));
});

test("errors are the client's own", async () => {
  const requestBody = { callbackUrl: "https://many.example.com/" };
  await assert.rejects(
    clientOf("sk-tg-v1-nobody").byok.list(),
    refusal(errors.UnauthorizedResponseError, 401, "Invalid API key"),
  );
  await assert.rejects(
    clientOf(inferenceKey).oAuth.createAuthCode({ requestBody }),
    refusal(errors.ForbiddenResponseError, 403, "Only management keys can perform this operation"),
  );
  await assert.rejects(
    client.oAuth.createAuthCode({ requestBody: { callbackUrl: "http://evil.example.com/" } }),
    refusal(errors.BadRequestResponseError, 400, "Invalid request parameters"),
  );
  await assert.rejects(
    client.byok.get({ id: nobody }),
    refusal(errors.NotFoundResponseError, 404, "Resource not found"),
  );
  for (let n = 0; n < 100; n++) await client.oAuth.createAuthCode({ requestBody });
  await assert.rejects(
    client.oAuth.createAuthCode({ requestBody }),
    refusal(errors.ConflictResponseError, 409, "Resource conflict. Please try again later."),
  );
});
