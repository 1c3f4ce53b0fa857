/** `serve`: the function with which a worker's file serves a database. */

import {
  declaredIndexes,
  IndexSpace,
  type IndexSpec,
  type KnownIndex,
  type Refused,
} from "../../collection/indexes.js";
import { keyKindOf } from "../../collection/keys.js";
import type { Synchronous } from "../../database/database.js";
import { badArgument, describe } from "../../errors/index.js";
import { checkOptions, type OpenOptions, refuseUnknown } from "../../session/options.js";
import { fileName } from "../../storage/file-names.js";
import { hasOpfs, opfs } from "../../storage/opfs.js";
import type { CustomCodec, Declared } from "../../struct/codec.js";
import { codecOf } from "../../struct/value-codecs.js";
import { carryPorts } from "../connection/port-relay.js";
import type { FromWorker, ToWorker } from "../connection/worker-messages.js";
import { toWire } from "../protocol/errors.js";
import { buffersOf } from "../protocol/packed-rows.js";
import { checkProtocol } from "./app-version.js";
import type { CollectionSpec, CollectionSpecs } from "./collection-handlers.js";
import { EAGER_MODULES } from "./eager-imports.js";
import type { Procedures } from "./handlers.js";
import type { HostOptions, Migrate } from "./owner.js";
import { OwnerCandidate } from "./owner-candidate.js";

/** Refuses procedures that return promises or generators, because they cannot be transactions. */
type Immediate<P extends Procedures> = {
  readonly [Name in keyof P]: ReturnType<P[Name]> extends Synchronous<ReturnType<P[Name]>>
    ? unknown
    : Refused<"A procedure is one transaction, so its function must not be async or a generator.">;
};

/** Refuses collections that `db.collection` would refuse: for unknown options, and for impossible indexes. */
type Declarable<C> = {
  readonly [Name in keyof C]: C[Name] extends { readonly of: infer Of }
    ? {
        readonly [Option in keyof C[Name]]: Option extends "of" | "key" | "expireIn"
          ? unknown
          : Option extends "indexes"
            ? Indexable<Of, C[Name][Option]>
            : Refused<"A collection has no option of this name, only: of, key, indexes, expireIn.">;
      }
    : unknown;
};

type Indexable<Of, Specs> =
  Of extends Declared<infer View, infer _W, infer _I>
    ? {
        readonly [Name in keyof Specs]: View extends { snapshot(): object }
          ? IndexSpec<View> & KnownIndex<Specs[Name]>
          : Specs[Name] extends { readonly fields: unknown; readonly type: unknown }
            ? IndexSpec<View> & KnownIndex<Specs[Name]>
            : Refused<"An index of values without a schema needs the options fields and type.">;
      }
    : Refused<"A codec of two functions has no fields that can be indexed.">;

/** For each procedure, a function of its arguments that says why it writes. */
export type ProcedureNotes<P extends Procedures> = {
  readonly [Name in keyof P]?:
    | (P[Name] extends (db: never, ...args: infer A) => unknown ? (...args: A) => string : never)
    | undefined;
};

/** The options of `serve`: those of `open`, and the procedures and collections for clients. */
export interface ServeOptions<
  P extends Procedures = Procedures,
  C extends CollectionSpecs = CollectionSpecs,
> extends Omit<OpenOptions, "signal" | "onProgress" | "from"> {
  /**
   * Functions that clients call by name, as `client.call.name(...)`. Each call is one transaction: the
   * function is synchronous, a throw undoes its writes, and its result is sent to the client as a copy. If one
   * keeps the worker from answering for 6 seconds while a client waits, the worker is ended. The next worker
   * tries the call once more; then it rejects with `OwnerUnavailableError`.
   */
  procedures?: (P & Procedures & Immediate<P>) | undefined;
  /**
   * The notes of procedures, by their names: functions of the same arguments without the database, which return why the
   * procedure writes. The log keeps the note with the time and the number of the client, as for `transaction`. A call of
   * such a procedure is a commit of its own. A function that throws or returns no text refuses the call.
   *
   * ```ts
   * { procedures: { buy(db, id: string) { … } }, notes: { buy: (id) => `${id} was bought` } }
   * ```
   */
  notes?: ProcedureNotes<P> | undefined;
  /**
   * Collections that clients have as `client.collection("name")`: the schema or codec of each or, with the options of
   * `db.collection`, an object `{ of: Product, key: u32, indexes: { … } }`.
   */
  collections?: (C & Declarable<C>) | undefined;
  /**
   * The application's version, a whole number, 0 by default. Raise it with every build that stores something
   * else or has other procedures. After a deployment, tabs of several builds may be open. The newest has the
   * database; calls of the others reject with `VersionChangedError`, and their clients get the event
   * `"outdated"`. A database that a newer version has had is not opened by an earlier one.
   */
  version?: number | undefined;
  /**
   * Converts what an earlier version has stored to what this one needs, before any client is answered. `from`
   * is that version. If it throws or rejects, opening fails, and it runs again next time; `db.migrate` goes
   * on where it stopped. Pass the third argument on to `db.migrate`: it reports the progress to clients in
   * `status.progress`, and ends the migration if the worker has to release the database.
   *
   * ```ts
   * migrate: async (db, from, migrating) => {
   *   if (from < 2) await db.migrate("products", Product, { migrate: (old) => ({ … }), ...migrating });
   * }
   * ```
   */
  migrate?: Migrate | undefined;
}

