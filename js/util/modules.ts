/**
 * The package's modules that are loaded on first use, by their paths below the package's folder. Nothing that a worker
 * needs to serve a database contains an `import()` of one: there it would be included as well, and a bundler that makes
 * one file would wrap each module in a function, so that the worker starts 7 ms later.
 */

import { VarveError } from "../errors/index.js";

const registered = new Map<string, unknown>();
const loaders = new Map<string, () => Promise<unknown>>();
/** Loads all modules that have no loader of their own. */
let loadRest: LoadAll | undefined;

/** Loads a module with others in it, by their paths. */
type LoadAll = () => Promise<{ readonly MODULES: Readonly<Record<string, unknown>> }>;

/** Registers modules that were imported statically, by their paths. */
export function register(modules: Readonly<Record<string, unknown>>): void {
  for (const [path, module] of Object.entries(modules)) registered.set(path, module);
}

/** Registers how to load the module at this path alone. */
export function registerLoader(path: string, load: () => Promise<unknown>): void {
  loaders.set(path, load);
}

/** Registers how to load all others. */
export function registerRest(load: LoadAll): void {
  loadRest = load;
}

/**
 * The module at this path: a registered one, or a loaded one.
 *
 * @throws VarveError with this code if it cannot be loaded here
 */
export async function moduleAt<T>(path: string, code = "VARVE_MODULE"): Promise<T> {
  const known = registered.get(path);
  if (known !== undefined) return known as T;
  try {
    const load = loaders.get(path);
    if (load !== undefined) return (await load()) as T;
    if (loadRest === undefined) throw new Error("call open() first.");
    const { MODULES } = await loadRest();
    return MODULES[path] as T;
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
