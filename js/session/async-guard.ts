/** Detects callbacks that are asynchronous or generators where a synchronous function is required. */

/**
 * The kind of result that shows that a callback has not finished: a promise, or a generator, which has not even
 * started. `undefined` for every other result.
 */
export function unfinishedKind(result: unknown): "promise" | "generator" | undefined {
  const { then, [Symbol.toStringTag]: tag } = Object(result) as Partial<Promise<unknown>>;
  if (typeof then === "function") {
    // The promise is dropped here, so its rejection would otherwise be unhandled.
    (result as Partial<Promise<unknown>>).catch?.(() => {});
    return "promise";
  }
  return /Generator$/.test(tag as string) ? "generator" : undefined;
}
