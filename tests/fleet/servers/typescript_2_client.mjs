// A client on the TypeScript SDK 2.x. It runs steps and prints what it got for each.
// Usage: node typescript_2_client.mjs auto|legacy STEPS (URL | COMMAND...)
import { createRequire } from "node:module";

const from = createRequire(`${process.env.FLEET_SDK_2}/index.js`);
const { Client, StreamableHTTPClientTransport } = from("@modelcontextprotocol/client");
const { StdioClientTransport } = from("@modelcontextprotocol/client/stdio");

const [mode, steps, ...where] = process.argv.slice(2);
let action = "accept";
const client = new Client(
  { name: "fleet-typescript-2-client", version: "1.0.0" },
  { capabilities: { sampling: {}, roots: {}, elicitation: { form: {}, url: {} } }, versionNegotiation: { mode } },
);
client.setRequestHandler("elicitation/create", async ({ params }) =>
  action === "accept" && params.mode !== "url" ? { action, content: { city: "Oslo" } } : { action });
client.setRequestHandler("sampling/createMessage", async () => ({
  role: "assistant", model: "fleet", content: { type: "text", text: "short" },
}));
client.setRequestHandler("roots/list", async () => ({ roots: [{ uri: "file:///home" }] }));
await client.connect(
  where[0].startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(where[0]))
    : new StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env, stderr: "inherit" }),
);
await client.listTools();

const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const run = {
  call: (name, args) => call(name, args),
  report: () => call("report", {}, { onprogress: () => {} }),
  elicit: (how, name) => ((action = how), call(name, {})),
  timeout: (name, seconds = 1) => call(name, {}, { timeout: 1000 * seconds }),
  async cancel(name, seconds = 0.33) {
    const stop = new AbortController();
    setTimeout(() => stop.abort("the user pressed Escape"), 1000 * seconds);
    return call(name, {}, { signal: stop.signal });
  },
  complete: () => client.complete({ ref: { type: "ref/prompt", name: "greet" }, argument: { name: "language", value: "d" } }),
  prompt: () => client.getPrompt({ name: "greet", arguments: { language: "de" } }),
  read: (uri) => client.readResource({ uri }),
  templates: () => client.listResourceTemplates(),
  async subscribe() {
    const updated = new Promise((resolve) => client.setNotificationHandler("notifications/resources/updated", resolve));
    await client.subscribeResource({ uri: "note://1" });
    await call("touch", {});
    await updated;
    return client.unsubscribeResource({ uri: "note://1" });
  },
  async listen() {
    const updated = new Promise((resolve) => client.setNotificationHandler("notifications/resources/updated", resolve));
    const subscription = await client.listen({ resourceSubscriptions: ["note://1"] });
    await call("touch", {});
    await updated;
    return subscription.close();
  },
};
for (const [step, ...args] of JSON.parse(steps)) {
  try {
    console.log(JSON.stringify({ got: await run[step](...args) }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.message) }));
  }
}
await client.close();
