// Translation: the low-level Server of the TypeScript SDK; one handler with a switch, as many servers have.

import { exec, execSync, spawn } from "node:child_process";
import dns from "node:dns/promises";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import tls from "node:tls";
import vm from "node:vm";
import zlib from "node:zlib";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ErrorCode, ListToolsRequestSchema, McpError } from "@modelcontextprotocol/sdk/types.js";
import { Redis } from "ioredis";
import { z } from "zod";
import { closedPort, fails, hides, upstream, works } from "./kit.mjs";
import { plan, run } from "./native.mjs";

const home = `${process.cwd()}/lexicon`;
fs.mkdirSync(home, { recursive: true });
fs.writeFileSync(`${home}/de.json`, JSON.stringify({ hello: "hallo", cat: { article: "die", noun: "Katze" }, house: null }));
fs.writeFileSync(`${home}/fr.json`, '{"hello": "bonjour", "cat": "chat",}');
fs.writeFileSync(`${home}/plural-rules.js`, "module.exports = (n) => n === 1 ? 'one' : ;");
fs.writeFileSync(`${home}/memory.tmx`, "<tmx><body><tu><tuv>Hello</tuv></body></tmx>");
fs.writeFileSync(`${home}/embeddings.f32`, Buffer.alloc(10));
fs.writeFileSync(`${home}/glossary.br`, Buffer.from("not brotli at all"));
fs.writeFileSync(`${home}/tagger`, "#!/opt/nlp/bin/python9\n", { mode: 0o755 });
for (const [link, target] of [["journal", "/dev/full"], ["usage", "/proc/sys/kernel/version"]]) {
  fs.rmSync(`${home}/${link}`, { force: true });
  fs.symlinkSync(target, `${home}/${link}`);
}

const tools = new Map();

/** Register a tool; a schema's properties are given as name → type. */
function tool(name, properties, handler, ...calls) {
  const shape = Object.fromEntries(Object.entries(properties).map(([key, type]) => [key, { type }]));
  tools.set(name, { name, description: `${name} (phrasebook)`, inputSchema: { type: "object", properties: shape, required: Object.keys(properties) }, handler });
  plan(name, ...calls);
}

const lexicon = (language) => JSON.parse(fs.readFileSync(`${home}/${language}.json`, "utf8"));
const languages = ["de", "fr"];

const translateArgs = z.object({ word: z.string().min(1), language: z.string().length(2) });

