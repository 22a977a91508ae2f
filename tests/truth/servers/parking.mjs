// Car parks: McpServer of the TypeScript SDK. Some tools catch everything, some nothing.

import { execFile, execSync, spawn } from "node:child_process";
import crypto from "node:crypto";
import dns from "node:dns/promises";
import fs from "node:fs";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { createRequire } from "node:module";
import path from "node:path";
import { promisify } from "node:util";
import vm from "node:vm";
import zlib from "node:zlib";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { ErrorCode, McpError } from "@modelcontextprotocol/sdk/types.js";
import axios from "axios";
import Redis from "ioredis";
import pg from "pg";
import { z } from "zod";
import { closedPort, fails, hides, upstream, works } from "./kit.mjs";
import { plan, run } from "./native.mjs";

const require = createRequire(import.meta.url);
const server = new McpServer({ name: "parking", version: "0.9.2" });
const data = path.resolve("data");

fs.mkdirSync(path.join(data, "plans"), { recursive: true });
fs.mkdirSync(path.join(data, "tariffs"), { recursive: true });
fs.writeFileSync(path.join(data, "tariffs/north.json"), '{"hour": 2.5, "day": 18}');
fs.writeFileSync(path.join(data, "tariffs/south.json"), '{"hour": 2.5, "day": }');
fs.writeFileSync(path.join(data, "tariffs/west.json"), '{"perHour": 3}');
fs.writeFileSync(path.join(data, "plans/north.svgz"), zlib.gzipSync("<svg/>"));
fs.writeFileSync(path.join(data, "plans/south.svgz"), "<svg/>");
fs.writeFileSync(path.join(data, "barrier.pem"), "-----BEGIN PRIVATE KEY-----\nbroken\n-----END PRIVATE KEY-----\n");
fs.writeFileSync(path.join(data, "occupancy.csv"), "lot,free\nnorth,12\nsouth\n");
fs.writeFileSync(path.join(data, "ocr.sh"), "#!/bin/sh\necho 'ocr: model file plates.onnx missing' >&2\nexit 1\n");
fs.chmodSync(path.join(data, "ocr.sh"), 0o755);
fs.writeFileSync(path.join(data, "print.sh"), "#!/bin/sh\nexit 0\n");
fs.chmodSync(path.join(data, "print.sh"), 0o600);
fs.writeFileSync(path.join(data, "pricing.js"), "module.exports = (h) => { return h * rate; };");
fs.mkdirSync(path.join(data, "ledger.txt"), { recursive: true });
fs.rmSync(path.join(data, "events.log"), { force: true });
fs.symlinkSync("/dev/full", path.join(data, "events.log"));

const lots = {
  north: { name: "North", levels: [{ id: 1, places: 40 }, { id: 2, places: 30 }], opens: "06:00", geo: { lat: 48.1, lon: 11.5 } },
  south: { name: "South", levels: null, opens: "6", geo: null },
  west: { name: "West", levels: [], opens: undefined, geo: { lat: "n/a" } },
};
const tickets = new Map([
  ["T1", { lot: "north", plate: "M-AB 12", in: "2026-11-23T08:00:00Z", paid: false }],
  ["T2", { lot: "south", plate: null, in: "yesterday", paid: true }],
  ["T3", { lot: "west", plate: "F-X 9", in: "2026-11-22T10:00:00Z", paid: false, fee: 10n }],
]);

class HttpError extends Error {
  constructor(status, body) {
    super(`Request failed: ${status} ${body}`);
    this.name = "HttpError";
    this.status = status;
  }
}

const text = (value) => ({ content: [{ type: "text", text: typeof value === "string" ? value : JSON.stringify(value, null, 2) }] });
const problem = (message) => ({ ...text(message), isError: true });

async function getJson(url, options = {}) {
  const response = await fetch(url, { signal: AbortSignal.timeout(400), ...options });
  if (!response.ok) throw new HttpError(response.status, await response.text());
  return response.json();
}

/** What many servers do: any exception becomes a text under a prefix, and stderr gets the rest. */
const guarded = (label, handler) => async (args) => {
  try {
    return await handler(args);
  } catch (error) {
    console.error(`[${label}]`, error);
    return problem(`${label}: ${error instanceof Error ? error.message : String(error)}`);
  }
};

function tool(name, inputSchema, handler, ...calls) {
  server.registerTool(name, { description: name.replaceAll("_", " "), inputSchema }, handler);
  plan(name, ...calls);
}

const lot = { lot: z.string() };
const ticket = { ticket: z.string().regex(/^T\d+$/) };

