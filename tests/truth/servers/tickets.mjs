// A help desk: McpServer of the TypeScript SDK; handlers throw, or return isError with a text.

import { execFile, execFileSync, execSync, spawnSync } from "node:child_process";
import { createDecipheriv, createHmac, createPublicKey } from "node:crypto";
import fs from "node:fs";
import fsp from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { createRequire } from "node:module";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import zlib from "node:zlib";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { ErrorCode, McpError } from "@modelcontextprotocol/sdk/types.js";
import axios from "axios";
import pg from "pg";
import { z } from "zod";
import { closedPort, fails, hides, upstream, works } from "./kit.mjs";
import { plan, run } from "./native.mjs";

const require = createRequire(import.meta.url);
const server = new McpServer({ name: "tickets", version: "2.4.1" });
const data = path.resolve("desk");

fs.mkdirSync(data, { recursive: true });
fs.writeFileSync(path.join(data, "slas.json"), '{"gold": {"hours": 4}, "silver": {"hours": ');
fs.writeFileSync(path.join(data, "macros.json"), "");
fs.writeFileSync(path.join(data, "mails.gz"), Buffer.concat([zlib.gzipSync("hello ".repeat(90)).subarray(0, 18), Buffer.from("zz")]));
fs.writeFileSync(path.join(data, "signing.pem"), "-----BEGIN PUBLIC KEY-----\nnope\n-----END PUBLIC KEY-----\n");
fs.writeFileSync(path.join(data, "notify.sh"), "#!/bin/sh\nexit 0\n", { mode: 0o644 });
fs.writeFileSync(path.join(data, "roster.csv"), "day;agent\nmon;anna\ntue\n");
for (const [link, target] of [["outbox", "/dev/full"], ["numbers", "/proc/sys/kernel/ostype"]]) {
  fs.rmSync(path.join(data, link), { force: true });
  fs.symlinkSync(target, path.join(data, link));
}

const tickets = new Map([
  [1, { id: 1, title: "Printer on fire", state: "open", assignee: { name: "anna" }, comments: ["which one?"], opened: "2026-11-01T08:00:00Z", priority: "high" }],
  [2, { id: 2, title: "VPN", state: "closed", assignee: null, comments: null, opened: "last week", priority: "urgent" }],
  [3, { id: 3, title: null, state: "open", assignee: { name: "ben" }, opened: null, priority: "low", parent: 3 }],
]);

const text = (value) => ({ content: [{ type: "text", text: typeof value === "string" ? value : JSON.stringify(value, null, 2) }] });
const failure = (message) => ({ ...text(message), isError: true });
const message = (error) => (error instanceof Error ? error.message : String(error));

function find(id) {
  const ticket = tickets.get(id);
  if (!ticket) throw new McpError(ErrorCode.InvalidParams, `Ticket #${id} not found`);
  return ticket;
}

function tool(name, inputSchema, handler, ...calls) {
  server.registerTool(name, { description: name.replaceAll("_", " "), inputSchema }, handler);
  plan(name, ...calls);
}

const id = { id: z.number().int().positive() };