/** The part of a `MessageEvent` that is used. */
interface Message {
  readonly data: unknown;
  readonly ports: readonly MessagePort[];
}

/** Anything with the message interface of a worker or a `MessagePort`. */
export interface ServedPort {
  postMessage(message: unknown, transfer: ArrayBuffer[]): void;
  addEventListener(type: "message", listener: (event: Message) => void): void;
  start?(): void;
}

/** A served database: the type of a worker's default export, for `connect<typeof …>`. */
export interface Served<
  P extends Procedures = Procedures,
  C extends CollectionSpecs = CollectionSpecs,
> {
  /** The name of the database. */
  readonly name: string;
  /** @internal Only its type is used. */
  readonly procedures: P;
  /** @internal Only its type is used. */
  readonly collections: C;
  /** Also answers on a port, in realms that are not workers: threads of Node, tests. */
  listen(port: ServedPort): void;
  /**
   * Makes a port to the database in this realm: the option `worker` of `connect` where there are no workers.
   * In a service worker, whichever page is open answers. While there is none, the file is read, again each
   * time it has changed, and writes reject with `OwnerUnavailableError`.
   *
   * ```ts
   * const shop = connect<typeof db>("shop", { worker: db.here });
   * ```
   */
  readonly here: () => MessagePort;
}

/**
 * Serves a database to the clients that `connect` makes. The file of a worker exports it:
 *
 * ```ts
 * // db.ts
 * export default serve("shop", {
 *   collections: { products: Product },
 *   procedures: { buy(db, id: string) { … } },
 * });
 * ```
 *
 * In a dedicated worker it answers at once. Where there are several tabs, the file also runs once as a shared
 * worker, which connects them and opens nothing. Anywhere else it does nothing, so the file may be imported
 * for its types. The database is not opened before a client needs it.
 *
 * @throws TypeError for a bad name, an unknown option or a bad value of one
 */
export function serve<
  P extends Procedures = Record<never, never>,
  const C extends CollectionSpecs = Record<never, never>,
>(name: string, options: ServeOptions<P, C> = {}): Served<P, C> {
  if (typeof name !== "string") throw badArgument("A database name must be a string.", name);
  refuseUnknown("serve()", options, KNOWN);
  const {
    procedures = {} as P,
    notes = {},
    collections = {} as C,
    version,
    migrate,
    ...opening
  } = options;
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 0)) {
    throw badArgument("The option version of serve() must be an integer, 0 or more.", version);
  }
  if (migrate !== undefined && typeof migrate !== "function") {
    throw badArgument("The option migrate of serve() must be a function.", migrate);
  }
  checkOptions(opening);
  // A storage of the program's own checks names itself.
  if (opening.storage === undefined) fileName(name, (folder) => `file(${JSON.stringify(folder)})`);
  checkProcedures(procedures);
  checkNotes(notes, procedures);
  checkCollections(collections);
  const worker = dedicatedWorker();
  // At once: the platform works on it while the rest of this worker's start is done.
  const storage = worker && (opening.storage ?? (hasOpfs() ? opfs() : undefined));
  const lookup = storage?.lookUp?.(name);
  const served: Served<P, C> = {
    name,
    procedures,
    collections,
    listen(port) {
      const hostOptions: HostOptions = {
        options: opening,
        procedures,
        notes,
        collections,
        version,
        migrate,
        eagerModules: EAGER_MODULES,
        storage,
        lookup,
      };
      listen(port, (requestedName, pageVersion, postToPage) => {
        if (requestedName !== name) throw otherName(name, requestedName);
        return new OwnerCandidate(
          name,
          hostOptions,
          pageVersion,
          postToPage,
          port === dedicatedWorker(),
        );
      });
    },
    here() {
      const { port1, port2 } = new MessageChannel();
      served.listen(port1);
      return port2;
    },
  };
  if (worker !== undefined) served.listen(worker);
  carryPorts();
  return served;
}

