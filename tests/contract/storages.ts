/** The storages of contract tests: every storage of the runtime that runs them. */

import type { Database, OpenOptions, Storage } from "varve";
import { file, memory, open, opfs } from "varve";
import { describe, onTestFinished } from "vitest";
import { context, wasmOption } from "../support/context.js";

/** A storage. Data written through it is there when the same name is opened again. */
export interface Place {
  readonly name: string;
  readonly storage: Storage;
}

let counter = 0;

/** A name that no other test uses. */
export function freshName(): string {
  counter += 1;
  return `contract-${counter}`;
}

/** All storages of this runtime. */
export function storages(): Place[] {
  const found: Place[] = [{ name: "memory", storage: memory() }];
  const { directory, runtime } = context();
  if (directory !== undefined) found.push({ name: "file", storage: file(directory) });
  // Each run starts with its own profile or folder, so that a name is new in both.
  if (runtime === "worker") found.push({ name: "opfs", storage: opfs("contract") });
  return found;
}

/** Registers the same tests once for every storage. */
export function everywhere(name: string, define: (place: Place) => void): void {
  for (const place of storages()) describe(`${name} (${place.name})`, () => define(place));
}

/** Opens a database that is closed when the test ends. */
export async function opened(
  storage: Storage,
  options: OpenOptions = {},
  name: string = freshName(),
): Promise<Database> {
  const db = await open(name, { storage, ...wasmOption(), ...options });
  onTestFinished(() => db.close().catch(() => undefined));
  return db;
}

/** Closes and reopens a database, under the same name. */
export async function reopened(
  db: Database,
  storage: Storage,
  name: string,
  options: OpenOptions = {},
): Promise<Database> {
  await db.close();
  return opened(storage, options, name);
}

/** Bytes that all have one value. */
export function filled(length: number, value: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(length).fill(value);
}

/** Whether a view that was kept too long shows its own bytes or is detached. */
export function ownOrDetached(view: Uint8Array, value: number): boolean {
  for (let i = 0; i < view.length; i++) if (view[i] !== value) return false;
  return true;
}

/** Forces memory to be reused that views may show, so that all views are detached at the next yield. */
export function detachViews(db: Database): Promise<void> {
  db.commit();
  try {
    db.transaction((tx) => {
      tx.set("rolled back", "so that memory is used again");
      throw new Error("undone");
    });
  } catch {
    // Expected.
  }
  return Promise.resolve();
}
