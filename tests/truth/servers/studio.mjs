// A media studio: JavaScript, errors mostly thrown as they come.

import { execFile, execSync, spawn } from "node:child_process";
import { readFile, writeFile, mkdtemp } from "node:fs/promises";
import { readFileSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import axios from "axios";
import pg from "pg";
import { closedPort, fails, hides, Refused, table, upstream, works } from "./kit.mjs";

const run = promisify(execFile);
const clips = { c1: { title: "Sea", seconds: 12, tags: [] }, c2: { title: "Night", locked: true } };
const scratch = await mkdtemp(path.join(os.tmpdir(), "studio-"));

function clip(id) {
  if (!clips[id]) throw new Refused(`Clip ${id} not found in this project`);
  return clips[id];
}

const started = (program, ...args) =>
  new Promise((done, failed) => {
    const child = spawn(program, args);
    child.on("error", failed);
    child.on("close", (code) => (code ? failed(new Error(`${program} exited with code ${code}`)) : done("ok")));
  });

export const tools = table(
  ["clip_length", { id: "string" }, [fails("crash", { id: "c1" })], () => clips.c9.seconds],
  ["tag_cloud", { id: "string" }, [fails("crash", { id: "c1" })], ({ id }) => clips[id].tags.byWeight().join()],
  ["palette", { id: "string" }, [fails("crash", { id: "c1" })], ({ id }) => { const { main } = clips[id].palette; return main; }],
  ["loudness", { id: "string" }, [fails("crash", { id: "c1" })], ({ id }) => clips[id].tags.reduce((a, b) => a + b)],
  ["timeline", { id: "string" }, [fails("crash", { id: "c1" })], ({ id }) => { const node = { id }; node.self = node; return JSON.stringify(node); }],
  ["storyboard", { id: "string" }, [fails("crash", { id: "c1" })], () => { for (const frame of clips.c1) return frame; }],
  ["scene_count", { id: "string" }, [fails("crash", { id: "c1" })], () => scenes.length],
  ["frame_rate", { id: "string" }, [fails("crash", { id: "c1" })], () => BigInt(25) * 2],
  ["bitrate", { id: "string" }, [fails("crash", { id: "c1" })], () => (12.3456).toFixed(400)],
  ["mixdown", { id: "string" }, [fails("crash", { id: "c1" })], () => { throw undefined ?? new Error("Invariant failed"); }],
  ["deep_copy", { id: "string" }, [fails("crash", { id: "c1" })], () => structuredClone({ f: () => 1 })],
  ["saved_layout", { id: "string" }, [fails("crash", { id: "c1" })], async () => {
    await writeFile(path.join(scratch, "layout.json"), '{"tracks": [1, 2,]}');
    return JSON.parse(await readFile(path.join(scratch, "layout.json"), "utf8"));
  }],
  ["subtitle_style", { language: "string" }, [fails("misconfig", { language: "de" })], () => readFileSync("styles/subtitles.css", "utf8")],
  ["font_list", { weight: "number" }, [fails("misconfig", { weight: 400 })], async () => readFile("/usr/share/studio/fonts.json", "utf8")],
  ["encode", { id: "string" }, [fails("misconfig", { id: "c1" })], async () => (await run("ffmpeg7", ["-i", "c1.mov"])).stdout],
  ["thumbnail", { id: "string" }, [fails("misconfig", { id: "c1" })], () => started("vipsthumbnail", "c1.mov")],
  ["waveform", { id: "string" }, [fails("misconfig", { id: "c1" })], () => execSync("audiowaveform -i c1.wav -o -", { stdio: "pipe" }).toString()],
  ["denoise", { id: "string" }, [fails("misconfig", { id: "c1" })], async () => (await import("rnnoise-wasm")).default()],
  ["transcribe", { id: "string" }, [fails("misconfig", { id: "c1" })], () => { throw new Error("DEEPGRAM_KEY missing"); }],
  ["publish", { id: "string" }, [fails("misconfig", { id: "c1" })], () => { throw new Refused("Publishing is not configured. Ask the operator to fill in publish.yaml."); }],
  ["gpu_render", { id: "string" }, [fails("misconfig", { id: "c1" })], () => { throw new Error("no CUDA-capable device is detected"); }],
  ["store_preset", { name: "string" }, [fails("misconfig", { name: "warm" })], () => { throw Object.assign(new Error("EACCES: permission denied, open '/etc/studio/presets.json'"), { code: "EACCES" }); }],
  ["stock_search", { text: "string" }, [fails("network", { text: "sea" })], async () => (await fetch(`http://127.0.0.1:${closedPort}/search`)).text()],
  ["stock_price", { id: "string" }, [fails("network", { id: "s-4" })], async () => (await axios.get("http://stock.studio.invalid/price")).data],
  ["stock_licence", { id: "string" }, [fails("upstream", { id: "s-4" })], async () => (await axios.get(`${upstream}/500`)).data],
  ["music_match", { mood: "string" }, [fails("upstream", { mood: "calm" })], async () => (await fetch(`${upstream}/html`)).json()],
  ["voice_over", { text: "string" }, [fails("timeout", { text: "Hello" })], async () => (await axios.get(`${upstream}/slow`, { timeout: 200 })).data],
  ["face_index", { id: "string" }, [fails("timeout", { id: "c1" })], async () => (await fetch(`${upstream}/slow`, { signal: AbortSignal.timeout(200) })).text()],
  ["cloud_copy", { id: "string" }, [fails("network", { id: "c1" })], async () => (await axios.get(`${upstream}/reset`)).data],
  ["asset_rows", { id: "string" }, [fails("down", { id: "c1" })], async () => { const client = new pg.Client({ host: "127.0.0.1", port: closedPort }); await client.connect(); return "rows"; }],
  ["render_node", { id: "string" }, [fails("down", { id: "c1" })], () => new Promise((done, failed) => { net.connect(closedPort, "127.0.0.1").on("error", failed).on("connect", () => done("up")); })],
  ["render_queue", { id: "string" }, [fails("down", { id: "c1" })], () => { throw new Error("Breaker is open"); }],
  ["colour_service", { id: "string" }, [fails("upstream", { id: "c1" })], async () => { const reply = await fetch(`${upstream}/503`); throw new Error(`${reply.status} ${reply.statusText}`); }],
  ["asset_feed", { id: "string" }, [fails("upstream", { id: "c1" })], async () => JSON.parse(await (await fetch(`${upstream}/truncated`)).text())],
  ["review_link", { id: "string" }, [fails("upstream", { id: "c1" })], async () => { const reply = await fetch(`${upstream}/502`); if (!reply.ok) throw new Error(reply.url); return reply.text(); }],
  ["get_clip", { id: "string" }, [works({ id: "c1" }), fails("not_found", { id: "c77" }), fails("validation", { id: 7 }), fails("validation", {})], ({ id }) => {
    if (typeof id !== "string") throw new Refused("id: Expected string");
    return JSON.stringify(clip(id));
  }],
  ["trim", { id: "string", end: "number" }, [works({ id: "c1", end: 4 }), fails("validation", { id: "c1", end: 99 })], ({ id, end }) => {
    if (end > clip(id).seconds) throw new Refused(`end (${end}) lies after the last frame`);
    return "trimmed";
  }],
  ["rename", { id: "string", title: "string" }, [works({ id: "c1", title: "Sea" }), fails("state", { id: "c2", title: "Day" })], ({ id }) => {
    if (clip(id).locked) throw new Refused("Night is locked by Ann until she checks it in");
    return "renamed";
  }],
  ["open_project", { file: "string" }, [fails("not_found", { file: "/home/ann/film.prj" })], async ({ file }) => readFile(file, "utf8")],
  ["list_folder", { folder: "string" }, [fails("permission", { folder: "/home/bob/private" })], ({ folder }) => { throw Object.assign(new Error(`EACCES: permission denied, scandir '${folder}'`), { code: "EACCES" }); }],
  ["apply_edl", { edl: "string" }, [works({ edl: "[]" }), fails("payload", { edl: "[1, 2" })], ({ edl }) => JSON.stringify(JSON.parse(edl))],
  ["find_by_pattern", { pattern: "string" }, [works({ pattern: "^S" }), fails("payload", { pattern: "[a-" })], ({ pattern }) => String(new RegExp(pattern))],
  ["run_script", { code: "string" }, [works({ code: "1+1" }), fails("payload", { code: "frame +* 2" }), fails("payload", { code: "nosuchname + 1" })], ({ code }) => String((0, eval)(code))],
  ["share", { id: "string", email: "string" }, [fails("permission", { id: "c1", email: "x@y.example" })], () => { throw new Refused("Guests cannot share clips outside the studio"); }],
  ["account", { token: "string" }, [fails("auth", { token: "abc" })], async () => (await axios.get(`${upstream}/401`)).data],
  ["bulk_search", { text: "string" }, [fails("quota", { text: "sea" })], async () => { const reply = await fetch(`${upstream}/429`); throw new Error(`Search failed: HTTP ${reply.status}`); }],
  ["convert_colour", { colour: "string" }, [works({ colour: "#fff" }), fails("validation", { colour: "greenish" })], ({ colour }) => { if (!/^#/.test(colour)) throw new Refused(`Not a colour: ${colour}`); return "rgb(255,255,255)"; }],
  ["import_feed", { url: "string" }, [hides("network", { url: "https://feeds.example/a" })], () => JSON.stringify({ imported: 0, errors: ["fetch failed"] })],
  ["make_gif", { id: "string" }, [hides("crash", { id: "c1" })], () => "Error: Cannot read properties of undefined (reading 'frames')"],
  ["sync_library", { name: "string" }, [hides("upstream", { name: "main" })], () => JSON.stringify({ result: { status: "error", message: "Library server answered 503" } })],
  ["colour_profile", { name: "string" }, [hides("not_found", { name: "p9" })], () => "Profile p9 not found. Available profiles: rec709, p3"],
  ["watermark", { id: "string" }, [hides("misconfig", { id: "c1" })], () => JSON.stringify({ success: false, error: "spawn composite ENOENT" })],
  ["validate_edl", { edl: "string" }, [works({ edl: "[{}]" })], () => JSON.stringify({ valid: false, errors: ["event 1 has no start"] })],
  ["compare_clips", { a: "string", b: "string" }, [works({ a: "c1", b: "c2" })], () => JSON.stringify({ identical: false, equal: false, reason: "titles differ" })],
  ["render_log", { id: "string" }, [works({ id: "c1" })], () => JSON.stringify({ entries: [{ time: "10:00", level: "error", message: "frame 3 dropped" }], total: 1 })],
  ["find_music", { text: "string" }, [works({ text: "zzz" })], () => "Found no tracks."],
  ["error_codes", { page: "number" }, [works({ page: 1 })], () => "E01 Disk full\nE02 Frame missing\nE03 Codec unknown"],
);
