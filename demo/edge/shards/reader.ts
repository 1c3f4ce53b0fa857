/**
 * A Worker that only reads: it opens what `POST /publish` stored in the bucket, and needs no Durable Object. It gives
 * the exports to pages too, which open them in the same way.
 */

import { type Database, open } from "varve";
import { text } from "varve/struct";
import { type Bucket, MANIFEST, type Manifest, shardOf } from "./layout.js";

interface Env {
  readonly BUCKET: Bucket;
}

/** An isolate has 128 MB for everything, so only a few exports stay open. */
const OPEN = 4;

/** The open exports, by their keys in the bucket, under which they never change. */
const openExports = new Map<string, Database>();

/**
 * Keeps an export open, and closes the one that was opened first. Requests read at once from what they find here, and
 * do not wait for each other: what one request waits for ends with that request.
 */
function kept(key: string, db: Database): Database {
  const other = openExports.get(key);
  if (other !== undefined) {
    void db.close();
    return other;
  }
  openExports.set(key, db);
  for (const [oldest, old] of openExports) {
    if (openExports.size <= OPEN) break;
    openExports.delete(oldest);
    void old.close();
  }
  return db;
}

async function fetched(key: string, bucket: Bucket): Promise<Database> {
  const object = await bucket.get(key);
  if (object === null) throw new Error(`The bucket has no ${key}.`);
  return open("export", { from: await object.arrayBuffer(), readOnly: true });
}

export default {
  async fetch(request: Request, { BUCKET }: Env): Promise<Response> {
    const { pathname } = new URL(request.url);
    const manifest = await (await BUCKET.get(MANIFEST))?.json<Manifest>();
    if (manifest === undefined) return new Response("Nothing is published yet.", { status: 404 });
    if (pathname === "/manifest") return Response.json(manifest);
    const shard = /^\/exports\/(\d+)$/.exec(pathname)?.[1];
    if (shard !== undefined) {
      const key = manifest.exports[Number(shard)];
      const object = key === undefined ? null : await BUCKET.get(key);
      if (object !== null) return new Response(object.body);
    }
    const encoded = /^\/keys\/(.+)$/.exec(pathname)?.[1];
    if (encoded === undefined) return new Response(`There is no ${pathname}.`, { status: 404 });
    const key = decodeURIComponent(encoded);
    const name = manifest.exports[shardOf(key)] as string;
    const db = openExports.get(name) ?? kept(name, await fetched(name, BUCKET));
    return Response.json(db.collection("items", text()).get(key) ?? null);
  },
};
