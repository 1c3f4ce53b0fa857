/** How keys are spread over the Durable Objects, and how their orders and cursors become one. */

/** The number of objects. It is part of where a key is, so it never changes while there is data. */
export const SHARDS = 64;

const encoder = new TextEncoder();

/** The shard of a key: FNV-1a over its UTF-8, which is the same in every runtime and release. */
export function shardOf(key: string): number {
  let hash = 0x811c9dc5;
  for (const byte of encoder.encode(key)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  // The low bits of FNV-1a alone are spread less evenly.
  return ((hash ^ (hash >>> 16)) >>> 0) % SHARDS;
}

/** The order of keys in a database: that of their UTF-8. (`<` compares UTF-16, which differs for emoji.) */
export function compareKeys(a: string, b: string): number {
  const [left, right] = [encoder.encode(a), encoder.encode(b)];
  const shorter = Math.min(left.length, right.length);
  for (let at = 0; at < shorter; at++) {
    const difference = (left[at] as number) - (right[at] as number);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

export type Entry = readonly [key: string, value: string];

/** A part of a range: its entries in the order of their keys, and whether there are more behind them. */
export interface Page {
  readonly entries: readonly Entry[];
  readonly more: boolean;
}

/**
 * Merges ordered ranges into one, up to `limit` entries. `pageOf` reads the entries of one shard after a key; a shard
 * is asked again only when all entries that it gave are used.
 */
export async function mergedRange(
  limit: number,
  pageOf: (shard: number, after: string | undefined, limit: number) => Promise<Page>,
): Promise<Page> {
  // An even share and half as much again: with keys spread by a hash, few shards are asked twice.
  const size = Math.ceil((limit * 1.5) / SHARDS) + 1;
  const shards = await Promise.all(
    Array.from({ length: SHARDS }, async (_, shard) => ({
      shard,
      at: 0,
      page: await pageOf(shard, undefined, size),
    })),
  );
  const entries: Entry[] = [];
  for (;;) {
    let first: { source: (typeof shards)[number]; entry: Entry } | undefined;
    for (const source of shards) {
      if (source.at === source.page.entries.length && source.page.more) {
        source.page = await pageOf(source.shard, source.page.entries.at(-1)?.[0], size);
        source.at = 0;
      }
      const entry = source.page.entries[source.at];
      if (entry === undefined) continue;
      if (first === undefined || compareKeys(entry[0], first.entry[0]) < 0) {
        first = { source, entry };
      }
    }
    if (first === undefined) return { entries, more: false };
    if (entries.length === limit) return { entries, more: true };
    entries.push(first.entry);
    first.source.at += 1;
  }
}

/** A cursor of the merged feed: that of each shard, in their order. `undefined` if it is not one. */
export function parsedCursor(text: string): number[] | undefined {
  if (text === "") return new Array<number>(SHARDS).fill(0);
  const parts = text.split(".");
  const cursors = parts.map((part) => Number.parseInt(part, 36));
  const isWhole = parts.length === SHARDS && parts.every((part) => /^[0-9a-z]{1,11}$/.test(part));
  return isWhole && cursors.every(Number.isSafeInteger) ? cursors : undefined;
}

export function cursorText(cursors: readonly number[]): string {
  return cursors.map((cursor) => cursor.toString(36)).join(".");
}

/** A change of the merged feed. After "reset", the shard's whole content follows: what was known of it is void. */
export type Change =
  | { readonly type: "reset" }
  | {
      readonly type: "set" | "delete";
      readonly collection: "items" | "orders";
      readonly key: string;
      readonly value?: string;
    };

/** What `POST /publish` stores last: where the exports of all shards are, and where to follow them from. */
export interface Manifest {
  readonly exports: readonly string[];
  readonly cursor: string;
}

export const MANIFEST = "latest.json";

/** The part of an R2 bucket that is used. */
export interface Bucket {
  put(key: string, value: ArrayBuffer | string): Promise<unknown>;
  get(key: string): Promise<{
    readonly body: ReadableStream<Uint8Array<ArrayBuffer>>;
    arrayBuffer(): Promise<ArrayBuffer>;
    json<T>(): Promise<T>;
  } | null>;
}