tool("get_ticket", id, async ({ id }) => text(find(id)), works({ id: 1 }), works({ id: 2 }), fails("not_found", { id: 44 }), fails("validation", { id: "first" }), fails("validation", { id: -1 }), fails("validation", {}));
tool("assignee", id, async ({ id }) => text(find(id).assignee.name), works({ id: 1 }), fails("crash", { id: 2 }), works({ id: 3 }));
tool("comments", id, async ({ id }) => text(find(id).comments.map((comment) => `- ${comment}`).join("\n")), works({ id: 1 }), fails("crash", { id: 2 }), fails("crash", { id: 3 }));
tool("ticket_age", id, async ({ id }) => text(new Date(find(id).opened).toISOString()), works({ id: 1 }), fails("crash", { id: 2 }));
tool("short_title", id, async ({ id }) => {
  const { title } = find(id);
  return text(title.length > 10 ? `${title.slice(0, 10)}…` : title);
}, works({ id: 1 }), fails("crash", { id: 3 }), works({ id: 2 }));
tool("root_ticket", id, async ({ id }) => {
  const up = (ticket) => (ticket.parent ? up(tickets.get(ticket.parent)) : ticket.id);
  return text(String(up(find(id))));
}, works({ id: 1 }), fails("crash", { id: 3 }));
tool("priority_score", id, async ({ id }) => {
  const score = { low: 1, high: 5 }[find(id).priority];
  return text("!".repeat(score - 2));
}, works({ id: 1 }), fails("crash", { id: 3 }));
tool("sla_left", { level: z.enum(["gold", "silver"]) }, async ({ level }) => text(JSON.parse(fs.readFileSync(path.join(data, "slas.json"), "utf8"))[level].hours), fails("misconfig", { level: "gold" }), fails("misconfig", { level: "silver" }), fails("validation", { level: "tin" }));
tool("run_macro", { name: z.string() }, async ({ name }) => {
  try {
    const macros = JSON.parse(await fsp.readFile(path.join(data, "macros.json"), "utf8"));
    return text(macros[name]);
  } catch (error) {
    return failure(`Error loading macros: ${message(error)}`);
  }
}, fails("misconfig", { name: "close" }));
tool("mail_archive", id, async () => text(zlib.gunzipSync(fs.readFileSync(path.join(data, "mails.gz"))).toString()), fails("misconfig", { id: 1 }));
tool("verify_signature", { value: z.string() }, async ({ value }) => text(String(createPublicKey(fs.readFileSync(path.join(data, "signing.pem"))).asymmetricKeyType)), fails("misconfig", { value: "abc" }));
tool("on_duty", { day: z.string() }, async ({ day }) => {
  const rows = fs.readFileSync(path.join(data, "roster.csv"), "utf8").trim().split("\n").map((line) => line.split(";"));
  return text(rows.find(([each]) => each === day)[1].toUpperCase());
}, works({ day: "mon" }), fails("crash", { day: "tue" }));
tool("knowledge_base", { query: z.string() }, async () => text(await fsp.readFile("/var/lib/helpdesk/kb/index.json", "utf8")), fails("misconfig", { query: "vpn" }), fails("misconfig", { query: "printer" }));
tool("reply_template", { language: z.string() }, async ({ language }) => {
  try {
    return text(fs.readFileSync(new URL("./templates/reply.hbs", import.meta.url), "utf8"));
  } catch {
    throw new Error("reply.hbs is missing from the installation");
  }
}, fails("misconfig", { language: "en" }));
tool("transcribe_call", id, async () => text(await promisify(execFile)("whisper", ["call.wav"])), fails("misconfig", { id: 1 }));
tool("screenshot", { url: z.string() }, async ({ url }) => {
  const done = spawnSync("chromium-headless", ["--screenshot", url]);
  if (done.error) return failure(`Failed to launch the browser process! ${done.error.message}`);
  return text("ok");
}, fails("misconfig", { url: "http://status.example.org" }));
tool("convert_attachment", id, async () => text(execSync("soffice --headless --convert-to pdf letter.docx", { stdio: "pipe" }).toString()), fails("misconfig", { id: 1 }), fails("misconfig", { id: 2 }));
tool("notify", { agent: z.string() }, async ({ agent }) => {
  try {
    return text(execFileSync(path.join(data, "notify.sh"), [agent]).toString());
  } catch (error) {
    return failure(`notify.sh: ${error.code}`);
  }
}, fails("misconfig", { agent: "anna" }));
tool("sentiment", id, async () => text(require("@helpdesk/sentiment").score("x")), fails("misconfig", { id: 1 }));
tool("summarise", id, async ({ id }) => {
  find(id);
  const { default: Summariser } = await import("tiny-summariser");
  return text(new Summariser().run());
}, fails("misconfig", { id: 1 }), fails("not_found", { id: 90 }));
tool("post_to_chat", { channel: z.string() }, async () => {
  const token = process.env.CHAT_BOT_TOKEN;
  if (!token) return failure("CHAT_BOT_TOKEN environment variable is required");
  return text(token);
}, fails("misconfig", { channel: "#it" }));
tool("encrypt_note", { note: z.string() }, async ({ note }) => text(createHmac("sha256", process.env.NOTE_KEY).update(note).digest("hex")), fails("misconfig", { note: "x" }));
tool("queue_mail", { to: z.string() }, async ({ to }) => {
  fs.writeFileSync(path.join(data, "outbox"), to);
  return text("queued");
}, fails("internal", { to: "a@example.org" }), fails("internal", { to: "b@example.org" }));
tool("next_number", {}, async () => {
  try {
    fs.appendFileSync(path.join(data, "numbers"), "7");
    return text("7");
  } catch (error) {
    throw new Error(`Could not reserve a number (${error.code})`);
  }
}, fails("misconfig"));
tool("merge_tickets", { into: z.number(), from: z.array(z.number()) }, async ({ into, from }) => {
  const merged = find(into);
  merged.children = from.map((each) => tickets.get(each));
  merged.children.push(merged);
  return text(merged);
}, fails("crash", { into: 2, from: [3] }));
tool("custom_fields", id, async ({ id }) => {
  const fields = "impact=2;urgency".split(";").map((each) => each.split("="));
  const values = Object.fromEntries(fields);
  return text(BigInt(values.urgency).toString());
}, fails("crash", { id: 1 }));
tool("statistics", { weeks: z.number() }, async ({ weeks }) => {
  const counts = [3, 1, 4];
  if (weeks > counts.length) return text([].reduce((a, b) => a + b));
  return text(String(counts.length));
}, works({ weeks: 1 }), fails("crash", { weeks: 12 }));
tool("escalate", id, async ({ id }) => {
  switch (find(id).state) {
    case "closed":
      throw new Error("Invariant failed");
    default:
      return text("escalated");
  }
}, works({ id: 1 }), fails("crash", { id: 2 }));
tool("rotate_roster", { by: z.number() }, async () => {
  const roster = Object.freeze(["anna", "ben"]);
  roster.push(roster[0]);
  return text(roster);
}, fails("crash", { by: 1 }));
tool("bulk_update", { ids: z.array(z.number()) }, async ({ ids }) => {
  throw undefined;
}, fails("crash", { ids: [1, 2] }));
tool("highlight", { word: z.string() }, async ({ word }) => text("printer (2nd floor".match(new RegExp(`(${"printer (2nd floor"})`))[0]), fails("crash", { word: "printer" }));
tool("assign_round_robin", id, async ({ id }) => {
  const agents = await loadAgents();
  return text(agents[id % agents.length].name);
}, fails("crash", { id: 1 }), fails("crash", { id: 3 }));
async function loadAgents() {
  return [];
}
server.registerTool("workload", { description: "open tickets per agent", inputSchema: { agent: z.string() }, outputSchema: { open: z.number(), closed: z.number() } }, async ({ agent }) => ({ ...text("see structure"), structuredContent: agent === "anna" ? { open: 1, closed: 0 } : { open: 1 } }));
plan("workload", works({ agent: "anna" }), fails("crash", { agent: "ben" }));
tool("lock_ticket", id, async ({ id }) => {
  if (id === 1) return text("locked");
  const held = new Promise(() => {});
  const expired = new Promise((_, reject) => setTimeout(() => reject(new Error("lock acquisition exceeded 150ms, possible deadlock")), 150));
  return await Promise.race([held, expired]);
}, works({ id: 1 }), fails("internal", { id: 2 }));

