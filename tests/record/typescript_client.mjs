import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
const work = JSON.parse(readFileSync(process.argv[2]));
const transport = new StdioClientTransport(
  { command: work.command[0], args: work.command.slice(1), env: work.env, stderr: "ignore" });
const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
await client.connect(transport);
const out = [client.getServerVersion(), client.getServerCapabilities(), await client.listTools()];
for (const [name, args] of work.calls) {
  try { out.push(await client.callTool({ name, arguments: args })); }
  catch (error) { out.push(String(error)); }
}
await client.close();
console.log(JSON.stringify(out));