tool("translate", { word: "string", language: "string" }, (args) => {
  const { word, language } = translateArgs.parse(args);
  if (!languages.includes(language)) throw new McpError(ErrorCode.InvalidParams, `Unsupported language: ${language}. Supported: de, fr`);
  const entry = lexicon(language)[word];
  if (entry === undefined) return `No translation of "${word}" found.`;
  return typeof entry === "string" ? entry : `${entry.article} ${entry.noun}`;
}, works({ word: "hello", language: "de" }), works({ word: "cat", language: "de" }), fails("crash", { word: "house", language: "de" }), fails("misconfig", { word: "hello", language: "fr" }), fails("unsupported", { word: "hello", language: "xx" }), fails("validation", { word: "", language: "de" }), fails("validation", { word: "hello", language: "deu" }), fails("validation", { text: "hello" }));
tool("syllables", { word: "string" }, ({ word }) => String(word.match(/[aeiou]+/g).length), works({ word: "banana" }), fails("crash", { word: "shhh" }));
tool("transliterate", { word: "string" }, ({ word }) => {
  const table = { a: "а", b: "б" };
  return [...word].map((letter) => table[letter].toUpperCase()).join("");
}, works({ word: "ab" }), fails("crash", { word: "abc" }));
tool("conjugate", { verb: "string" }, ({ verb }) => {
  const forms = { go: ["go", "went", "gone"], be: 7 };
  const [, past] = forms[verb];
  return past;
}, works({ verb: "go" }), fails("crash", { verb: "be" }));
tool("etymology", { word: "string" }, ({ word }) => {
  const origins = { cat: "cattus", cattus: "cat" };
  const trace = (each) => (origins[each] ? trace(origins[each]) : each);
  return trace(word);
}, works({ word: "tea" }), fails("crash", { word: "cat" }));
tool("pad_table", { words: "array" }, ({ words }) => words.map((word) => word.padEnd(8)).join("|"), works({ words: ["a", "b"] }), fails("crash", { words: ["a", null] }));
tool("number_words", { n: "number" }, ({ n }) => ["zero", "one", "two"].at(n).at(0).toUpperCase(), works({ n: 1 }), fails("crash", { n: 5 }));
tool("count_plural", { n: "number" }, ({ n }) => new Intl.PluralRules("en_US@bad").select(n), fails("crash", { n: 2 }));
tool("format_price", { amount: "number" }, ({ amount }) => new Intl.NumberFormat("de", { style: "currency" }).format(amount), fails("crash", { amount: 5 }));
tool("sort_words", { words: "array" }, ({ words }) => {
  words.sort((a, b) => collator.compare(a, b));
  const collator = new Intl.Collator("sv");
  return words.join();
}, fails("crash", { words: ["b", "a"] }));
tool("normalise", { text: "string" }, ({ text }) => text.normalize("NFX"), fails("crash", { text: "é" }));
tool("word_cloud", { words: "array" }, ({ words }) => {
  const counts = new WeakMap();
  words.forEach((word) => counts.set(word, 1));
  return "cloud";
}, fails("crash", { words: ["a"] }));
tool("quiz", { level: "number" }, ({ level }) => {
  if (level > 2) throw new Error();
  return "What is 'cat' in German?";
}, works({ level: 1 }), fails("crash", { level: 3 }));
tool("next_lesson", { user: "string" }, () => {
  throw "TODO";
}, fails("crash", { user: "u1" }));
tool("progress", { user: "string" }, async ({ user }) => {
  const rows = await Promise.any([Promise.reject(new Error("shard 1: row is null")), Promise.reject(new Error("shard 2: row is null"))]);
  return rows.length;
}, fails("crash", { user: "u1" }), fails("crash", { user: "u2" }));
tool("hyphenate", { word: "string" }, ({ word }) => {
  console.assert(word.length > 3);
  const patterns = /** @type {any} */ (globalThis).hyphenPatterns;
  return patterns.get(word);
}, fails("crash", { word: "Donaudampfschiff" }));
tool("compare", { a: "string", b: "string" }, ({ a, b }) => {
  const distances = Array.from({ length: a.length }, () => []);
  return String(distances[a.length][b.length]);
}, fails("crash", { a: "cat", b: "hat" }));
tool("plural_rule", { n: "number" }, ({ n }) => vm.runInNewContext(fs.readFileSync(`${home}/plural-rules.js`, "utf8"), { module: {} })(n), fails("misconfig", { n: 2 }));
tool("memory_lookup", { text: "string" }, ({ text }) => {
  const source = fs.readFileSync(`${home}/memory.tmx`, "utf8");
  if (source.split("<tu>").length !== source.split("</tu>").length) throw new Error("memory.tmx:1: end tag for element \"tu\" which is not open");
  return text;
}, fails("misconfig", { text: "Hello" }));
tool("similar_words", { word: "string" }, () => String(fs.readFileSync(`${home}/embeddings.f32`).readFloatLE(64)), fails("misconfig", { word: "cat" }));
tool("glossary", { term: "string" }, () => zlib.brotliDecompressSync(fs.readFileSync(`${home}/glossary.br`)).toString(), fails("misconfig", { term: "API" }), fails("misconfig", { term: "SDK" }));
tool("dialect_notes", { region: "string" }, () => fs.readFileSync(`${home}/dialects/notes.md`, "utf8"), fails("misconfig", { region: "Tirol" }), fails("misconfig", { region: "Wien" }));
tool("voice_sample", { text: "string" }, () => {
  if (!fs.existsSync("/usr/share/phrasebook/voices/anna.onnx")) throw new Error("Voice model anna.onnx has not been downloaded. Run `phrasebook setup` on the server.");
}, fails("misconfig", { text: "Hallo" }));
tool("speak", { text: "string" }, ({ text }) => new Promise((resolve, reject) => exec("espeak-ng --stdout hallo", (error, stdout) => (error ? reject(error) : resolve(stdout)))), fails("misconfig", { text: "hallo" }), fails("misconfig", { text: "servus" }));
tool("tag", { text: "string" }, () => execSync(`${home}/tagger`, { stdio: "pipe" }).toString(), fails("misconfig", { text: "A cat" }));
tool("spellcheck", { text: "string" }, async ({ text }) => {
  const child = spawn("hunspell", ["-d", "de_AT"]);
  const [code] = await once(child, "close");
  return String(code);
}, fails("misconfig", { text: "Katze" }));
tool("lemmatise", { text: "string" }, async () => (await import("./node_modules/wink-lemmatiser/index.js")).default("x"), fails("misconfig", { text: "cats" }));
tool("machine_translate", { text: "string" }, ({ text }) => {
  if (!process.env.MT_API_KEY) throw new McpError(ErrorCode.InternalError, "MT_API_KEY is not defined");
  return text;
}, fails("misconfig", { text: "cat" }), fails("misconfig", { text: "dog" }));
tool("webhook", { event: "string" }, ({ event }) => new URL(process.env.WEBHOOK_URL).host, fails("misconfig", { event: "new-word" }));
tool("save_word", { word: "string" }, ({ word }) => {
  fs.appendFileSync(`${home}/journal`, word);
  return "saved";
}, fails("internal", { word: "cat" }), fails("internal", { word: "dog" }));
tool("count_usage", { word: "string" }, ({ word }) => {
  fs.writeFileSync(`${home}/usage`, word);
  return "1";
}, fails("misconfig", { word: "cat" }));
tool("rebuild_index", { language: "string" }, async ({ language }) => {
  let waited = 0;
  while (waited++ < 3) await new Promise((resolve) => setTimeout(resolve, 40));
  throw new Error(`Index worker for ${language} is stuck; gave up after 120ms`);
}, fails("internal", { language: "de" }));

