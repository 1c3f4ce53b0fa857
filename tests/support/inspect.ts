/** Values and errors as text, for the message of a failed test. */

/** A value as a short text. */
export function inspect(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(shorten(value));
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return `function ${value.name}`;
  if (value instanceof RegExp) return String(value);
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (ArrayBuffer.isView(value)) {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    const listed = [...bytes.subarray(0, 32)].join(" ");
    return `${value.constructor.name}(${value.byteLength}) [${listed}${value.byteLength > 32 ? " …" : ""}]`;
  }
  if (value instanceof Map || value instanceof Set) {
    return `${value.constructor.name} ${inspect([...value])}`;
  }
  try {
    return shorten(JSON.stringify(value, replacer) ?? String(value));
  } catch {
    return Object.prototype.toString.call(value);
  }
}

/** An error with its stack and its causes. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return `threw ${inspect(error)}`;
  const cause = error.cause === undefined ? "" : `\n  caused by ${describeError(error.cause)}`;
  // In some runtimes a stack has no message.
  const stack = error.stack?.includes(error.message)
    ? error.stack
    : `${error.name}: ${error.message}\n${error.stack}`;
  return `${stack}${cause}`;
}

function replacer(_key: string, value: unknown): unknown {
  if (typeof value === "bigint") return `${value}n`;
  if (value instanceof RegExp) return String(value);
  if (value === undefined) return "(undefined)";
  return ArrayBuffer.isView(value) ? inspect(value) : value;
}

function shorten(value: string): string {
  return value.length > 400 ? `${value.slice(0, 400)}…` : value;
}
