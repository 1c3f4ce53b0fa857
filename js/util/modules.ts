/**
 * Loader of the package's modules that are loaded on first use. In a service worker `import()` always fails, so a
 * program that may run in one imports them statically and registers them here.
 */

import { VarveError } from "../errors/index.js";

const registered = new Map<string, unknown>();

/** Registers modules that were imported statically, by their paths below the package's folder. */
export function register(modules: Readonly<Record<string, unknown>>): void {
  for (const [path, module] of Object.entries(modules)) registered.set(path, module);
}

/**
 * The module at this path: a registered one, or the one that `load` imports.
 *
 * @throws VarveError with this code if it cannot be loaded here
 */
export async function moduleAt<T>(
  path: string,
  load: () => Promise<T>,
  code = "VARVE_MODULE",
): Promise<T> {
  const known = registered.get(path);
  if (known !== undefined) return known as T;
  try {
    return await load();
  } catch (cause) {
    throw new VarveError(
      code,
      `The module ${path} of varve could not be loaded: ${(cause as Error).message} ${
        "ServiceWorkerGlobalScope" in globalThis
          ? "Service workers cannot load modules on demand. Have this one import the module " +
            "varve/worker, which brings all of them, or bundle it into a single file."
          : "Is the file there, and may it be fetched? After a deployment, reload the page."
      }`,
      { cause },
    );
  }
}