tool("get_lot", lot, async ({ lot: id }) => {
  if (!(id in lots)) return problem(`Unknown lot "${id}". Available lots: ${Object.keys(lots).join(", ")}`);
  return text(lots[id]);
}, works({ lot: "north" }), fails("not_found", { lot: "east" }), fails("validation", { name: "north" }), fails("validation", { lot: 3 }), works({ lot: "west" }));
tool("total_places", lot, async ({ lot: id }) => text(String(lots[id].levels.map((l) => l.places).reduce((a, b) => a + b))),
  works({ lot: "north" }), fails("crash", { lot: "south" }), fails("crash", { lot: "west" }), works({ lot: "north" }));
tool("distance", { lot: z.enum(["north", "south", "west"]), lat: z.number() }, guarded("distance failed", async ({ lot: id, lat }) =>
  text((Math.abs(lots[id].geo.lat - lat) * 111).toFixed(1))), works({ lot: "north", lat: 48 }), fails("crash", { lot: "south", lat: 48 }), fails("validation", { lot: "centre", lat: 48 }));
tool("opening_hour", lot, async ({ lot: id }) => {
  const [, hour] = lots[id].opens.match(/^(\d\d):/);
  return text(hour);
}, works({ lot: "north" }), fails("crash", { lot: "south" }), fails("crash", { lot: "west" }));
tool("parked_since", ticket, guarded("Could not compute the duration", async ({ ticket: id }) => {
  const entry = tickets.get(id);
  if (!entry) throw new Error(`ticket ${id} does not exist`);
  return text(new Date(entry.in).toISOString());
}), works({ ticket: "T1" }), fails("crash", { ticket: "T2" }), fails("not_found", { ticket: "T99" }), fails("validation", { ticket: "99" }));
tool("receipt", ticket, async ({ ticket: id }) => text(JSON.stringify(tickets.get(id))), works({ ticket: "T1" }), fails("crash", { ticket: "T3" }), works({ ticket: "T2" }));
tool("normalize_plate", ticket, guarded("normalize_plate", async ({ ticket: id }) => text(tickets.get(id).plate.replace(" ", ""))),
  works({ ticket: "T1" }), fails("crash", { ticket: "T2" }), works({ ticket: "T3" }));
tool("print_label", { copies: z.number().int() }, async ({ copies }) => text("x".repeat(copies - 5)), works({ copies: 6 }), fails("crash", { copies: 1 }));
tool("nearest_exit", { level: z.number() }, async ({ level }) => {
  const find = (l) => (l === 2 ? find(l) : l);
  return text(String(find(level)));
}, works({ level: 1 }), fails("crash", { level: 2 }), works({ level: 3 }));
tool("tariff", lot, async ({ lot: id }) => {
  const tariff = JSON.parse(fs.readFileSync(path.join(data, `tariffs/${id}.json`), "utf8"));
  return text(tariff.hour.toFixed(2));
}, works({ lot: "north" }), fails("misconfig", { lot: "south" }), fails("crash", { lot: "west" }), works({ lot: "north" }));
tool("floor_plan", lot, guarded("Floor plan not readable", async ({ lot: id }) => text(zlib.gunzipSync(fs.readFileSync(path.join(data, `plans/${id}.svgz`))).toString())),
  works({ lot: "north" }), fails("misconfig", { lot: "south" }), fails("misconfig", { lot: "west" }));
