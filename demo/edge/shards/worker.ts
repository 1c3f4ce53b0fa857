/**
 * Keys spread over 64 Durable Objects, each with a database of its own. The Worker sends a request for a key to
 * its object, and merges ranges and change feeds of all objects.
 *
 * What one object does is atomic. What several do, such as a range, a page of changes or a purchase that finds an object
 * sold out, is not.
 */

import {
  CursorExpiredError,
  type DurableObjectStorageLike,
  durableObject,
  open,
  VarveError,
} from "varve";
import { struct, text, u32 } from "varve/struct";
import {
  type Bucket,
  type Change,
  cursorText,
  type Entry,
  MANIFEST,
  type Manifest,
  mergedRange,
  type Page,
  parsedCursor,
  SHARDS,
  shardOf,
} from "./layout.js";

/** The units of the product in this shard, and in all shards when the sale began. */
const Stock = struct("Stock", { left: u32, total: u32 });

interface Env {
  readonly SHARDS: {
    idFromName(name: string): unknown;
    get(id: unknown): { fetch(request: Request): Promise<Response> };
  };
  readonly BUCKET: Bucket;
}

/** An answer of an object or of the Worker that is no success. */
class Refusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

type Shop = Awaited<ReturnType<typeof opened>>;

async function opened(storage: DurableObjectStorageLike) {
  const db = await open("shard", { storage: durableObject(storage) });
  return {
    db,
    items: db.collection("items", text()),
    orders: db.collection("orders", text()),
    stock: db.collection("stock", Stock),
  };
}

/** The calls of an object. Those that write are synchronous, so that each is one commit. */
const CALLS = {
  get: ({ items }: Shop, { key }: { key: string }) => items.get(key) ?? null,
  set({ items }: Shop, { key, value }: { key: string; value: string }) {
    items.set(key, value);
    return true;
  },
  delete: ({ items }: Shop, { key }: { key: string }) => items.delete(key),

  range(shop: Shop, { of, limit, ...range }: RangeQuery & { limit: number }): Page {
    const entries: Entry[] = [...shop[of].entries({ ...range, limit: limit + 1 })];
    return { entries: entries.slice(0, limit), more: entries.length > limit };
  },

  /** Adds this shard's part of the stock, once. */
  stock({ stock }: Shop, { units, total }: { units: number; total: number }) {
    const before = stock.get("product");
    if (before === undefined) stock.set("product", { left: units, total });
    else if (before.total !== total) {
      throw new Refusal(409, `The stock is ${before.total} already, and is set only once.`);
    }
    return true;
  },
  left: ({ stock }: Shop) => stock.get("product")?.left ?? 0,

  /** Sells one unit to this buyer. A repeated call gives the same answer and sells none. */
  buy({ db, orders, stock }: Shop, { buyer }: { buyer: string }): boolean {
    if (orders.has(buyer)) return true;
    // Otherwise this object would count as sold out, and a repeated request could find its stock later.
    if (!stock.has("product")) throw new Refusal(409, "There is no stock yet: POST /stock first.");
    return db.transaction(() => {
      const isSold = stock.updateIf(
        "product",
        (product) => {
          product.left -= 1;
        },
        { predicate: (product) => product.left > 0 },
      );
      if (isSold) orders.set(buyer, new Date().toISOString());
      return isSold;
    });
  },

  /**
   * What changed since a cursor, in the order of the changes: each key once, as it is now. A `follower` has handled
   * all that is before its cursor, and this object keeps what comes after.
   */
  changes(shop: Shop, { since, limit, follower }: ChangesQuery) {
    try {
      if (follower !== undefined) mark(shop, follower, since);
      let found: { change: Change & { key: string }; version: number }[] = [];
      let more = false;
      const keepFirst = () => {
        more ||= found.length > limit;
        found = found.sort((a, b) => a.version - b.version).slice(0, limit);
      };
      for (const { type, collection, key, version } of shop.db.changes({ since })) {
        // No call here clears a collection, and what is left of the stock is not in the feed.
        if (type === "clear" || (collection !== "items" && collection !== "orders")) continue;
        found.push({ change: { type, collection, key: String(key) }, version });
        // However much changed, only a page is in memory.
        if (found.length > 2 * limit) keepFirst();
      }
      keepFirst();
      return {
        changes: found.map(({ change }) => withValue(shop, change)),
        cursor: found.at(-1)?.version ?? since,
        more,
      };
    } catch (error) {
      if (!(error instanceof CursorExpiredError)) throw error;
      const cursor = shop.db.lastCommit;
      if (follower !== undefined) mark(shop, follower, cursor);
      // In one answer. A large object would give its content in pages, as it gives a range.
      const changes: Change[] = [{ type: "reset" }];
      for (const collection of ["items", "orders"] as const) {
        for (const [key, value] of shop[collection].entries()) {
          changes.push({ type: "set", collection, key, value });
        }
      }
      return { changes, cursor, more: false };
    }
  },
  /** As `changes`, but if there are none yet, it waits for a commit for up to 20 seconds. */
  async next(shop: Shop, query: ChangesQuery) {
    const page = CALLS.changes(shop, query);
    if (page.changes.length > 0) return page;
    await nextCommit(shop);
    return CALLS.changes(shop, query);
  },
  unfollow({ db }: Shop, { follower }: { follower: string }) {
    db.retain(follower, undefined);
    return true;
  },

  /** Stores an export of this shard as one object of the bucket. */
  async publish({ db }: Shop, { key }: { key: string }, { BUCKET }: Env) {
    // Taken before the export, so that nothing is between the two: following may repeat a change, not miss one.
    const cursor = db.lastCommit;
    const bytes = await new Response(db.export()).arrayBuffer();
    await stored(BUCKET, key, bytes);
    return cursor;
  },
};

