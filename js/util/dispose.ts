/// <reference lib="esnext.disposable" preserve="true" />
/**
 * The names of the methods that `using` and `await using` call. On platforms without them, they are the names that
 * compilers fall back to, so that compiled code finds them.
 */

export const dispose: typeof Symbol.dispose = Symbol.dispose ?? Symbol.for("Symbol.dispose");

export const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
