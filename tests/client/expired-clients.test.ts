import type { Database } from "varve";
import { assert, describe, expect, test } from "vitest";
import { replaceClock } from "../support/context.js";
import { turn } from "../support/values.js";
import { shop } from "./support.js";

/** Later than an owner's first sweep. */
const LATER_MS = 6_000;

/** The internals of a database that these tests use. */
interface Inside {
  readonly session: { readonly engine: { sortPart(): boolean } };
}

/** The sorting of keys: the number of parts, and of those that directly followed another one. */
interface Parts {
  all: number;
  atOnce: number;
  isOver: boolean;
}

function counted(db: Database, parts: Parts): void {
  const { engine } = (db as unknown as Inside).session;
  const sortPart = engine.sortPart.bind(engine);
  let isSameTask = false;
  engine.sortPart = () => {
    parts.all += 1;
    if (isSameTask) parts.atOnce += 1;
    isSameTask = true;
    setTimeout(() => {
      isSameTask = false;
    }, 0);
    const more = sortPart();
    parts.isOver ||= !more;
    return more;
  };
}

/** A client of a database of 3 MB with unsorted keys. */
async function filled() {
  const parts: Parts = { all: 0, atOnce: 0, isOver: false };
  const fill = (db: Database) => {
    for (let i = 0; i < 10_000; i += 1) db.set(`key ${i}`, new Uint8Array(300));
    counted(db, parts);
  };
  const client = shop({ procedures: { fill } });
  await client.call.fill();
  expect(parts.all).toBe(0);
  return { client, parts };
}

/** Writes once the owner is due to sweep. */
async function setLater(client: { set(key: string, value: string): Promise<unknown> }) {
  const real = replaceClock({ now: () => real.now() + LATER_MS });
  await client.set("key", "value");
}

describe("the sweep of expired clients", () => {
  test("sweep: keys are sorted in parts, and other tasks run in between", async () => {
    const { client, parts } = await filled();
    await setLater(client);
    for (let i = 0; i < 10_000 && !parts.isOver; i += 1) await turn(1);
    assert(parts.all > 2, `${parts.all} parts`);
    expect(parts.atOnce).toBe(0);
    expect(await client.count()).toBe(10_001);
  });

  test("sweep: closing the owner ends it", async () => {
    const { client, parts } = await filled();
    await setLater(client);
    await client.close();
    const { all } = parts;
    await turn(20);
    expect(parts.all).toBe(all);
  });
});