interface RangeQuery {
  readonly of: "items" | "orders";
  readonly prefix?: string;
  readonly gt?: string;
}

interface ChangesQuery {
  readonly since: number;
  readonly limit: number;
  readonly follower?: string | undefined;
}

/** Moves the mark of a follower. Only if it moves, because that is a write. */
function mark({ db }: Shop, name: string, cursor: number): void {
  const before = db.stats().retained.find((one) => one.name === name);
  if (before?.cursor !== cursor) db.retain(name, cursor);
}

/** A change with the present value of its key. */
function withValue(shop: Shop, change: Change & { key: string }): Change {
  if (change.type !== "set") return change;
  return { ...change, value: shop[change.collection].get(change.key) as string };
}

async function nextCommit({ db }: Shop): Promise<void> {
  const signal = AbortSignal.timeout(20_000);
  try {
    for await (const _ of db.follow({ since: db.lastCommit, signal })) return;
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

async function stored(bucket: Bucket, key: string, value: ArrayBuffer | string): Promise<void> {
  try {
    await bucket.put(key, value);
  } catch (error) {
    throw new Refusal(503, `The bucket did not take ${key}: ${error} Send the request again.`);
  }
}

type Calls = typeof CALLS;

interface State {
  readonly storage: DurableObjectStorageLike;
  /** Ends the object. The next request starts it again. */
  abort(reason: string): void;
}

export class Shard {
  readonly #state: State;
  readonly #env: Env;
  readonly #shop: Promise<Shop>;

  constructor(state: State, env: Env) {
    this.#state = state;
    this.#env = env;
    this.#shop = opened(state.storage);
  }

  /** The runtime holds the answer back until what was written before it is stored. */
  async fetch(request: Request): Promise<Response> {
    const name = new URL(request.url).pathname.slice(1);
    try {
      // For this example only, so that single objects can be ended while they sell.
      if (name === "abort") this.#state.abort("Ended on request.");
      const call = CALLS[name as keyof Calls] as (shop: Shop, given: unknown, env: Env) => unknown;
      return Response.json(await call(await this.#shop, await request.json(), this.#env));
    } catch (error) {
      const status = error instanceof Refusal ? error.status : STATUS[codeOf(error)];
      // After other errors of the database it may have to be opened again, as the object does when it starts.
      if (status === undefined && error instanceof VarveError) this.#state.abort(String(error));
      return new Response((error as Error).message, { status: status ?? 500 });
    }
  }
}

/** The statuses of errors that leave an object able to go on, by their codes. Their messages say what to do. */
const STATUS: Record<string, number> = {
  VARVE_BAD_ARGUMENT: 400,
  VARVE_QUOTA_EXCEEDED: 507,
};

function codeOf(error: unknown): string {
  return String((error as { code?: unknown }).code);
}

/** Calls an object. */
async function ask<Name extends keyof Calls>(
  { SHARDS: objects }: Env,
  shard: number,
  name: Name,
  given: Parameters<Calls[Name]>[1] | Record<string, never>,
): Promise<Awaited<ReturnType<Calls[Name]>>> {
  const response = await called(objects, shard, name, JSON.stringify(given));
  if (!response.ok) throw new Refusal(response.status, await response.text());
  return (await response.json()) as Awaited<ReturnType<Calls[Name]>>;
}

async function called(objects: Env["SHARDS"], shard: number, name: string, body: string) {
  const object = objects.get(objects.idFromName(`shard-${shard}`));
  try {
    return await object.fetch(new Request(`http://shard/${name}`, { method: "POST", body }));
  } catch (error) {
    throw new Refusal(503, `Shard ${shard} ended: ${error} Send the request again.`);
  }
}

function ofEach<T>(work: (shard: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: SHARDS }, (_, shard) => work(shard)));
}

async function range(env: Env, of: "items" | "orders", query: URLSearchParams) {
  const [prefix, start] = [query.get("prefix"), query.get("after")];
  const merged = await mergedRange(limitOf(query, 100), (shard, after, limit) => {
    const gt = after ?? start;
    return ask(env, shard, "range", {
      of,
      limit,
      ...(prefix === null ? {} : { prefix }),
      ...(gt === null ? {} : { gt }),
    });
  });
  const after = merged.more ? { after: merged.entries.at(-1)?.[0] } : {};
  return { entries: merged.entries, ...after };
}

function limitOf(query: URLSearchParams, otherwise: number): number {
  const limit = Number(query.get("limit") ?? otherwise);
  if (Number.isInteger(limit) && limit >= 1 && limit <= 10_000) return limit;
  throw new Refusal(400, "limit must be a whole number from 1 to 10,000.");
}

/** The changes of all shards since a cursor, those of each shard in their order, and the cursor to go on from. */
async function changes(env: Env, query: URLSearchParams) {
  const since = cursorsIn(query);
  const follower = query.get("follower") ?? undefined;
  const limit = Math.ceil(limitOf(query, 1_000) / SHARDS);
  const pages = await ofEach((shard) =>
    ask(env, shard, "changes", { since: since[shard] as number, limit, follower }),
  );
  return {
    changes: pages.flatMap((page, shard) => page.changes.map((change) => ({ shard, ...change }))),
    cursor: cursorText(pages.map((page) => page.cursor)),
    more: pages.some((page) => page.more),
  };
}

/**
 * The changes of all shards as they are made: lines of JSON, each with the cursor behind it. It ends when an object
 * does, or when this Worker has made as many requests as it may; the client begins again with its last cursor.
 */
function follow(env: Env, query: URLSearchParams): Response {
  const cursors = cursorsIn(query);
  const follower = query.get("follower") ?? undefined;
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  const followed = async (shard: number) => {
    for (;;) {
      const since = cursors[shard] as number;
      const page = await ask(env, shard, "next", { since, limit: 100, follower });
      if (page.changes.length === 0) continue;
      // Lines are sent in the order of these calls, so a cursor covers only what was sent before.
      cursors[shard] = page.cursor;
      const changes = page.changes.map((change) => ({ shard, ...change }));
      const line = JSON.stringify({ changes, cursor: cursorText(cursors) });
      await writer.write(new TextEncoder().encode(`${line}\n`));
    }
  };
  ofEach(followed).catch((error) => writer.abort(error).catch(() => {}));
  return new Response(readable, { headers: { "content-type": "application/x-ndjson" } });
}

function cursorsIn(query: URLSearchParams): number[] {
  const cursors = parsedCursor(query.get("cursor") ?? "");
  if (cursors !== undefined) return cursors;
  throw new Refusal(400, "cursor must be one that /changes or /publish gave, or be left out.");
}

/** Divides the stock. Each shard takes its part once, so that a repeated request adds nothing. */
async function fill(env: Env, body: string): Promise<unknown> {
  const total = Number(body);
  if (!Number.isInteger(total) || total < 0 || total > 0xffff_ffff) {
    throw new Refusal(400, "The stock must be a whole number from 0 to 4,294,967,295.");
  }
  await ofEach((shard) => {
    const units = Math.floor(total / SHARDS) + (shard < total % SHARDS ? 1 : 0);
    return ask(env, shard, "stock", { units, total });
  });
  return { total };
}

/**
 * Asks the buyer's own shard, then the following ones. A shard that is sold out remains so, so a repeated request
 * passes the same shards and comes to the one that has the order. For the same reason none may be skipped here, as
 * by remembering which ones are sold out: one of these may have this buyer's order.
 */
async function buy(env: Env, buyer: string): Promise<unknown> {
  const own = shardOf(buyer);
  for (let step = 0; step < SHARDS; step++) {
    const shard = (own + step) % SHARDS;
    if (await ask(env, shard, "buy", { buyer })) return { sold: true, shard };
  }
  return { sold: false };
}

/**
 * Stores exports of all shards, and then the manifest that names them: readers see all of these or all of the ones
 * before. Each export is one moment of its shard; those of different shards are not the same moment.
 */
async function publish(env: Env): Promise<Manifest> {
  const folder = crypto.randomUUID();
  const keyOf = (shard: number) => `${folder}/${shard}.varve`;
  const cursors = await ofEach((shard) => ask(env, shard, "publish", { key: keyOf(shard) }));
  const exports = cursors.map((_, shard) => keyOf(shard));
  const manifest = { exports, cursor: cursorText(cursors) };
  await stored(env.BUCKET, MANIFEST, JSON.stringify(manifest));
  return manifest;
}

function decoded(key: string): string {
  try {
    return decodeURIComponent(key);
  } catch {
    throw new Refusal(400, "The key in the path must be encoded by encodeURIComponent.");
  }
}

async function route(request: Request, env: Env): Promise<unknown> {
  const { pathname, searchParams: query } = new URL(request.url);
  const key = /^\/keys\/(.+)$/.exec(pathname)?.[1];
  const body = request.method === "GET" ? "" : await request.text();
  if (key !== undefined) {
    const given = { key: decoded(key), value: body };
    const shard = shardOf(given.key);
    if (request.method === "PUT") return ask(env, shard, "set", given);
    if (request.method === "DELETE") return ask(env, shard, "delete", given);
    if (request.method === "GET") return ask(env, shard, "get", given);
  }
  switch (`${request.method} ${pathname}`) {
    case "GET /range":
      return range(env, "items", query);
    case "GET /orders":
      return range(env, "orders", query);
    case "GET /changes":
      return changes(env, query);
    case "GET /follow":
      return follow(env, query);
    case "DELETE /changes":
      return ofEach((shard) =>
        ask(env, shard, "unfollow", { follower: query.get("follower") ?? "" }),
      );
    case "POST /stock":
      return fill(env, body);
    case "GET /stock":
      return { left: await ofEach((shard) => ask(env, shard, "left", {})) };
    case "POST /buy":
      return buy(env, body);
    case "POST /publish":
      return publish(env);
    case "POST /abort":
      if (!/^\d+$/.test(body) || Number(body) >= SHARDS) throw new Refusal(400, "No such shard.");
      // It ends instead of answering.
      return called(env.SHARDS, Number(body), "abort", "").then(
        () => false,
        () => true,
      );
    default:
      throw new Refusal(404, `There is no ${request.method} ${pathname}.`);
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    try {
      const answer = await route(request, env);
      return answer instanceof Response ? answer : Response.json(answer);
    } catch (error) {
      if (error instanceof Refusal) return new Response(error.message, { status: error.status });
      throw error;
    }
  },
};
