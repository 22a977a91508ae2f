// A vehicle fleet: JavaScript, errors often caught and reworded, some in odd forms.

import { exec } from "node:child_process";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import { promisify } from "node:util";
import axios from "axios";
import { Redis } from "ioredis";
import { closedPort, fails, hides, Refused, table, upstream, works } from "./kit.mjs";

const shell = promisify(exec);
const require = createRequire(import.meta.url);
const vans = new Map([["v1", { plate: "W-1", km: 41000, trips: null }], ["v2", { plate: "W-2", sold: true }]]);

async function reworded(what, work) {
  try {
    return await work();
  } catch (error) {
    throw new Refused(`${what}: ${error instanceof Error ? error.message : error}`);
  }
}

export const tools = table(
  ["van_position", { van: "string" }, [fails("crash", { van: "v1" })], ({ van }) => vans.get(van).gps.latitude],
  ["trip_list", { van: "string" }, [fails("crash", { van: "v1" })], ({ van }) => reworded("Trips could not be listed", () => vans.get(van).trips.map(String))],
  ["fuel_curve", { van: "string" }, [fails("crash", { van: "v1" })], ({ van }) => new Array(vans.get(van).km * -1).length],
  ["driver_roster", { day: "string" }, [fails("crash", { day: "2026-11-02" })], () => new Date("2026-13-45").toISOString()],
  ["maintenance_plan", { van: "string" }, [fails("crash", { van: "v1" })], () => decodeURIComponent("%E0%A4%A")],
  ["route_hash", { van: "string" }, [fails("crash", { van: "v1" })], () => createHash("sha257").update("x").digest("hex")],
  ["cost_centre", { van: "string" }, [fails("crash", { van: "v1" })], () => { throw "costCentre"; }],
  ["tyre_state", { van: "string" }, [fails("crash", { van: "v1" })], () => { class Tyre { #bar = 2; static of(o) { return o.#bar; } } return Tyre.of({}); }],
  ["week_summary", { week: "number" }, [fails("crash", { week: 46 })], () => reworded("week_summary", () => { throw new TypeError("totals.get is not a function"); })],
  ["depot_stock", { depot: "string" }, [fails("crash", { depot: "d1" })], () => { throw new Error("Unhandled case: 'pallet'"); }],
  ["axle_load", { van: "string" }, [fails("crash", { van: "v1" })], () => Buffer.alloc(4).readDoubleLE(0)],
  ["geo_fence", { van: "string" }, [fails("crash", { van: "v1" })], () => Reflect.construct(Map, [7])],
  ["toll_table", { country: "string" }, [fails("misconfig", { country: "AT" })], () => readFile(new URL("./tolls/at.csv", import.meta.url), "utf8")],
  ["map_tiles", { zoom: "number" }, [fails("misconfig", { zoom: 9 })], () => reworded("Tiles", () => readFile("/var/lib/fleet/tiles.mbtiles", "utf8"))],
  ["route", { from: "string", to: "string" }, [fails("misconfig", { from: "Wien", to: "Graz" })], async () => (await shell("osrm-routed --version")).stdout],
  ["plate_reader", { photo: "string" }, [fails("misconfig", { photo: "p1" })], () => reworded("Plate recognition", async () => (await shell("alpr -j p1.jpg")).stdout)],
  ["pdf_logbook", { van: "string" }, [fails("misconfig", { van: "v1" })], () => require("pdfkit-fleet")],
  ["sms_driver", { text: "string" }, [fails("misconfig", { text: "Hi" })], () => { throw new Refused("SMS gateway credentials have not been supplied to this server"); }],
  ["telematics", { van: "string" }, [fails("misconfig", { van: "v1" })], () => { throw new Error("process.env.TELEMATICS_URL is undefined"); }],
  ["night_job", { name: "string" }, [fails("misconfig", { name: "sync" })], () => { throw new Error("Your Node.js runtime lacks ICU data for de-AT"); }],
  ["write_trip", { van: "string" }, [fails("misconfig", { van: "v1" })], () => { throw Object.assign(new Error("EROFS: read-only file system, open '/srv/fleet/trips.db'"), { code: "EROFS" }); }],
  ["traffic", { road: "string" }, [fails("network", { road: "A2" })], () => reworded("Traffic", async () => (await axios.get(`http://127.0.0.1:${closedPort}/`)).data)],
  ["weather", { place: "string" }, [fails("network", { place: "Wien" })], () => reworded("Weather", () => fetch("http://weather.fleet.invalid/now"))],
  ["charging", { place: "string" }, [fails("upstream", { place: "Wien" })], () => reworded("Charging map", async () => (await axios.get(`${upstream}/503`)).data)],
  ["fuel_price", { place: "string" }, [fails("upstream", { place: "Wien" })], () => reworded("fuel_price", async () => { const reply = await fetch(`${upstream}/500`); throw new Error(`backend said ${reply.status}`); })],
  ["parking", { place: "string" }, [fails("upstream", { place: "Wien" })], () => reworded("Parking service", async () => JSON.parse(await (await fetch(`${upstream}/html`)).text()))],
  ["camera", { van: "string" }, [fails("timeout", { van: "v1" })], () => new Promise((_, failed) => setTimeout(() => failed(new Error("Camera did not answer within 100 ms")), 100))],
  ["diagnosis", { van: "string" }, [fails("timeout", { van: "v1" })], () => new Promise((done, failed) => { const request = http.get(`${upstream}/slow`, { timeout: 150 }, done); request.on("timeout", () => request.destroy(new Error("ESOCKETTIMEDOUT"))); request.on("error", failed); })],
  ["live_position", { van: "string" }, [fails("down", { van: "v1" })], async () => { const redis = new Redis(closedPort, "127.0.0.1", { maxRetriesPerRequest: 1, retryStrategy: () => 20 }); redis.on("error", () => {}); try { return await redis.get("v1"); } finally { redis.disconnect(); } }],
  ["dispatch", { van: "string" }, [fails("down", { van: "v1" })], () => { throw new Refused("Dispatch is offline for maintenance until 18:00"); }],
  ["invoice", { van: "string" }, [fails("down", { van: "v1" })], () => { throw new Error("EOPENBREAKER: Breaker is open"); }],
  ["insurance", { van: "string" }, [fails("network", { van: "v1" })], () => reworded("insurer", async () => (await fetch(`${upstream}/reset`)).text())],
  ["toll_balance", { van: "string" }, [fails("upstream", { van: "v1" })], async () => (await (await fetch(`${upstream}/empty`)).json()).amount],
  ["get_van", { van: "string" }, [works({ van: "v1" }), fails("not_found", { van: "v99" }), fails("validation", { van: { id: 1 } }), fails("validation", { vehicle: "v1" })], ({ van }) => {
    if (typeof van !== "string") throw new Refused("van must be given as text");
    if (!vans.has(van)) throw new Refused(`We have no van called "${van}"`);
    return JSON.stringify(vans.get(van));
  }],
  ["book_van", { van: "string", days: "number" }, [works({ van: "v1", days: 2 }), fails("state", { van: "v2", days: 2 }), fails("validation", { van: "v1", days: 0 })], ({ van, days }) => {
    if (vans.get(van).sold) throw new Refused("W-2 left the fleet in March");
    if (days < 1) throw new Refused("A booking lasts one day or more");
    return "booked";
  }],
  ["load_gpx", { file: "string" }, [fails("not_found", { file: "/tmp/tour-17.gpx" }), fails("payload", { file: "/tmp" })], ({ file }) => readFile(file, "utf8")],
  ["filter_trips", { expression: "string" }, [works({ expression: "1 < 2" }), fails("payload", { expression: "km >> > 3" }), fails("payload", { expression: "mileage > 3" })], ({ expression }) => reworded("Filter", () => String((0, eval)(expression)))],
  ["set_limits", { limits: "string" }, [works({ limits: "{}" }), fails("payload", { limits: "{speed: 80}" })], ({ limits }) => reworded("limits", () => JSON.stringify(JSON.parse(limits)))],
  ["driver_file", { driver: "string" }, [fails("permission", { driver: "ann" })], () => { throw new Refused("Personnel files are closed to assistants"); }],
  ["toll_account", { pin: "string" }, [fails("auth", { pin: "1" })], () => reworded("Toll portal", async () => (await axios.get(`${upstream}/403`)).data)],
  ["bulk_positions", { count: "number" }, [fails("quota", { count: 500 })], () => { throw new Refused("At most 100 positions per minute; you asked for 500"); }],
  ["speed_on", { day: "string" }, [works({ day: "2026-11-02" }), fails("validation", { day: "yesterday" })], ({ day }) => { if (Number.isNaN(Date.parse(day))) throw new RangeError(`"${day}" is not a day`); return "80"; }],
  ["sync_positions", { depot: "string" }, [hides("down", { depot: "d1" })], () => JSON.stringify({ depot: "d1", success: false, message: "Tracker hub is not reachable" })],
  ["plan_tour", { stops: "number" }, [hides("crash", { stops: 3 })], () => "Sorry, something broke while planning: stops.sort is not a function"],
  ["update_vans", { count: "number" }, [hides("upstream", { count: 2 })], () => JSON.stringify({ updated: [], failed: [{ van: "v1", error: "502 from registry" }, { van: "v2", error: "502 from registry" }] })],
  ["find_driver", { name: "string" }, [hides("not_found", { name: "Zoe" })], () => JSON.stringify({ error: "no_such_driver", message: "No driver is called Zoe" })],
  ["print_papers", { van: "string" }, [hides("misconfig", { van: "v1" })], () => "printing failed\nlp: command not found"],
  ["export_trips", { format: "string" }, [hides("validation", { format: "xls" })], () => JSON.stringify({ status: "rejected", reason: "format must be csv or json" })],
  ["wash_slot", { day: "string" }, [hides("timeout", { day: "2026-11-02" })], () => [{ type: "text", text: "Washing hall, 2 November" }, { type: "text", text: "Error: the booking system did not respond in time" }]],
  ["check_plate", { plate: "string" }, [works({ plate: "1" })], () => JSON.stringify({ plate: "1", is_valid: false, message: "too short" })],
  ["health_check", { van: "string" }, [works({ van: "v1" })], () => JSON.stringify({ healthy: false, failures: [{ part: "brake", message: "worn" }] })],
  ["fault_memory", { van: "string" }, [works({ van: "v1" })], () => JSON.stringify([{ code: "P0301", time: "2026-11-01", error: "cylinder 1 misfire" }])],
  ["find_trips", { text: "string" }, [works({ text: "moon" })], () => "There are no trips to moon."],
  ["incident_text", { id: "number" }, [works({ id: 4 })], () => "Incident 4\n\nThe driver reported: cannot start the engine, dashboard shows error 17."],
  ["test_route", { route: "string" }, [works({ route: "r" })], () => JSON.stringify({ passed: false, assertions: [{ name: "under 8 h", ok: false }] })],
);