/** Refuses at once a procedure that would fail when a client calls it. */
function checkProcedures(procedures: unknown): void {
  for (const [name, procedure] of entriesOf("procedures", procedures)) {
    if (typeof procedure !== "function") {
      throw badArgument(
        `The procedure ${describe(name)} of serve() must be a function.`,
        procedure,
      );
    }
    const tag = (procedure as { [Symbol.toStringTag]?: string })[Symbol.toStringTag] ?? "";
    if (!/Async|Generator/.test(tag)) continue;
    throw badArgument(
      `The procedure ${describe(name)} of serve() must not be async or a generator: each call is one ` +
        "transaction. Fetch what it needs before, and give it as an argument.",
    );
  }
}

function checkNotes(notes: unknown, procedures: object): void {
  for (const [name, note] of entriesOf("notes", notes)) {
    if (typeof note === "function" && Object.hasOwn(procedures, name)) continue;
    if (note === undefined) continue;
    throw badArgument(
      `The note ${describe(name)} of serve() must be a function, for a procedure of that name.`,
      note,
    );
  }
}

/** Refuses collections that `db.collection` would refuse. */
function checkCollections(collections: unknown): void {
  for (const [name, spec] of entriesOf("collections", collections)) {
    const what = `The collection ${describe(name)} of serve()`;
    const isSpec = typeof spec === "object" && spec !== null && ("of" in spec || "key" in spec);
    const given = (isSpec ? spec : { of: spec }) as CollectionSpec;
    refuseUnknown(what, given, ["of", "key", "indexes", "expireIn"]);
    try {
      const { kind } = codecOf(given.of as CustomCodec<unknown>);
      keyKindOf(given.key);
      const indexes = declaredIndexes(given.indexes);
      for (const index of indexes) new IndexSpace(name, index.name, index.shape, kind, 0);
    } catch (cause) {
      throw Object.assign(badArgument(`${what}: ${(cause as Error).message}`), { cause });
    }
  }
}

function entriesOf(option: string, given: unknown): [string, unknown][] {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw badArgument(`The option ${option} of serve() must be an object, by name.`, given);
  }
  return Object.entries(given);
}

/** Serves any database that a client names: the package's own worker. */
export function serveAny(): void {
  carryPorts();
  const worker = dedicatedWorker();
  if (worker === undefined) return;
  const hostOptions: HostOptions = {
    options: {},
    procedures: {},
    notes: {},
    collections: {},
    version: undefined,
    migrate: undefined,
    eagerModules: EAGER_MODULES,
  };
  listen(
    worker,
    (name, version, postToPage) => new OwnerCandidate(name, hostOptions, version, postToPage, true),
  );
}

const KNOWN = [
  "storage",
  "durability",
  "memory",
  "spaceFactor",
  "history",
  "ordered",
  "strictViews",
  "onError",
  "wasm",
  "readOnly",
  "recovery",
  "procedures",
  "notes",
  "collections",
  "version",
  "migrate",
];

function dedicatedWorker(): ServedPort | undefined {
  const { DedicatedWorkerGlobalScope: Scope } = globalThis as {
    DedicatedWorkerGlobalScope?: new () => ServedPort;
  };
  if (Scope === undefined || !(globalThis instanceof Scope)) return undefined;
  return globalThis as unknown as ServedPort;
}

function listen(
  port: ServedPort,
  candidateOf: (
    name: string,
    version: number | undefined,
    post: (message: FromWorker) => void,
  ) => OwnerCandidate,
): void {
  let candidate: OwnerCandidate | undefined;
  const post = (message: FromWorker) => port.postMessage(message, buffersOf(message));
  port.addEventListener("message", (event) => {
    const message = event.data as ToWorker;
    if (message.type === "init") {
      try {
        checkProtocol(message.name, message.protocol);
        candidate ??= candidateOf(message.name, message.version, post);
        candidate.checkPageVersion(message.version);
        candidate.campaign();
      } catch (error) {
        post({ type: "failed", error: toWire(error) });
      }
    } else if (message.type === "release") {
      const released = () => post({ type: "released" });
      if (candidate === undefined) released();
      else candidate.release().then(released, released);
    } else if (message.type === "attach-port") {
      const [visitor] = event.ports;
      if (visitor !== undefined) candidate?.attachPort(visitor);
    } else {
      candidate?.receive(message, post);
    }
  });
  port.start?.();
}

function otherName(name: string, requestedName: string): Error {
  return badArgument(
    `The worker serves the database "${name}", but connect() asks for "${requestedName}". ` +
      "Give both the same name.",
  );
}
