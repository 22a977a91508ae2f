// A client on the TypeScript SDK 1.x. It runs steps and prints what it got for each.
// Usage: node typescript_1_client.mjs STEPS (URL | COMMAND...)
const sdk = (path) => import(`${process.env.FLEET_SDK}/dist/esm/${path}`);
const { Client } = await sdk("client/index.js");
const { StdioClientTransport } = await sdk("client/stdio.js");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp.js");
const types = await sdk("types.js");

const [steps, ...where] = process.argv.slice(2);
const answers = { action: "accept", content: { city: "Oslo" } };
const client = new Client(
  { name: "fleet-typescript-1-client", version: "1.0.0" },
  { capabilities: { sampling: {}, roots: {}, elicitation: { form: {}, url: {} } } },
);
client.setRequestHandler(types.ElicitRequestSchema, async () =>
  answers.action === "accept" ? answers : { action: answers.action });
client.setRequestHandler(types.CreateMessageRequestSchema, async () => ({
  role: "assistant", model: "fleet", content: { type: "text", text: "short" },
}));
client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///home" }] }));
await client.connect(
  where[0].startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(where[0]))
    : new StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env, stderr: "inherit" }),
);
await client.listTools();

const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const run = {
  call: (name, args) => call(name, args),
  report: () => call("report", {}, { onprogress: () => {} }),
  elicit: (action, name) => ((answers.action = action), call(name, {})),
  timeout: (name) => call(name, {}, { timeout: 150 }),
  async cancel(name) {
    const stop = new AbortController();
    setTimeout(() => stop.abort("the user pressed Escape"), 100);
    return call(name, {}, { signal: stop.signal });
  },
  async task(name, args, follow) {
    const created = await client.request(
      { method: "tools/call", params: { name, arguments: args } }, types.CreateTaskResultSchema, { task: { ttl: 60000 } });
    const { taskId } = created.task;
    const tasks = client.experimental.tasks;
    if (follow === "cancel") return tasks.cancelTask(taskId);
    if (follow === "result") return tasks.getTaskResult(taskId, types.CallToolResultSchema);
    if (follow === "get")
      for (;;) {
        const task = await tasks.getTask(taskId);
        if (task.status !== "working") return task;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    return created;
  },
  complete: () => client.complete({ ref: { type: "ref/prompt", name: "greet" }, argument: { name: "language", value: "d" } }),
  prompt: () => client.getPrompt({ name: "greet", arguments: { language: "de" } }),
  read: (uri) => client.readResource({ uri }),
  subscribe: () => client.subscribeResource({ uri: "note://1" }),
};
for (const [step, ...args] of JSON.parse(steps)) {
  try {
    console.log(JSON.stringify({ got: await run[step](...args) }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.message) }));
  }
}
await client.close();
