// What the JavaScript servers share: how a tool declares its calls and the true cause of each outcome.

export const upstream = process.env.UPSTREAM ?? "http://127.0.0.1:9";
export const closedPort = Number(process.env.CLOSED_PORT ?? 9);

export class Refused extends Error {}

export const fails = (cause, args = {}) => ({ cause, outcome: "error", arguments: args });
export const hides = (cause, args = {}) => ({ cause, outcome: "hidden", arguments: args });
export const works = (args = {}) => ({ cause: null, outcome: "ok", arguments: args });

/** A table of tools: name, parameters (name to "string", "number" or "object"), calls, function. */
export function table(...rows) {
  return rows.map(([name, parameters, calls, run]) => ({ name, parameters, calls, run }));
}

export const plan = (tools) =>
  tools.flatMap(({ name, calls }) => calls.map((call) => ({ tool: name, ...call })));
