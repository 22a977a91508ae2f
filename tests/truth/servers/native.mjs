// What JavaScript servers that are written against one SDK share: the calls planned for each tool.

const planned = [];

/** Plan calls of a tool. */
export const plan = (tool, ...calls) => planned.push(...calls.map((call) => ({ tool, ...call })));

/** Serve, or print the plan if the script was started with --plan. */
export async function run(serve) {
  if (process.argv.includes("--plan")) {
    console.log(JSON.stringify(planned));
    process.exit(0);
  }
  await serve();
}
