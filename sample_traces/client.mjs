// A client on the TypeScript SDK: connects to a stdio server and works through a list of steps.
// node client.mjs '{"command": "…", "args": […], "cwd": "…", "env": {…}, "steps": […]}'
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const { steps, ...server } = JSON.parse(process.argv[2]);
const client = new Client({ name: 'demo-ts', version: '1.0.0' });

async function take(step) {
  const options = step.timeout ? { timeout: step.timeout * 1000 } : undefined;
  try {
    const asked = { name: step.name, arguments: step.arguments };
    if (step.method === 'tools/list') await client.listTools();
    else if (step.task) {
      const told = client.experimental.tasks.callToolStream(asked, undefined, { task: { ttl: 60000 } });
      for await (const message of told) if (message.type === 'error') throw message.error;
    }
    else await client.callTool(asked, undefined, options);
  } catch (error) {
    // The wire is what is recorded; here an error only means: go on with the next step.
    console.error(`${step.name}: ${error.message.slice(0, 200)}`);
  }
}

await client.connect(new StdioClientTransport(server));
const running = [];
for (const step of steps) {
  const taken = take(step);
  if (step.together) running.push(taken);
  else await taken;
}
await Promise.all(running);
await client.close();
