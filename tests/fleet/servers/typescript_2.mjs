// A server on the TypeScript SDK 2.x. FLEET_SDK_2 is the folder with its packages (node_modules).
// Usage: node typescript_2.mjs [HTTP PORT]
import http from "node:http";
import { createRequire } from "node:module";

const from = createRequire(`${process.env.FLEET_SDK_2}/index.js`);
const { McpServer, ProtocolError, ResourceTemplate, acceptedContent, completable, createMcpHandler, inputRequired, inputResponse, isLegacyRequest } =
  from("@modelcontextprotocol/server");
const { serveStdio } = from("@modelcontextprotocol/server/stdio");
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = from("@modelcontextprotocol/node");
const z = from("zod");

const text = (value) => ({ content: [{ type: "text", text: value }] });
const wait = (ms, signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
    signal?.addEventListener("abort", resolve);
  });
const form = { message: "Which city?", requestedSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } };
const question = { messages: [{ role: "user", content: { type: "text", text: "Summarise" } }], maxTokens: 20 };
let notify;

function makeServer({ era }) {
  const server = new McpServer(
    { name: "fleet-typescript-2", version: "1.0.0" },
    { capabilities: { logging: {}, resources: { subscribe: true, listChanged: true } } },
  );
  const count = { description: "Does it a number of times.", inputSchema: z.object({ count: z.number() }) };
  server.registerTool("work", count, async ({ count }) => text(`done ${count} times`));
  server.registerTool("crash", count, async () => {
    try {
      return text(undefined.items);
    } catch (error) {
      console.error(error.stack);
      throw error;
    }
  });
  server.registerTool("refuse", count, async ({ count }) => ({ isError: true, ...text(`Invalid count ${count}: must be at least 1`) }));
  server.registerTool("reject", count, async () => {
    throw new ProtocolError(-32603, "connect ECONNREFUSED 10.0.0.7:5432");
  });
  server.registerTool("hang", { description: "Hangs." }, async (ctx) => {
    await wait(60000, ctx.mcpReq.signal);
    return text("stopped");
  });
  server.registerTool("report", { description: "Reports progress." }, async ({ mcpReq }) => {
    for (const progress of [1, 2])
      await mcpReq.notify({ method: "notifications/progress", params: { progressToken: mcpReq._meta.progressToken, progress, total: 2 } });
    await mcpReq.log("info", "half way");
    return text("reported");
  });
  server.registerTool("polled", { description: "Closes its stream before it is done; the client resumes it." }, async (ctx) => {
    await wait(50);
    ctx.http?.closeSSE?.();
    await wait(50);
    return text("done without a stream");
  });
  server.registerTool("ask", { description: "Asks the user." }, async ({ mcpReq }) => {
    if (era === "legacy") return text(`the user said ${(await mcpReq.elicitInput(form)).action}`);
    const said = inputResponse(mcpReq.inputResponses, "city");
    if (said.kind === "missing") return inputRequired({ inputRequests: { city: inputRequired.elicit(form) }, requestState: "asked" });
    return text(`the user said ${said.action} ${acceptedContent(mcpReq.inputResponses, "city")?.city}`);
  });
  server.registerTool("sign_in", { description: "Asks the user to sign in." }, async ({ mcpReq }) => {
    const link = { message: "Sign in", url: "https://example.org/sign-in" };
    if (era === "legacy") return text((await mcpReq.elicitInput({ mode: "url", elicitationId: "e1", ...link })).action);
    const said = inputResponse(mcpReq.inputResponses, "link");
    if (said.kind === "missing") return inputRequired({ inputRequests: { link: inputRequired.elicitUrl(link) } });
    return text(`the user said ${said.action}`);
  });
  server.registerTool("summarise", { description: "Asks the model." }, async ({ mcpReq }) => {
    if (era === "legacy") return text((await mcpReq.requestSampling(question)).content.text);
    const said = inputResponse(mcpReq.inputResponses, "summary");
    const asked = { summary: inputRequired.createMessage(question), roots: inputRequired.listRoots() };
    return said.kind === "missing" ? inputRequired({ inputRequests: asked }) : text(said.result.content.text);
  });
  server.registerTool("old_ask", { description: "Asks the user by a request that 2026-07-28 removed." }, async ({ mcpReq }) =>
    text(`the user said ${(await mcpReq.elicitInput(form)).action}`));
  server.registerTool(
    "weather",
    {
      title: "Weather", description: "Tells the weather.", icons: [{ src: "data:image/png;base64,iVBORw0KGgo=", mimeType: "image/png" }],
      inputSchema: z.object({ city: z.string() }), outputSchema: z.object({ degrees: z.number() }),
    },
    async () => ({ ...text('{"degrees":4}'), structuredContent: { degrees: 4 } }),
  );
  server.registerTool("link", { description: "Links a resource." }, async () => ({ content: [{ type: "resource_link", uri: "note://1", name: "note" }] }));
  server.registerTool("touch", { description: "Changes a resource." }, async () => {
    if (era === "modern" && notify) notify.resourceUpdated("note://1");
    else await server.server.sendResourceUpdated({ uri: "note://1" });
    return text("touched");
  });
  server.registerResource("note", "note://1", { mimeType: "text/plain" }, async (uri) => ({ contents: [{ uri: uri.href, text: "a note" }] }));
  server.registerResource("notes", new ResourceTemplate("notes://{name}", { list: undefined }), {}, async (uri) => ({
    contents: [{ uri: uri.href, text: "one of the notes" }],
  }));
  server.registerPrompt(
    "greet",
    {
      description: "A greeting.",
      argsSchema: z.object({ language: completable(z.string(), (value) => ["de", "en"].filter((each) => each.startsWith(value))) }),
    },
    ({ language }) => ({ messages: [{ role: "user", content: { type: "text", text: `Greet in ${language}` } }] }),
  );
  if (era === "legacy") {
    server.server.setRequestHandler("resources/subscribe", async () => ({}));
    server.server.setRequestHandler("resources/unsubscribe", async () => ({}));
  }
  return server;
}

class Events {
  stored = [];
  async storeEvent(stream, message) {
    return String(this.stored.push([stream, message]) - 1);
  }
  async getStreamIdForEventId(id) {
    return this.stored[id]?.[0];
  }
  async replayEventsAfter(last, { send }) {
    const [stream] = this.stored[last];
    for (let id = Number(last) + 1; id < this.stored.length; id++)
      if (this.stored[id][0] === stream) await send(String(id), this.stored[id][1]);
    return stream;
  }
}

if (process.argv[2] === undefined) {
  serveStdio(makeServer);
} else {
  const modern = createMcpHandler(makeServer, { legacy: "reject" });
  const answer = toNodeHandler(modern);
  notify = modern.notify;
  const sessions = new Map();
  http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
    if (request.method === "POST" && !(await isLegacyRequest(await toWebRequest(request, body)))) {
      return answer(request, response, body);
    }
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (transport === undefined) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: () => String(sessions.size + 1),
        onsessioninitialized: (id) => sessions.set(id, transport),
        eventStore: new Events(),
        retryInterval: 20,
      });
      await makeServer({ era: "legacy" }).connect(transport);
    }
    await transport.handleRequest(request, response, body);
  }).listen(Number(process.argv[2]), "127.0.0.1");
}
