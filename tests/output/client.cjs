// A client of the TypeScript SDK that uses everything the server behind COMMAND offers.
//
//   node client.cjs FOLDER_WITH_NODE_MODULES COMMAND…
//
// Prints, as JSON, the tools' names and what the calls gave.
const { createRequire } = require("node:module");
const path = require("node:path");

const [folder, command, ...args] = process.argv.slice(2);
const sdk = createRequire(path.join(path.resolve(folder), "package.json"));
const { Client } = sdk("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = sdk("@modelcontextprotocol/sdk/client/stdio.js");

async function main() {
  const client = new Client({ name: "tests", version: "1.0.0" });
  await client.connect(new StdioClientTransport({ command, args, env: process.env }));
  // The SDK checks every structured result of a listed tool against its output schema, and throws.
  const { tools } = await client.listTools();
  const { resources } = await client.listResources();
  const { resourceTemplates } = await client.listResourceTemplates();
  const rules = await client.readResource({ uri: "mcptally://rules" });
  const calls = [
    ["ask", { question: "tool_scores", limit: 5 }],
    ["sql", { query: "SELECT call_id FROM calls WHERE tool = 'read' LIMIT 1" }],
    ["validate", { server: "demo", tool: "read", arguments: {} }],
    ["sql", { query: "SELECT nothing" }],
  ];
  const answers = [];
  for (const [name, given] of calls) {
    answers.push(await client.callTool({ name, arguments: given }));
  }
  // A table is CSV between two empty lines; the row after the header has one value.
  const [, table] = answers[1].content[0].text.split("\n\n");
  const call = table.split("\n")[1];
  answers.push(await client.callTool({ name: "show_call", arguments: { call } }));
  await client.close();
  const told = {
    tools: tools.map((tool) => tool.name),
    resources: resources.map((one) => one.uri),
    templates: resourceTemplates.map((one) => one.uriTemplate),
    rules: rules.contents.length,
    answers,
  };
  console.log(JSON.stringify(told));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
