/** What is shown by the consoles of Node, Deno and Bun: what a thing is, and not how it is made. */

/** The method that those consoles ask for. */
export const INSPECT = /* @__PURE__ */ Symbol.for("nodejs.util.inspect.custom");

/** As those consoles give it: formats a value as this console does. */
export type Format = (value: unknown, options: unknown) => string;
