/** A worker whose database loses its file. It executes the requested calls, one at a time. */

import { type Database, memory, open, opfs } from "varve";

let db: Database;
/** Errors that the database passed to `onError`. */
const reported: unknown[] = [];

function plain(error: unknown): object {
  const { code, name, reason } = error as { code?: string; name: string; reason?: string };
  return { name, code, reason };
}

/** The contents of a database, read from a copy of its bytes. */
async function contents(from: Uint8Array): Promise<Record<string, string>> {
  const copy = await open("copy", { storage: memory(), from });
  const found = [...copy.entries()].map(([key]) => [key, copy.getText(key) as string]);
  await copy.close();
  return Object.fromEntries(found);
}

const bytesOf = async () => new Uint8Array(await new Response(db.export()).arrayBuffer());

const calls: Record<string, (...texts: string[]) => unknown> = {
  async open() {
    db = await open("shop", { storage: opfs(), onError: (error) => reported.push(plain(error)) });
  },
  set: (key = "", value = "") => db.set(key, value),
  get: (key = "") => db.getText(key),
  flush: () => db.flush(),
  flushed: () => db.flushed,
  committed: () => db.committed,
  setCommitted(key = "", value = "") {
    db.set(key, value);
    return db.committed;
  },
  compact: () => db.compact(),
  close: () => db.close(),
  async saved() {
    return contents(await bytesOf());
  },
  async replace() {
    const from = await bytesOf();
    await db.close();
    db = await open("shop", { storage: opfs(), from, replace: true });
  },
  reported: () => reported,
};

addEventListener("message", async ({ data: [call, ...texts] }: MessageEvent<string[]>) => {
  try {
    const value = await calls[call as string]?.(...texts);
    postMessage({ value });
  } catch (error) {
    postMessage({ value: plain(error) });
  }
});
