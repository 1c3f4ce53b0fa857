/** What the tests of imports share: the bytes of a database, checks of its contents, and errors. */

import { type Database, memory } from "varve";
import { text } from "varve/struct";
import { expect } from "vitest";
import { filled, opened } from "./storages.js";

export type Bytes = Uint8Array<ArrayBuffer>;

export const MISSING = { name: "DatabaseNotFoundError", code: "VARVE_DATABASE_NOT_FOUND" } as const;
export const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** The export of a database with this many records, each of which names its owner. */
export async function exportOf(owner: string, count: number, large = 0): Promise<Bytes> {
  const db = await opened(memory());
  db.set("owner", owner);
  db.set("count", `${count}`);
  for (let i = 0; i < count; i++) db.set(`key ${i}`, `${owner} ${i}`.repeat(1 + (i % 9)));
  if (large > 0) db.set("large", filled(large, 7));
  db.collection("notes", text()).set("note", owner);
  const bytes = new Uint8Array(await new Response(db.export()).arrayBuffer());
  await db.close();
  return bytes;
}

/** The owner of a database, after checking every record in it. */
export async function ownerOf(db: Database): Promise<string | undefined> {
  const owner = db.getText("owner");
  if (owner === undefined) {
    expect(db.count()).toBe(0);
    return undefined;
  }
  const count = Number(db.getText("count"));
  for (let i = 0; i < count; i++) {
    expect(db.getText(`key ${i}`)).toBe(`${owner} ${i}`.repeat(1 + (i % 9)));
  }
  expect(db.count()).toBe(count + 2 + Number(db.has("large")));
  expect(db.collection("notes", text()).get("note")).toBe(owner);
  const { problems } = await db.verify();
  // One of two superblocks is enough, and the next write restores the other.
  expect(problems.filter(({ what }) => what !== "superblock")).toStrictEqual([]);
  return owner;
}

/** A stream of the bytes in chunks, with a callback before each. */
export function streamOf(bytes: Bytes, chunkSize: number, before: (at: number) => void = () => {}) {
  let at = 0;
  return new ReadableStream<Bytes>({
    pull(controller) {
      before(at);
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.slice(at, at + chunkSize));
      at += chunkSize;
    },
  });
}
