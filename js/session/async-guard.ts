/** What comes of callbacks that are functions of another kind than they may be. */

/** What a callback has returned that has not run to its end: a promise, or a generator, which has not even begun. */
export function laterOf(result: unknown): "promise" | "generator" | undefined {
  const { then, [Symbol.toStringTag]: tag } = Object(result) as Partial<Promise<unknown>>;
  if (typeof then === "function") {
    // Nobody else takes what it rejects with.
    (result as Partial<Promise<unknown>>).catch?.(() => {});
    return "promise";
  }
  return /Generator$/.test(tag as string) ? "generator" : undefined;
}