tool("season_tickets", {}, async () => {
  const rows = JSON.parse(await fs.promises.readFile(path.join(data, "season-tickets.json"), "utf8"));
  return text(rows);
}, fails("misconfig"), fails("misconfig"));
tool("open_barrier", { lane: z.number() }, guarded("Barrier controller", async ({ lane }) => {
  const signature = crypto.sign(null, Buffer.from(`open ${lane}`), fs.readFileSync(path.join(data, "barrier.pem")));
  return text(signature.toString("hex"));
}), fails("misconfig", { lane: 1 }), fails("misconfig", { lane: 2 }));
tool("free_places", lot, async ({ lot: id }) => {
  const row = fs.readFileSync(path.join(data, "occupancy.csv"), "utf8").split("\n").find((line) => line.startsWith(id));
  const free = Number.parseInt(row.split(",")[1], 10);
  if (Number.isNaN(free)) throw new Error("occupancy feed: bad row in occupancy.csv");
  return text(`${free} free`);
}, works({ lot: "north" }), fails("misconfig", { lot: "south" }), works({ lot: "north" }));
tool("read_plate", { camera: z.string() }, guarded("plate recognition", async ({ camera }) => {
  const { stdout } = await promisify(execFile)(path.join(data, "ocr.sh"), [camera]);
  return text(stdout);
}), fails("misconfig", { camera: "c1" }), fails("misconfig", { camera: "c2" }));
tool("print_ticket", ticket, async ({ ticket: id }) => {
  execSync(`data/print.sh ${id}`, { stdio: "pipe" });
  return text("printed");
}, fails("misconfig", { ticket: "T1" }), fails("misconfig", { ticket: "T3" }));
tool("camera_snapshot", { camera: z.string() }, async ({ camera }) => new Promise((resolve) => {
  const child = spawn("gst-launch-1.0", [camera]);
  child.on("error", (error) => resolve(problem(`Failed to start camera process (${error.code})`)));
  child.on("close", () => resolve(text("ok")));
}), fails("misconfig", { camera: "c1" }), fails("misconfig", { camera: "c9" }));
tool("detect_cars", { camera: z.string() }, guarded("Error", async () => text(String(require("@tensorflow/tfjs-node")))), fails("misconfig", { camera: "c1" }), fails("misconfig", { camera: "c2" }));
tool("price_rule", { hours: z.number() }, async ({ hours }) => {
  const context = vm.createContext({ module: {} });
  vm.runInContext(fs.readFileSync(path.join(data, "pricing.js"), "utf8"), context, { filename: "pricing.js" });
  return text(String(context.module.exports(hours)));
}, fails("misconfig", { hours: 1 }), fails("misconfig", { hours: 4 }));
tool("pay", { ticket: z.string(), amount: z.number() }, async ({ ticket: id, amount }) => {
  if (amount <= 0) throw new McpError(ErrorCode.InvalidParams, "amount must be greater than 0");
  if (tickets.get(id)?.paid) return problem(JSON.stringify({ error: "ALREADY_PAID", ticket: id }));
  if (!process.env.PAYMENT_API_KEY) throw new Error("Payment provider is not set up (PAYMENT_API_KEY)");
  return text("paid");
}, fails("misconfig", { ticket: "T1", amount: 5 }), fails("state", { ticket: "T2", amount: 5 }), fails("validation", { ticket: "T1", amount: 0 }), fails("misconfig", { ticket: "T3", amount: 7 }));
tool("send_invoice", ticket, async () => {
  const { BILLING_URL } = process.env;
  return text(await (await fetch(`${BILLING_URL}/invoices`)).text());
}, fails("misconfig", { ticket: "T1" }), fails("misconfig", { ticket: "T2" }));
tool("write_ledger", { line: z.string() }, guarded("Ledger", async ({ line }) => {
  fs.appendFileSync(path.join(data, "ledger.txt"), line);
  return text("written");
}), fails("misconfig", { line: "T1;5" }), fails("misconfig", { line: "T2;7" }));
tool("log_event", { event: z.string(), durable: z.boolean().optional() }, async ({ event, durable }) => {
  if (durable) fs.writeFileSync(path.join(data, "events.log"), event.repeat(5000));
  return text("logged");
}, works({ event: "in" }), fails("internal", { event: "out", durable: true }), works({ event: "in" }));
tool("assign_place", { kind: z.string() }, async ({ kind }) => {
  if (kind === "bus") throw new Error();
  if (kind === "bike") return Promise.reject("unhandled kind in allocator");
  return text("B-17");
}, works({ kind: "car" }), fails("crash", { kind: "bus" }), fails("crash", { kind: "bike" }), works({ kind: "car" }));
tool("rebalance", {}, async () => problem("An unknown error has occurred (0x1F)."), fails("internal"), fails("internal"));
tool("close_shift", { force: z.boolean() }, async ({ force }) => {
  console.assert(force, "shift totals do not add up");
  return force ? text("closed") : problem("Invariant violation: shift totals do not add up");
}, works({ force: true }), fails("internal", { force: false }));

server.registerTool("level_status", { inputSchema: { level: z.number() }, outputSchema: { level: z.number(), free: z.number().int(), state: z.enum(["open", "closed"]) } },
  async ({ level }) => {
    const status = { level, free: level === 2 ? 1.5 : 3, state: level === 3 ? "maintenance" : "open" };
    return { ...text(status), structuredContent: status };
  });
plan("level_status", works({ level: 1 }), fails("crash", { level: 2 }), fails("crash", { level: 3 }), works({ level: 4 }));

