/**
 * Random programs of several handles and clients of one database, whose `live` and `watch` are compared with what reads
 * and past commits show. `VARVE_LIVE_STEPS` is the number of steps, and `VARVE_LIVE_SEED` the first seed.
 */

import {
  type Client,
  connect,
  type Database,
  type KeyChange,
  memory,
  open,
  type Served,
  type Snapshot,
  serve,
} from "varve";
import { json, str, struct, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { random, turn } from "../support/values.js";

const { VARVE_LIVE_STEPS = "1200", VARVE_LIVE_SEED = "1" } = process.env;
const STEPS = Number(VARVE_LIVE_STEPS);

/** How far the clock by which records expire is ahead, in ms. */
let ahead = 0;

/** After so many steps, all lists are compared, and another database begins. */
const STEPS_OF_DATABASE = 60;

const Product = struct("Product", { price: u32, name: str });
const productOptions = { indexes: { byPrice: "price", byName: ["name", "price"] } } as const;
const pairsKey = [str, u32] as const;
const pairsOptions = {
  key: pairsKey,
  indexes: {
    byN: { fields: "n", type: u32 },
    byTag: { fields: "tags", type: u32, multiEntry: true },
  },
} as const;

interface Pair {
  readonly n: number;
  readonly tags?: readonly number[];
}

const collections = {
  products: { of: Product, ...productOptions },
  pairs: { of: json<Pair>(), ...pairsOptions },
} as const;

type Shop = Client & ReturnType<typeof clientOf>;
type Row = readonly [unknown, unknown];

/** What can be followed: of a handle or a client. */
interface Followed {
  live(range: object, listener: (rows: Row[]) => void): { close(): void };
  watch(range: object, listener: (changes: readonly KeyChange<unknown>[]) => void): Disposable;
}

interface Readable {
  entries(range: object): Iterable<Row>;
}

const KINDS = ["raw", "products", "byPrice", "byName", "pairs", "byN", "byTag"] as const;
type Kind = (typeof KINDS)[number];

/** The kinds of ranges that are of the collection of pairs. */
const PAIRS: readonly Kind[] = ["pairs", "byN", "byTag"];

function clientOf(worker: MessagePort) {
  return connect<Served<Record<never, never>, typeof collections>>("shop", {
    worker: () => worker,
    collections,
  });
}

/** The part of a database, a past commit or a client that a kind of range is of. */
function partOf(of: Database | Snapshot | Shop, kind: Kind): unknown {
  if (kind === "raw") return of;
  const local = of as Database;
  const isClient = "status" in of;
  if (PAIRS.includes(kind)) {
    const pairs = isClient
      ? (of as Shop).collection("pairs")
      : local.collection("pairs", collections.pairs.of, pairsOptions);
    return kind === "pairs" ? pairs : (pairs.index as unknown as Record<string, unknown>)[kind];
  }
  const products = isClient
    ? (of as Shop).collection("products")
    : local.collection("products", Product, productOptions);
  return kind === "products" ? products : (products.index as Record<string, unknown>)[kind];
}

/** Rows in a form that can be compared, also after views have ended. */
function shown(rows: Iterable<Row>): string {
  return JSON.stringify(
    Array.from(rows, ([key, value]) => {
      const view = value as { snapshot?: () => unknown };
      const copy = typeof view.snapshot === "function" ? view.snapshot() : value;
      return [key, copy instanceof Uint8Array ? [...copy] : copy];
    }),
  );
}

/** A range that is followed, and what its listeners were given. */
interface Follower {
  readonly name: string;
  readonly kind: Kind;
  readonly range: object;
  readonly isLocal: boolean;
  /** The number of the last commit when it began. */
  readonly since: number;
  readonly results: string[];
  /** The versions when it began, by key, if it is known. */
  readonly before: ReadonlyMap<string, number> | undefined;
  /** The versions that were reported, by key. */
  readonly reported: Map<string, number>;
  isOpen: boolean;
  close(): void;
}

class Program {
  readonly next: (below: number) => number;
  readonly seed: number;
  private readonly handles: readonly Database[];
  private readonly clients: readonly Shop[];
  private readonly keepsHistory: boolean;
  private readonly ports: readonly MessagePort[];
  private readonly followers: Follower[] = [];
  private readonly waiting: Promise<unknown>[] = [];

  private constructor(
    seed: number,
    next: (below: number) => number,
    keepsHistory: boolean,
    handles: readonly Database[],
    clients: readonly Shop[],
    ports: readonly MessagePort[],
  ) {
    this.seed = seed;
    this.next = next;
    this.keepsHistory = keepsHistory;
    this.handles = handles;
    this.clients = clients;
    this.ports = ports;
  }

  static async begin(seed: number): Promise<Program> {
    const next = random(seed);
    const history = next(2) === 0 ? ("keep" as const) : undefined;
    const durability = (["written", "buffered"] as const)[next(2)];
    const options = { storage: memory(), ...wasmOption(), history, durability };
    const channels = [new MessageChannel(), new MessageChannel()];
    const served = serve("shop", { ...options, collections });
    for (const { port1 } of channels) served.listen(port1);
    const clients = channels.map(({ port2 }) => clientOf(port2) as unknown as Shop);
    await Promise.all(clients.map((client) => client.ready));
    const handles = [await open("shop", options), await open("shop", options)];
    // Both collections are there from the beginning.
    productsOf(handles[0] as Database).set("0", { price: 0, name: "n0" });
    pairsOf(handles[0] as Database).set(["0", 0], { n: 0 });
    const ports = channels.flatMap(({ port1, port2 }) => [port1, port2]);
    const keepsHistory = history !== undefined;
    return new Program(seed, next, keepsHistory, handles, clients, ports);
  }

  async end(): Promise<void> {
    for (const client of this.clients) await client.close();
    for (const port of this.ports) port.close();
    for (const db of this.handles) await db.close();
  }

  private get db(): Database {
    return this.handles[this.next(2)] as Database;
  }

  private get client(): Shop {
    return this.clients[this.next(2)] as Shop;
  }

  private range(kind: Kind): object {
    const { next } = this;
    const key = () => `${next(9)}`;
    const conditions: Record<Kind, (() => object)[]> = {
      raw: [() => ({ gte: key() }), () => ({ gt: key(), lt: "8" }), () => ({ prefix: key() })],
      products: [() => ({ gte: key() }), () => ({ lte: key() }), () => ({ gte: "3", lte: "3" })],
      byPrice: [() => ({ gte: next(9) }), () => ({ eq: next(9) }), () => ({ gt: 2, lt: 7 })],
      byName: [() => ({ prefix: [`n${next(4)}`] }), () => ({ gte: [`n${next(4)}`, 0] })],
      byN: [() => ({ gte: next(100) }), () => ({ lt: next(100) })],
      byTag: [() => ({ gte: next(5) }), () => ({ eq: next(5) }), () => ({ gt: 0, lt: 3 })],
      pairs: [() => ({ prefix: [key()] }), () => ({ gt: [key()] }), () => ({ lt: [key(), 2] })],
    };
    const all = conditions[kind];
    const condition = next(3) === 0 ? {} : (all[next(all.length)] as () => object)();
    const limit = next(2) === 0 ? {} : { limit: [0, 1, 2, 3, 5, 100][next(6)] };
    return { ...condition, ...limit, ...(next(2) === 0 ? {} : { reverse: true }) };
  }

  private follow(): void {
    const { next } = this;
    // What the turn has written is committed first, so that each list is of a commit.
    (this.handles[0] as Database).commit();
    const isLocal = next(2) === 0;
    const kind = KINDS[next(KINDS.length)] as Kind;
    const range = this.range(kind);
    const of = partOf(isLocal ? this.db : this.client, kind) as Followed;
    const results: string[] = [];
    const reported = new Map<string, number>();
    const before = isLocal ? this.versions(kind, range) : undefined;
    const live = of.live(range, (rows) => results.push(shown(rows)));
    const watch = of.watch(range, (changes) => {
      for (const { key, version } of changes) reported.set(JSON.stringify(key), version);
    });
    const close = () => {
      live.close();
      watch[Symbol.dispose]();
      one.isOpen = false;
    };
    const name = `seed ${this.seed}, ${isLocal ? "a handle" : "a client"}, ${kind} ${JSON.stringify(range)}`;
    const since = (this.handles[0] as Database).lastCommit;
    const one = {
      name,
      kind,
      range,
      isLocal,
      since,
      results,
      before,
      reported,
      isOpen: true,
      close,
    };
    this.followers.push(one);
  }

  /** The versions of the records in a range now, by key. */
  private versions(kind: Kind, range: object): Map<string, number> {
    const db = this.handles[0] as Database;
    const isOfProducts = kind === "byPrice" || kind === "byName";
    const isOfPairs = PAIRS.includes(kind);
    const records = partOf(db, isOfProducts ? "products" : isOfPairs ? "pairs" : kind);
    const keys = Array.from((partOf(db, kind) as Readable).entries(range), ([key]) => key);
    return new Map(
      keys.map((key) => {
        const entry = (records as Database).getEntry(key as string);
        return [JSON.stringify(key), entry?.version ?? 0];
      }),
    );
  }

  /** The options of a write. A past commit shows records that have expired since, so they do not where it is compared. */
  private get expiry(): { expireIn?: number } {
    if (this.keepsHistory || this.next(3) > 0) return {};
    return { expireIn: 1_000 * (1 + this.next(20)) };
  }

  private pair(): Pair {
    const { next } = this;
    const n = next(100);
    return next(4) === 0 ? { n } : { n, tags: Array.from({ length: next(4) }, () => next(5)) };
  }

  private writeLocally(): void {
    const { next, db } = this;
    const products = partOf(db, "products") as ReturnType<typeof productsOf>;
    const pairs = partOf(db, "pairs") as ReturnType<typeof pairsOf>;
    const key = `${next(9)}`;
    const product = () => ({ price: next(9), name: `n${next(4)}` });
    const kind = next(18);
    if (kind < 3) db.set(key, `${next(100)}`, this.expiry);
    else if (kind < 4) db.delete(key);
    else if (kind < 7) products.set(key, product(), this.expiry);
    else if (kind < 8) products.delete(key);
    else if (kind < 10)
      products.updateIf(key, (view) => {
        if (next(2) === 0) view.price = next(9);
        else view.name = `n${next(4)}`;
      });
    else if (kind < 11) pairs.set([key, next(3)], this.pair());
    else if (kind < 12) pairs.delete([key, next(3)]);
    else if (kind < 13) products.clear(next(3) === 0 ? undefined : { gte: key, limit: 3 });
    else if (kind < 14) db.clear(next(3) === 0 ? undefined : { gt: key });
    else if (kind < 15)
      products.batch([0, 1, 2].map((i) => ({ type: "set", key: `${i}${key}`, value: product() })));
    else if (kind < 16)
      db.batch([
        { type: "set", key, value: "batch" },
        { type: "delete", key: `${next(9)}` },
      ]);
    else if (kind < 17) pairs.clear({ prefix: [key] });
    else
      db.updateIf(key, (bytes) => {
        bytes[0] = 48 + next(10);
      });
  }

  private writeByClient(): void {
    const { client, next } = this;
    const key = `${next(9)}`;
    const product = { price: next(9), name: `n${next(4)}` };
    const products = client.collection("products");
    const pairs = client.collection("pairs");
    const kind = next(10);
    const done =
      kind < 2
        ? client.set(key, `${next(100)}`, this.expiry)
        : kind < 3
          ? client.delete(key)
          : kind < 5
            ? products.set(key, product, this.expiry)
            : kind < 6
              ? products.delete(key)
              : kind < 7
                ? pairs.set([key, next(3)], this.pair())
                : kind < 8
                  ? client.clear({ gte: key, limit: 2 })
                  : kind < 9
                    ? products.update(key, { set: { price: next(9) } })
                    : client.transaction(async (tx) => {
                        const found = await tx.getText(key);
                        tx.set("9", `${found}`);
                        tx.collection("products").set("9", product);
                      });
    this.waiting.push(done);
  }

  async step(): Promise<void> {
    const { db, next } = this;
    const count = 1 + next(4);
    if (next(5) === 0) ahead += 1_000 * next(15);
    const kind = next(12);
    if (kind < 6) for (let i = 0; i < count; i += 1) this.writeLocally();
    else if (kind < 8) {
      const fails = next(3) === 0;
      try {
        db.transaction(() => {
          for (let i = 0; i < count; i += 1) this.writeLocally();
          if (fails) throw new Error("undone");
        });
      } catch (error) {
        expect((error as Error).message).toBe("undone");
      }
    } else if (kind < 11) for (let i = 0; i < count; i += 1) this.writeByClient();
    else if (this.followers.length > 0) this.followers[next(this.followers.length)]?.close();
    if (next(3) === 0) this.follow();
    if (next(3) > 0) await (next(2) === 0 ? turn(next(3)) : db.committed);
    if (next(6) === 0) await Promise.all(this.waiting.splice(0));
  }

  /** Waits until each list shows what reads show, and compares all that came before with past commits. */
  async check(): Promise<void> {
    await Promise.all(this.waiting.splice(0));
    await (this.handles[0] as Database).committed;
    for (const client of this.clients) await client.count();
    const db = this.handles[0] as Database;
    const open = this.followers.filter(({ isOpen }) => isOpen);
    const now = ({ kind, range }: Follower) => shown((partOf(db, kind) as Readable).entries(range));
    const areShown = () => open.every((one) => one.results.at(-1) === now(one));
    for (let i = 0; i < 300 && !areShown(); i += 1) await turn(10);
    for (const one of open) {
      assert(
        one.results.at(-1) === now(one),
        `${one.name}: ${one.results.at(-1)}, not ${now(one)}`,
      );
      this.checkReported(one);
    }
    if (this.keepsHistory) this.checkMoments(db);
  }

  private checkReported({ before, kind, name, range, reported }: Follower): void {
    const versions = this.versions(kind, range);
    for (const [key, version] of reported) {
      assert((versions.get(key) ?? 0) === version, `${name}: ${key} was reported as ${version}`);
    }
    if (before === undefined) return;
    for (const key of new Set([...before.keys(), ...versions.keys()])) {
      if ((before.get(key) ?? 0) === (versions.get(key) ?? 0)) continue;
      assert(reported.has(key), `${name}: ${key} was not reported`);
    }
  }

  /** Each list is of one commit, and none is older than the one before. */
  private checkMoments(db: Database): void {
    const numbers = Array.from(db.log(), ({ number }) => number);
    const states = new Map(this.followers.map((one) => [one, [] as string[]]));
    for (const number of [0, ...numbers]) {
      using past = db.at(number);
      for (const [{ kind, range, since }, all] of states) {
        const isBefore = numbers.some((other) => other > number && other <= since);
        if (isBefore) continue;
        const state = shown((partOf(past, kind) as Readable).entries(range));
        if (all.at(-1) !== state) all.push(state);
      }
    }
    for (const [{ isLocal, name, results }, all] of states) {
      let at = 0;
      // The first list of a client may have writes that were not committed yet.
      for (const result of isLocal ? results : results.slice(1)) {
        at = all.indexOf(result, at);
        assert(at >= 0, `${name}: no commit shows ${result}`);
      }
    }
  }
}

function productsOf(db: Database) {
  return db.collection("products", Product, productOptions);
}

function pairsOf(db: Database) {
  return db.collection("pairs", collections.pairs.of, pairsOptions);
}

describe("live programs", () => {
  test("live: lists of handles and clients are each of one commit, and end as reads show them", async () => {
    const { now } = Date;
    Date.now = () => now.call(Date) + ahead;
    onTestFinished(() => {
      Date.now = now;
    });
    let steps = 0;
    for (let seed = Number(VARVE_LIVE_SEED); steps < STEPS; seed += 1) {
      const program = await Program.begin(seed);
      onTestFinished(() => program.end());
      for (let i = 0; i < STEPS_OF_DATABASE; i += 1) await program.step();
      await program.check();
      await program.end();
      steps += STEPS_OF_DATABASE;
    }
    if (STEPS > 1_200) console.info(`${steps} steps`);
  });
});
