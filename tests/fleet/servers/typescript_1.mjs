// A server on the TypeScript SDK 1.x. FLEET_SDK is the folder of @modelcontextprotocol/sdk.
// Usage: node typescript_1.mjs [HTTP PORT]
import http from "node:http";

const sdk = (path) => import(`${process.env.FLEET_SDK}/dist/esm/${path}`);
const { McpServer, ResourceTemplate } = await sdk("server/mcp.js");
const { completable } = await sdk("server/completable.js");
const { StdioServerTransport } = await sdk("server/stdio.js");
const { StreamableHTTPServerTransport } = await sdk("server/streamableHttp.js");
const { InMemoryTaskStore } = await sdk("experimental/tasks/stores/in-memory.js");
const { z } = await import(`${process.env.FLEET_SDK}/../../zod/index.js`);

const text = (value) => ({ content: [{ type: "text", text: value }] });
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function answers(name, { count }) {
  if (name === "crash") throw new TypeError("Cannot read properties of undefined (reading 'items')");
  if (name === "refuse") return { isError: true, ...text(`Invalid count ${count}: must be at least 1`) };
  return text(`done ${count} times`);
}

function makeServer() {
  const server = new McpServer(
    { name: "fleet-typescript-1", version: "1.0.0" },
    {
      taskStore: new InMemoryTaskStore(),
      capabilities: { logging: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } },
    },
  );
  for (const name of ["work", "crash", "refuse", "hang"]) {
    server.experimental.tasks.registerToolTask(
      `task_${name}`,
      { description: `Runs a task that will ${name}.`, inputSchema: { count: z.number() }, execution: { taskSupport: "required" } },
      {
        async createTask(args, { taskStore }) {
          const task = await taskStore.createTask({ ttl: 60000, pollInterval: 20 });
          if (name !== "hang") {
            setTimeout(async () => {
              try {
                const result = answers(name, args);
                await taskStore.storeTaskResult(task.taskId, result.isError ? "failed" : "completed", result);
              } catch (error) {
                console.error(error.stack);
                await taskStore.storeTaskResult(task.taskId, "failed", { isError: true, ...text(String(error)) });
              }
            }, 40);
          }
          return { task };
        },
        getTask: async (_, { taskId, taskStore }) => taskStore.getTask(taskId),
        getTaskResult: async (_, { taskId, taskStore }) => taskStore.getTaskResult(taskId),
      },
    );
  }
  for (const name of ["work", "crash", "refuse"])
    server.registerTool(name, { inputSchema: { count: z.number() } }, async (args) => answers(name, args));
  server.registerTool("hang", {}, async (extra) => {
    await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
    return text("stopped");
  });
  server.registerTool("report", {}, async ({ _meta, sendNotification }) => {
    for (const progress of [1, 2])
      await sendNotification({ method: "notifications/progress", params: { progressToken: _meta.progressToken, progress, total: 2 } });
    await server.sendLoggingMessage({ level: "info", data: "half way" });
    return text("reported");
  });
  server.registerTool("ask", {}, async () => {
    const { action } = await server.server.elicitInput({
      message: "Which city?",
      requestedSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    });
    return text(`the user said ${action}`);
  });
  server.registerTool("sign_in", {}, async () => {
    const { action } = await server.server.elicitInput({
      mode: "url", message: "Sign in", elicitationId: "e1", url: "https://example.org/sign-in",
    });
    return text(`the user said ${action}`);
  });
  server.registerTool("summarise", {}, async () => {
    const reply = await server.server.createMessage({
      messages: [{ role: "user", content: { type: "text", text: "Summarise" } }], maxTokens: 20,
    });
    return text(reply.content.text);
  });
  server.registerTool("roots", {}, async () => text(String((await server.server.listRoots()).roots.length)));
  server.registerTool(
    "weather",
    {
      title: "Weather", icons: [{ src: "data:image/png;base64,iVBORw0KGgo=", mimeType: "image/png" }],
      inputSchema: { city: z.string() }, outputSchema: { degrees: z.number() },
    },
    async () => ({ ...text('{"degrees":4}'), structuredContent: { degrees: 4 } }),
  );
  server.registerTool("link", {}, async () => ({
    content: [{ type: "resource_link", uri: "note://1", name: "note" }],
  }));
  server.registerResource("note", "note://1", { mimeType: "text/plain" }, async (uri) => ({
    contents: [{ uri: uri.href, text: "a note" }],
  }));
  server.registerResource("notes", new ResourceTemplate("notes://{name}", { list: undefined }), {}, async (uri) => ({
    contents: [{ uri: uri.href, text: "one of the notes" }],
  }));
  server.registerPrompt(
    "greet",
    { argsSchema: { language: completable(z.string(), (value) => ["de", "en"].filter((each) => each.startsWith(value))) } },
    ({ language }) => ({ messages: [{ role: "user", content: { type: "text", text: `Greet in ${language}` } }] }),
  );
  return server;
}

if (process.argv[2] === undefined) {
  await makeServer().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  http.createServer(async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => String(sessions.size + 1),
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(process.argv[2]), "127.0.0.1");
}
