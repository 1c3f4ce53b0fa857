/** Lock files of databases. */

import { readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { file } from "varve";
import { expect, onTestFinished } from "vitest";
import { folder, Holder, type LockFields, lockContent, lockFields } from "./processes.js";

export const NAME = "shop";

export function lockOf(directory: string): string {
  return join(directory, "shop.varve.lock");
}

/** A forged lock like that of `holder`, with some fields changed. */
export async function forgedLock(directory: string, change: Partial<LockFields>): Promise<string> {
  const elsewhere = folder();
  const holder = await Holder.start();
  await holder.run("open", { directory: elsewhere, name: NAME });
  const real = lockFields(readFileSync(lockOf(elsewhere), "utf8"));
  await holder.run("close");
  const content = lockContent({ ...real, ...change });
  writeFileSync(lockOf(directory), content);
  return content;
}

/** Sends heartbeats for a forged lock until the test ends, by changing its time stamps. */
export function sendHeartbeats(directory: string): void {
  let count = 0;
  const timer = setInterval(() => {
    count += 1;
    utimesSync(lockOf(directory), count, count);
  }, 2000);
  onTestFinished(() => clearInterval(timer));
}

/** Opens and closes the database, and checks that no lock is left. */
export async function openAndClose(directory: string): Promise<void> {
  const { file: opened } = await file(directory).open(NAME);
  opened.close();
  expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
}

/** The target of a symbolic link that replaces this content. It has no host name. */
export function linkText(content: string): string {
  return content.split(" ").slice(0, -1).join(" ");
}