tool("traffic", { road: z.string() }, async ({ road }) => {
  const urls = { A9: `${upstream}/ok`, A8: `${upstream}/503`, B2: `${upstream}/slow`, B12: `http://127.0.0.1:${closedPort}/`, A99: "http://traffic.road.invalid/", B13: `${upstream}/html` };
  return text(await getJson(urls[road]));
}, works({ road: "A9" }), fails("upstream", { road: "A8" }), fails("timeout", { road: "B2" }), fails("network", { road: "B12" }), fails("network", { road: "A99" }), fails("upstream", { road: "B13" }), works({ road: "A9" }));
tool("weather", { hour: z.number() }, guarded("Weather service", async ({ hour }) => {
  if (hour < 12) return text("dry");
  const { data: body } = await axios.get({ 12: `${upstream}/502`, 13: `${upstream}/slow`, 14: `http://localhost:${closedPort}/`, 15: `${upstream}/429` }[hour], { timeout: 300 });
  return text(body);
}), works({ hour: 8 }), fails("upstream", { hour: 12 }), fails("timeout", { hour: 13 }), fails("network", { hour: 14 }), fails("quota", { hour: 15 }), works({ hour: 9 }));
tool("charge_points", lot, async ({ lot: id }) => {
  try {
    return text(await getJson(`${upstream}/${id === "north" ? 401 : 403}`, { headers: { authorization: "Bearer demo" } }));
  } catch (error) {
    return problem(`Charging network refused our credentials (${error.status})`);
  }
}, fails("auth", { lot: "north" }), fails("auth", { lot: "south" }));
tool("reservations", lot, guarded("reservations", async () => {
  const client = new pg.Client({ host: "127.0.0.1", port: closedPort, user: "parking", database: "parking", connectionTimeoutMillis: 500 });
  await client.connect();
  return text("none");
}), fails("down", { lot: "north" }), fails("down", { lot: "south" }));
tool("display_text", { sign: z.string() }, async ({ sign }) => {
  const redis = new Redis(closedPort, "127.0.0.1", { lazyConnect: true, maxRetriesPerRequest: 0, retryStrategy: null });
  redis.on("error", () => {});
  try {
    await redis.connect();
  } catch {
    throw new McpError(ErrorCode.InternalError, "sign controller offline");
  }
  return text(await redis.get(sign));
}, fails("down", { sign: "s1" }), fails("down", { sign: "s2" }));
tool("tls_status", { terminal: z.number() }, async ({ terminal }) => new Promise((resolve, reject) => {
  if (terminal === 1) return resolve(text("ok"));
  https.get(upstream.replace("http:", "https:"), () => resolve(text("ok"))).on("error", reject);
}), works({ terminal: 1 }), fails("network", { terminal: 2 }), works({ terminal: 1 }));
tool("poll_sensor", { sensor: z.number() }, async ({ sensor }) => {
  if (sensor === 1) return text("occupied");
  await Promise.race([new Promise(() => {}), new Promise((_, reject) => setTimeout(() => reject(new Error(`sensor ${sensor}: deadline exceeded`)), 100))]);
}, works({ sensor: 1 }), fails("timeout", { sensor: 2 }), works({ sensor: 1 }));
tool("book", { lot: z.string(), from: z.string(), to: z.string() }, async ({ lot: id, from, to }) => {
  if (!lots[id]) throw new McpError(-32004, `lot ${id} not found`);
  if (Number.isNaN(Date.parse(from))) throw new McpError(ErrorCode.InvalidParams, `"from" is not a date: ${from}`);
  if (from >= to) return problem("The end must come after the start.");
  if (id === "west") return problem("That time slot has just been taken by somebody else (conflict).");
  return text("booked");
}, works({ lot: "north", from: "2026-12-01", to: "2026-12-02" }), fails("validation", { lot: "north", from: "soon", to: "later" }), fails("validation", { lot: "north", from: "2026-12-02", to: "2026-12-01" }), fails("conflict", { lot: "west", from: "2026-12-01", to: "2026-12-02" }), fails("not_found", { lot: "moon", from: "2026-12-01", to: "2026-12-02" }), fails("validation", { lot: "north", from: "2026-12-01" }));
tool("grant_access", { plate: z.string() }, async ({ plate }) => problem(plate.startsWith("M") ? "403 – operator role required for grant_access" : "Foreign number plates are not supported yet"),
  fails("permission", { plate: "M-AB 12" }), fails("unsupported", { plate: "W-77" }));
tool("filter_tickets", { expression: z.string() }, guarded("Invalid filter", async ({ expression }) => text([...tickets.keys()].filter((id) => new RegExp(expression).test(id)))),
  works({ expression: "T[12]" }), fails("payload", { expression: "T[1" }), works({ expression: "X" }));