tool("detect_language", { text: "string" }, async ({ text }) => {
  const paths = { hello: "200", hallo: "500", salut: "503", ciao: "429", hola: "403" };
  const reply = await fetch(`${upstream}/${paths[text]}`);
  if (reply.status === 429) throw new Error("Rate limit exceeded, retry in 30 s");
  if (reply.status === 403) return { content: [{ type: "text", text: "Detection API denied access (403): subscription of this key has expired" }], isError: true };
  if (!reply.ok) throw new McpError(ErrorCode.InternalError, `Detection API error ${reply.status}: ${reply.statusText}`);
  return "en";
}, works({ text: "hello" }), fails("upstream", { text: "hallo" }), fails("upstream", { text: "salut" }), fails("quota", { text: "ciao" }), fails("auth", { text: "hola" }));
tool("thesaurus", { word: "string" }, async ({ word }) => {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 150);
  return await (await fetch(`${upstream}/slow`, { signal: controller.signal })).text();
}, fails("timeout", { word: "cat" }), fails("timeout", { word: "dog" }));
tool("corpus_examples", { word: "string" }, async ({ word }) => {
  try {
    return await (await fetch(`http://127.0.0.1:${closedPort}/corpus/${word}`)).text();
  } catch (error) {
    throw new Error(`corpus server: ${error.cause?.code ?? error.message}`);
  }
}, fails("network", { word: "cat" }), fails("network", { word: "dog" }));
tool("pronunciation", { word: "string" }, async () => (await dns.lookup("audio.phrasebook.invalid")).address, fails("network", { word: "cat" }));
tool("secure_dictionary", { word: "string" }, async () => {
  const { hostname, port } = new URL(upstream);
  const socket = tls.connect({ host: hostname, port: Number(port) });
  await once(socket, "secureConnect");
}, fails("network", { word: "cat" }));
tool("cached_phrase", { key: "string" }, async ({ key }) => {
  const client = new Redis(closedPort, "127.0.0.1", { maxRetriesPerRequest: 0, retryStrategy: () => null, lazyConnect: true });
  client.on("error", () => {});
  try {
    return await client.get(key);
  } finally {
    client.disconnect();
  }
}, fails("down", { key: "hello" }));
tool("idiom", { word: "string" }, async () => JSON.parse(await (await fetch(`${upstream}/truncated`)).text()).items, fails("upstream", { word: "cat" }), fails("upstream", { word: "dog" }));
tool("ocr", { image: "string" }, async () => {
  throw new Error("OCR backend temporarily unavailable (circuit open since 08:00)");
}, fails("down", { image: "menu.jpg" }));