tool("customer", { email: z.string().email() }, async ({ email }) => {
  const paths = { "a@example.org": 500, "b@example.org": 503, "c@example.org": 429, "d@example.org": 401 };
  try {
    const { data } = await axios.get(`${upstream}/${paths[email] ?? 200}`, { timeout: 500 });
    return text(data);
  } catch (error) {
    if (error.response?.status === 401) return failure("CRM: Unauthorized (401). The access token of this integration has been revoked.");
    throw error;
  }
}, works({ email: "z@example.org" }), fails("upstream", { email: "a@example.org" }), fails("upstream", { email: "b@example.org" }), fails("quota", { email: "c@example.org" }), fails("auth", { email: "d@example.org" }), fails("validation", { email: "nobody" }));
tool("phone_status", { extension: z.string() }, async ({ extension }) => {
  await new Promise((resolve, reject) => net.connect(closedPort, "127.0.0.1", resolve).on("error", reject));
  return text("free");
}, fails("network", { extension: "17" }), fails("network", { extension: "18" }));
tool("status_page", { component: z.string() }, async ({ component }) => text(await (await fetch(`http://status.tickets.invalid/${component}`)).text()), fails("network", { component: "mail" }));
tool("asset", { tag: z.string() }, async ({ tag }) => {
  try {
    const reply = await fetch(`${upstream}/html`);
    return text((await reply.json()).owner);
  } catch (error) {
    return failure(`Asset inventory returned an unreadable answer: ${message(error)}`);
  }
}, fails("upstream", { tag: "NB-17" }));
tool("remote_session", { host: z.string() }, async ({ host }) => {
  const reply = await fetch(`${upstream}/slow`, { signal: AbortSignal.timeout(200) });
  return text(await reply.text());
}, fails("timeout", { host: "nb-17" }), fails("timeout", { host: "nb-18" }));
tool("directory", { user: z.string() }, async () => {
  await new Promise((resolve, reject) => https.get(`${upstream.replace("http:", "https:")}/user`, resolve).on("error", reject));
  return text("found");
}, fails("network", { user: "anna" }));
tool("history", id, async ({ id }) => {
  const client = new pg.Client({ host: "127.0.0.1", port: closedPort, user: "desk", database: "desk" });
  try {
    await client.connect();
  } catch (error) {
    return failure(`Database error: ${message(error)}`);
  }
  return text("none");
}, fails("down", { id: 1 }), fails("down", { id: 2 }));
tool("remote_logs", { host: z.string() }, async () => {
  await new Promise((resolve, reject) => http.get(`${upstream}/reset`, resolve).on("error", reject));
  return text("none");
}, fails("network", { host: "nb-17" }));