tool("lost_ticket", ticket, async ({ ticket: id }) => {
  try {
    const entry = tickets.get(id);
    if (!entry) return text({ success: false, message: `No ticket ${id} on record` });
    return text({ success: true, plate: entry.plate.toUpperCase() });
  } catch (e) {
    return text({ success: false, message: e.message });
  }
}, works({ ticket: "T1" }), hides("crash", { ticket: "T2" }), hides("not_found", { ticket: "T50" }), works({ ticket: "T3" }));
tool("permits", { plate: z.string() }, async ({ plate }) => {
  if (plate === "M-1") return text("Error fetching permits: city API responded with HTTP 503");
  if (plate === "M-2") return text("Permits could not be loaded.\n\nReason: getaddrinfo ENOTFOUND api.city.invalid");
  if (plate === "M-3") return text("Permits could not be loaded.\n\nReason: Cannot find module 'permit-parser'");
  return text("0 permits");
}, hides("upstream", { plate: "M-1" }), hides("network", { plate: "M-2" }), hides("misconfig", { plate: "M-3" }), works({ plate: "M-4" }));
tool("evacuation_plan", lot, async ({ lot: id }) => {
  if (id !== "north") return text({ data: null, errors: [{ message: "Unable to render plan: ENOENT: no such file or directory, open '/opt/plans/fonts.ttf'" }] });
  return text({ data: { exits: 3 }, errors: [] });
}, works({ lot: "north" }), hides("misconfig", { lot: "south" }));
tool("extend", { ticket: z.string(), minutes: z.number() }, async ({ minutes }) => text(minutes > 600 ? "Sorry, tickets can be extended by at most 600 minutes, nothing was changed." : "extended"), works({ ticket: "T1", minutes: 30 }), hides("validation", { ticket: "T1", minutes: 900 }));
tool("check_plate", { plate: z.string() }, async ({ plate }) => text({ plate, wellFormed: plate.includes("-"), reason: plate.includes("-") ? null : "district missing" }), works({ plate: "M-AB 12" }), works({ plate: "MAB12" }));
tool("search_ticket", { plate: z.string() }, async ({ plate }) => text(`Found 0 tickets for ${plate}`), works({ plate: "B-Q 1" }));
tool("incidents", { days: z.number() }, async () => text({ incidents: [{ at: "08:12", text: "Barrier error E7, lane 2" }, { at: "09:40", text: "Ticket printer: paper jam, connection lost" }] }), works({ days: 1 }));
tool("is_full", lot, async ({ lot: id }) => text({ lot: id, full: false, error: null, failedSensors: 0 }), works({ lot: "north" }), works({ lot: "south" }));
tool("city_map", lot, async ({ lot: id }) => {
  if (id === "south") return text("<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>");
  return text("<html><head><title>Map</title></head><body>North</body></html>");
}, works({ lot: "north" }), hides("upstream", { lot: "south" }));
tool("sync_prices", { lots: z.array(z.string()) }, async ({ lots: ids }) => {
  const lines = ids.map((id) => (id === "north" ? "north ✔" : `${id} ✘ connect ECONNREFUSED 10.0.0.7:5432`));
  return { content: [{ type: "text", text: "Price sync" }, { type: "text", text: lines.join("\n") }], isError: false };
}, works({ lots: ["north"] }), hides("down", { lots: ["south", "west"] }));
tool("exit_code", ticket, async ({ ticket: id }) => {
  try {
    return text({ code: tickets.get(id).plate.length * 7 });
  } catch (error) {
    return text({ code: null, stack: error.stack.split("\n").slice(0, 2).join(" ") });
  }
}, works({ ticket: "T1" }), hides("crash", { ticket: "T2" }));
tool("reset_counter", lot, async ({ lot: id }) => text(id === "north" ? { result: "ok" } : { result: "error", details: { code: "E_CONFIG", hint: "COUNTER_URL is not defined in the server environment" } }),
  works({ lot: "north" }), hides("misconfig", { lot: "west" }));
tool("subscribe", { plan: z.string() }, async ({ plan: name }) => text(name === "month" ? "subscribed" : `There is no plan called '${name}'. Choose month or year.`), works({ plan: "month" }), hides("not_found", { plan: "decade" }));
tool("is_available", lot, async ({ lot: id }) => text({ lot: id, available: id === "north", status: id === "north" ? "open" : "closed", message: id === "north" ? "" : "Lot is closed for cleaning" }), works({ lot: "north" }), works({ lot: "west" }));
tool("device_info", { device: z.string() }, async ({ device }) => text({ device, uptime: 8211, lastError: "E7 at 2026-11-01", errorCount: 4 }), works({ device: "barrier-1" }));
plan("tow_car", fails("unknown", { plate: "M-AB 12" }));

await run(() => server.connect(new StdioServerTransport()));