tool("add_word", { word: "string", translation: "string" }, ({ word, translation }) => {
  if (typeof word !== "string" || !word) throw new Error("Invalid arguments: word is required");
  if (word in lexicon("de")) throw new Error(`"${word}" is in the lexicon already`);
  if (word.startsWith("#")) throw new Error("Words that start with # may be added by editors only");
  if (translation === "?") return { content: [{ type: "text", text: "translation: must contain a letter" }], isError: true };
  return "added";
}, works({ word: "tree", translation: "Baum" }), fails("conflict", { word: "hello", translation: "hallo" }), fails("permission", { word: "#swear", translation: "x" }), fails("validation", { word: "tree", translation: "?" }), fails("validation", { translation: "Baum" }));
tool("remove_word", { word: "string" }, ({ word }) => {
  if (!(word in lexicon("de"))) throw new McpError(-32002, `Word not found: ${word}`);
  if (word === "hello") throw new Error("Cannot remove 'hello' while lesson 1 uses it");
  return "removed";
}, works({ word: "cat" }), fails("not_found", { word: "unicorn" }), fails("state", { word: "hello" }));
tool("search", { pattern: "string" }, ({ pattern }) => {
  let regex;
  try {
    regex = new RegExp(pattern, "u");
  } catch (error) {
    throw new McpError(ErrorCode.InvalidParams, error.message);
  }
  return Object.keys(lexicon("de")).filter((word) => regex.test(word)).join() || "0 results";
}, works({ pattern: "^h" }), works({ pattern: "^z" }), fails("payload", { pattern: "[z-a]" }));
tool("lesson", { number: "number" }, ({ number }) => {
  if (number > 12) throw new RangeError(`There are 12 lessons, ${number} is too high`);
  return `Lesson ${number}: errors in word order`;
}, works({ number: 1 }), fails("not_found", { number: 13 }));

const caught = (handler) => async (args) => {
  try {
    return await handler(args);
  } catch (error) {
    return JSON.stringify({ status: "failed", reason: error.message });
  }
};
tool("article", { word: "string" }, caught(({ word }) => {
  if (!(word in lexicon("de"))) throw new Error(`no entry for ${word}`);
  return lexicon("de")[word].article;
}), works({ word: "cat" }), hides("crash", { word: "house" }), hides("not_found", { word: "dog" }));
tool("news", { language: "string" }, caught(async ({ language }) => {
  if (language === "de") return "Fehlerhafte Übersetzungen im Netz";
  const reply = await fetch(language === "fr" ? `${upstream}/502` : `http://127.0.0.1:${closedPort}`);
  throw new Error(`news feed answered ${reply.status}`);
}), works({ language: "de" }), hides("upstream", { language: "fr" }), hides("network", { language: "it" }));
tool("flashcards", { deck: "string" }, ({ deck }) => {
  try {
    return fs.readFileSync(`${home}/decks/default.csv`, "utf8");
  } catch (error) {
    return `Could not create flashcards (${error.code}).`;
  }
}, hides("misconfig", { deck: "animals" }));
tool("grammar_check", { text: "string" }, ({ text }) => JSON.stringify({ correct: text.endsWith("."), mistakes: text.endsWith(".") ? [] : [{ offset: text.length, message: "Sentence does not end with a period" }] }), works({ text: "A cat." }), works({ text: "A cat" }));
plan("translate_document", fails("unknown", { file: "a.docx" }));

const server = new Server({ name: "phrasebook", version: "0.9.2" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools: [...tools.values()].map(({ handler, ...description }) => description) }));
server.setRequestHandler(CallToolRequestSchema, async ({ params: { name, arguments: args } }) => {
  const found = tools.get(name);
  if (!found) throw new McpError(ErrorCode.MethodNotFound, `Unknown tool: ${name}`);
  try {
    const result = await found.handler(args ?? {});
    return typeof result === "string" ? { content: [{ type: "text", text: result }] } : result;
  } catch (error) {
    if (error instanceof z.ZodError) throw new McpError(ErrorCode.InvalidParams, `Invalid parameters: ${error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`).join(", ")}`);
    if (error instanceof McpError || error instanceof RangeError) throw error;
    console.error(`[phrasebook] ${name} failed:`, error);
    return { content: [{ type: "text", text: `Error: ${error.message || error}` }], isError: true };
  }
});

await run(() => server.connect(new StdioServerTransport()));