tool("close_ticket", { id: z.number(), reason: z.string().min(3) }, async ({ id, reason }) => {
  const ticket = find(id);
  if (ticket.state === "closed") return failure(`Ticket #${id} is already closed`);
  if (id === 3) return failure("Forbidden: only the owner of a ticket can close it");
  return text("closed");
}, works({ id: 1, reason: "solved" }), fails("state", { id: 2, reason: "solved" }), fails("permission", { id: 3, reason: "spam" }), fails("validation", { id: 1, reason: "x" }), fails("not_found", { id: 8, reason: "spam" }));
tool("create_ticket", { title: z.string(), labels: z.array(z.string()).max(2).optional() }, async ({ title }) => {
  if (title === "Printer on fire") throw new Error("A ticket with this title is open already (#1)");
  if (!title.trim()) throw new McpError(ErrorCode.InvalidParams, "title is blank");
  return text("#4");
}, works({ title: "Mouse" }), fails("conflict", { title: "Printer on fire" }), fails("validation", { title: " " }), fails("validation", { title: "Mouse", labels: ["a", "b", "c"] }));
tool("search_tickets", { query: z.string() }, async ({ query }) => {
  try {
    const pattern = new RegExp(query);
    return text([...tickets.values()].filter(({ title }) => pattern.test(title)).length ? "found" : "No tickets match.");
  } catch (error) {
    return failure(`Invalid search pattern: ${message(error)}`);
  }
}, works({ query: "Printer" }), works({ query: "Toner" }), fails("payload", { query: "print(" }));
tool("export_tickets", { format: z.string() }, async ({ format }) => (format === "csv" ? text("id,title") : failure(`Unsupported format "${format}". Use csv.`)), works({ format: "csv" }), fails("unsupported", { format: "xlsx" }));

tool("first_comment", id, async ({ id }) => {
  try {
    if (!tickets.has(id)) return text(`No ticket with id ${id}`);
    return text(tickets.get(id).comments[0]);
  } catch (error) {
    return text(`Error: ${message(error)}`);
  }
}, works({ id: 1 }), hides("crash", { id: 2 }), hides("not_found", { id: 77 }));
tool("send_survey", id, async ({ id }) => {
  if (id === 1) return text({ ok: true });
  try {
    if (id === 2) await fsp.readFile(path.join(data, "survey.html"));
    await axios.get(`${upstream}/500`);
  } catch (error) {
    return text({ ok: false, error: { name: error.name, message: error.message } });
  }
}, works({ id: 1 }), hides("misconfig", { id: 2 }), hides("upstream", { id: 3 }));
tool("ping_host", { host: z.string() }, async ({ host }) => {
  try {
    await fetch(`http://127.0.0.1:${closedPort}/${host}`);
  } catch (error) {
    return text(`❌ ping_host failed: ${error.cause?.message ?? error.message}`);
  }
  return text("ok");
}, hides("network", { host: "nb-17" }));
tool("check_email", { email: z.string() }, async ({ email }) => text({ email, deliverable: email.includes("@"), error: email.includes("@") ? null : "no @ sign" }), works({ email: "a@example.org" }), works({ email: "a.example.org" }));
tool("error_report", { days: z.number() }, async ({ days }) => text(`Tickets about errors in ${days} days: 2\n- "Error 0x80070005 when printing"\n- "TypeError in timesheet"`), works({ days: 7 }));
plan("purge_tickets", fails("unknown", {}));

await run(() => server.connect(new StdioServerTransport()));
