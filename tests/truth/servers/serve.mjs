// Serves a JavaScript server's tools with one of several SDKs: serve.mjs SDK MODULE, or --plan MODULE.

import readline from "node:readline";
import { plan, Refused } from "./kit.mjs";

const [sdk, module] = process.argv.slice(2);
const { tools } = await import(`./${module}.mjs`);

const content = (value) =>
  Array.isArray(value) ? value : [{ type: "text", text: typeof value === "string" ? value : String(JSON.stringify(value) ?? value) }];

async function typescript() {
  const { McpServer } = await import("@modelcontextprotocol/sdk/server/mcp.js");
  const { StdioServerTransport } = await import("@modelcontextprotocol/sdk/server/stdio.js");
  const { z } = await import("zod");
  const types = { string: z.string(), number: z.number(), object: z.object({}) };
  const server = new McpServer({ name: module, version: "1.0.0" });
  for (const { name, parameters, run } of tools) {
    const shape = Object.fromEntries(Object.entries(parameters).map(([key, type]) => [key, types[type]]));
    server.registerTool(name, { inputSchema: shape }, async (args) => ({ content: content(await run(args)) }));
  }
  await server.connect(new StdioServerTransport());
}

async function fastmcp() {
  const { FastMCP, UserError } = await import("fastmcp");
  const { z } = await import("zod");
  const types = { string: z.string(), number: z.number(), object: z.object({}) };
  const server = new FastMCP({ name: module, version: "1.0.0" });
  for (const { name, parameters, run } of tools) {
    const shape = Object.fromEntries(Object.entries(parameters).map(([key, type]) => [key, types[type]]));
    server.addTool({
      name,
      description: name,
      parameters: z.object(shape),
      execute: async (args) => {
        try {
          return { content: content(await run(args)) };
        } catch (error) {
          throw error instanceof Refused ? new UserError(error.message) : error;
        }
      },
    });
  }
  await server.start({ transportType: "stdio" });
}

/** JSON-RPC by hand: results with isError, and the text after "Error: " as String(error) gives it. */
async function plain() {
  const byName = Object.fromEntries(tools.map((tool) => [tool.name, tool]));
  const schema = ({ parameters }) => ({
    type: "object",
    properties: Object.fromEntries(Object.entries(parameters).map(([key, type]) => [key, { type }])),
    required: Object.keys(parameters),
  });
  const methods = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: module, version: "1.0.0" } }),
    "tools/list": () => ({ tools: tools.map((tool) => ({ name: tool.name, inputSchema: schema(tool) })) }),
    "tools/call": async ({ name, arguments: args }) => {
      try {
        return { content: content(await byName[name].run(args)) };
      } catch (error) {
        if (!(error instanceof Refused)) console.error(error);
        return { content: [{ type: "text", text: String(error) }], isError: true };
      }
    },
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) continue;
    const answer = methods[method]
      ? { result: await methods[method](params) }
      : { error: { code: -32601, message: "Method not found" } };
    process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
  }
  process.exit(0);
}

if (sdk === "--plan") {
  console.log(JSON.stringify(plan(tools)));
  process.exit(0);
}
await { typescript, fastmcp, plain }[sdk]();
