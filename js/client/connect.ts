/** `connect`: from a name to a client of the database. */

import { badArgument } from "../errors.js";
import { Client, type ClientOf } from "./client.js";
import { Link, type WorkerLike } from "./link.js";
import type { Nothing, ServedTypes } from "./types.js";

/** The options of `connect`. All may be left out. */
export interface ConnectOptions {
  /**
   * Makes the worker in which the database is opened; its file has `export default serve(…)`. Left out,
   * it is the package's own, which knows no procedures and opens the database with the defaults.
   *
   * ```ts
   * { worker: () => new Worker(new URL("./db.ts", import.meta.url), { type: "module" }) }
   * ```
   */
  worker?: (() => WorkerLike) | undefined;
  /**
   * Milliseconds until a call is given up that no owner has done; 30,000 when left out. Nobody does it
   * after that time. Each call can have its own.
   */
  timeout?: number | undefined;
  /**
   * The application's version, as for `serve`, where the worker is the package's own. With a worker of
   * one's own it is that of the page: an earlier page is told that it is outdated.
   */
  version?: number | undefined;
}

const KNOWN = ["worker", "timeout", "version"];

/** Deadlines lie no further away, for the memory of what was done lasts a little longer than they. */
const LONGEST_TIMEOUT = 3_600_000;

/**
 * Connects a page, or a worker, to a database that a worker has open: one for all tabs, which is
 * elected among theirs. It returns at once, on servers too; calls wait for an owner.
 *
 * ```ts
 * const shop = connect<typeof import("./db").default>("shop", {
 *   worker: () => new Worker(new URL("./db.ts", import.meta.url), { type: "module" }),
 * });
 * await shop.get("yeezy");
 * await shop.call.buy("yeezy");
 * await shop.products.update("yeezy", { add: { stock: -1 }, where: { stock: { gt: 0 } } });
 * ```
 *
 * @param name as for `open`
 * @throws TypeError for a bad name, an unknown option or a wrong value of one. What a platform refuses
 * rejects `ready` and every call.
 */
export function connect<S extends ServedTypes = Nothing>(
  name: string,
  options: ConnectOptions = {},
): ClientOf<S> {
  if (typeof name !== "string" || name === "") {
    throw badArgument("A database name has to be a string that is not empty.", name);
  }
  for (const option in options) {
    if (!KNOWN.includes(option)) {
      throw badArgument(`connect() has no option ${option}. Its options are: ${KNOWN.join(", ")}.`);
    }
  }
  const { worker, timeout = 30_000, version } = options;
  if (worker !== undefined && typeof worker !== "function") {
    throw badArgument("The option worker is a function that makes a worker.", worker);
  }
  checkTimeout("connect()", timeout);
  const make = worker ?? (isBrowser() ? packageWorker : undefined);
  const client = new Client<S>((tell) => new Link(name, { worker: make, timeout, version, tell }));
  // Elsewhere the module may be running for a server, which wants no worker before a call does.
  if (isBrowser()) client.begin();
  return client.withCollections() as ClientOf<S>;
}

/** @throws TypeError unless it is a number of milliseconds that can be waited for */
export function checkTimeout(what: string, timeout: unknown): void {
  if (typeof timeout === "number" && timeout > 0 && timeout <= LONGEST_TIMEOUT) return;
  throw badArgument(
    `The option timeout of ${what} is a number of milliseconds, up to ${LONGEST_TIMEOUT}.`,
    timeout,
  );
}

/** A page, or one of its workers. */
function isBrowser(): boolean {
  const { WorkerGlobalScope } = globalThis as { WorkerGlobalScope?: unknown };
  const { process } = globalThis as { process?: unknown };
  return (
    typeof Worker === "function" &&
    (typeof document !== "undefined" || (WorkerGlobalScope !== undefined && process === undefined))
  );
}

function packageWorker(): WorkerLike {
  return new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
}
