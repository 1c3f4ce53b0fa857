/** Custom output for the consoles of Node, Deno and Bun. */

/** The method that those consoles call. */
export const INSPECT = /* @__PURE__ */ Symbol.for("nodejs.util.inspect.custom");

/** The `inspect` function that those consoles pass: formats a nested value. */
export type Format = (value: unknown, options: unknown) => string;
