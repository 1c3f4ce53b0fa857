/** `connect`: makes a client of a database by its name. */

import { badCall, OptionsMismatchError } from "../errors/index.js";
import { checkedOptions } from "../session/checked-options.js";
import { Client, type ClientOf } from "./client.js";
import type { WorkerLike } from "./connection/caller.js";
import { Connection, connections } from "./connection/connection.js";
import { packageWorker } from "./package-worker.js";
import type { Nothing, ServedTypes } from "./types.js";
import type { CollectionSpecs } from "./worker/collection-handlers.js";

/** The options of `connect`. All are optional. */
export interface ConnectOptions {
  /**
   * Makes the worker in which the database is opened. The worker's file has `export default serve(…)`. By
   * default it is the package's own worker, which has no procedures and opens the database with default
   * options.
   *
   * ```ts
   * { worker: () => new Worker(new URL("./db.ts", import.meta.url), { type: "module" }) }
   * ```
   */
  worker?: (() => WorkerLike) | undefined;
  /**
   * Milliseconds after which a call is given up if no owner has done it: more than 0, at most 3,600,000 (an
   * hour), 30,000 by default. After that time no owner does it. Each call can have its own timeout.
   */
  timeout?: number | undefined;
  /**
   * The application's version, as for `serve`, if the worker is the package's own. With a worker of your own
   * it is the version of the page: an earlier page becomes outdated.
   */
  version?: number | undefined;
  /**
   * An object with the names of the collections that the client has as properties, all that the worker serves:
   * `{ products: true }`, or the object that `serve` is given. The values do not matter, but a page that has
   * the schemas gets the types from them. Without it there is `client.collection("products")`.
   */
  collections?: undefined;
}

/** Options that declare all served collections, by name. */
interface Declaring<S extends ServedTypes> extends Omit<ConnectOptions, "collections"> {
  collections: { readonly [Name in keyof S["collections"]]: unknown };
}

/** Options with the schema of each collection. */
interface Specifying<C extends CollectionSpecs> extends Omit<ConnectOptions, "collections"> {
  collections: C;
}

const KNOWN = ["worker", "timeout", "version", "collections"];

export function connect<const C extends CollectionSpecs>(
  name: string,
  options: Specifying<C>,
): ClientOf<ServedTypes<Record<never, never>, C>>;
export function connect<S extends ServedTypes = Nothing>(
  name: string,
  options: Declaring<S>,
): ClientOf<S>;
/**
 * Connects a page or a worker to a database that a worker has open. One worker serves all tabs; it is elected
 * among those of the tabs. `connect` returns at once, also on a server; calls wait for an owner.
 *
 * Connecting again in the same page joins the worker that is already there, whichever function made it:
 * modules that do not know each other, or that were loaded again, share it. The last `close` ends it. Only
 * if `worker` returns a port, and not a `Worker`, each client has its own.
 *
 * ```ts
 * const shop = connect<typeof import("./db").default>("shop", {
 *   worker: () => new Worker(new URL("./db.ts", import.meta.url), { type: "module" }),
 * });
 * await shop.get("yeezy");
 * await shop.call.buy("yeezy");
 * const products = shop.collection("products");
 * await products.update("yeezy", { add: { stock: -1 }, where: { stock: { gt: 0 } } });
 * ```
 *
 * @param name as for `open`. What looks like a path is refused by the worker: `ready` and every call reject.
 * @throws TypeError for a bad name, an unknown option or a bad value of one
 * @throws OptionsMismatchError if a client that it would join has another `version`, or if only one of the
 * two uses the package's own worker. What the platform refuses rejects `ready` and every call.
 */
export function connect<S extends ServedTypes = Nothing>(
  name: string,
  options?: ConnectOptions,
): Client<S>;
export function connect(name: string, options?: ConnectOptions | Declaring<ServedTypes>): object {
  if (typeof name !== "string" || name === "") {
    throw badCall("The name must be a non-empty string.");
  }
  const {
    worker,
    timeout = 30_000,
    version,
    collections = {},
  } = checkedOptions("connect()", options, KNOWN);
  const make = worker ?? (isBrowser() ? packageWorker : undefined);
  const connection = connections.get(name) ?? new Connection(name, { worker: make, version });
  const { options: joined } = connection;
  if (
    joined.version !== version ||
    (joined.worker === packageWorker) !== (make === packageWorker)
  ) {
    throw new OptionsMismatchError(
      `connect("${name}") was called here with another version or kind of worker. Close that client first.`,
    );
  }
  const declared = Object.keys(collections);
  const client = new Client(connection, timeout, collections);
  for (const name of declared) {
    if (name in client) {
      throw badCall(
        `The option collections names "${name}", which clients have already. Leave it out, and use ` +
          `collection("${name}").`,
      );
    }
    Object.defineProperty(client, name, { value: client.collection(name), enumerable: true });
  }
  // On a server, the module may be rendering a page: no worker is started before a call needs it.
  if (isBrowser()) connection.ensureWorker();
  return client;
}

/** Whether this realm is a page, or one of its workers. */
function isBrowser(): boolean {
  const { WorkerGlobalScope, process } = globalThis as {
    WorkerGlobalScope?: unknown;
    process?: unknown;
  };
  return (
    typeof Worker === "function" &&
    (typeof document !== "undefined" || (WorkerGlobalScope !== undefined && process === undefined))
  );
}
