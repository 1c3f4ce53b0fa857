/** The worked example of many Durable Objects: routing, merging, following and publishing over all of them. */

import { execFileSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { open } from "varve";
import { text } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { type Change, type Entry, type Manifest, shardOf } from "../../demo/edge/shards/layout.js";
import { load, root } from "../packaging/project.js";
import { context } from "../support/context.js";

interface Edge {
  send<T>(method: string, path: string, body?: string, to?: { to: "reader" }): Promise<T>;
  addresses(): Promise<{ url: string; reader: string }>;
  restart(): Promise<void>;
  stop(): Promise<void>;
}

type ShardChange = Change & { readonly shard: number };

interface Changes {
  readonly changes: ShardChange[];
  readonly cursor: string;
  readonly more: boolean;
}

/** The example in a new folder, until the test ends. */
async function started(): Promise<Edge> {
  const { startEdge } = await load<{ startEdge(folder: string): Promise<Edge> }>(
    "demo/edge/shards/edge.mjs",
  );
  const edge = await startEdge(mkdtempSync(join(context().directory ?? ".", "shards-")));
  onTestFinished(() => edge.stop());
  return edge;
}

const at = (key: string) => `/keys/${encodeURIComponent(key)}`;

function byBytes([a]: Entry, [b]: Entry): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** All entries of a range, read in parts. */
async function ranged(edge: Edge, query: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (let after: string | undefined = ""; after !== undefined; ) {
    const start: string = after === "" ? "" : `&after=${encodeURIComponent(after)}`;
    const page = await edge.send<{ entries: Entry[]; after?: string }>(
      "GET",
      `/range?${query}${start}`,
    );
    entries.push(...page.entries);
    after = page.after;
  }
  return entries;
}

/** Applies changes to what is known of each shard. */
function apply(known: Map<string, string>, changes: readonly ShardChange[]): void {
  for (const change of changes) {
    if (change.type === "reset") {
      for (const key of known.keys()) if (shardOf(key) === change.shard) known.delete(key);
    } else if (change.type === "delete") known.delete(change.key);
    else known.set(change.key, change.value ?? "");
  }
}

/** Follows the feed until it gives nothing more. */
async function caughtUp(edge: Edge, known: Map<string, string>, from: string, query = "") {
  let cursor = from;
  const all: ShardChange[] = [];
  for (;;) {
    const page = await edge.send<Changes>("GET", `/changes?cursor=${cursor}${query}`);
    apply(known, page.changes);
    all.push(...page.changes);
    cursor = page.cursor;
    if (page.changes.length === 0) return { cursor, all };
  }
}

/** Keys of one shard. */
function keysOf(shard: number, count: number): string[] {
  const keys: string[] = [];
  for (let n = 0; keys.length < count; n++) {
    if (shardOf(`key ${n}`) === shard) keys.push(`key ${n}`);
  }
  return keys;
}

describe("the example of many Durable Objects", () => {
  test("one stock in 64 objects is sold exactly, with objects killed meanwhile, and none twice", () => {
    const args = ["demo/edge/shards/run.mjs", "--json", "--clients", "100", "--stock", "300"];
    const output = execFileSync(process.execPath, args, { cwd: root(), encoding: "utf8" });
    const { seconds: _, ...rest } = JSON.parse(output) as Record<string, number>;
    expect(rest).toStrictEqual({
      clients: 100,
      stock: 300,
      ended: 20,
      answered: 300,
      orders: 300,
      buyers: 300,
      left: 0,
      ordersAfterRepeating: 300,
      repeated: 100,
    });
  });

  test("ranges of all objects are one in the order of the keys' bytes, in pages of any size", async () => {
    const edge = await started();
    const model = new Map<string, string>();
    for (let n = 0; n < 150; n++) model.set(`range/${(n * 7919) % 1009}`, `value ${n}`);
    // In UTF-16, which strings are compared by, the first of these comes after the second.
    for (const key of ["range/\uff5e", "range/\u{1f600}", "range/é?&", "other"])
      model.set(key, key);
    await Promise.all([...model].map(([key, value]) => edge.send("PUT", at(key), value)));
    for (const key of [...model.keys()].slice(0, 10)) {
      expect(await edge.send("DELETE", at(key))).toBe(true);
      model.delete(key);
    }
    const sorted = [...model].sort(byBytes);
    const within = sorted.filter(([key]) => key.startsWith("range/"));
    expect(await ranged(edge, "limit=10000")).toStrictEqual(sorted);
    expect(within.length).toBe(143);
    for (const limit of [5, 143, 144]) {
      const entries = await ranged(edge, `prefix=range/&limit=${limit}`);
      expect(entries, `pages of ${limit}`).toStrictEqual(within);
    }
    expect(await edge.send("GET", at("range/\u{1f600}"))).toBe("range/\u{1f600}");
    expect(await edge.send("GET", at("none"))).toBe(null);
  });

  test("the merged feed gives what was written and deleted in all objects, across a kill", async () => {
    const edge = await started();
    const model = new Map<string, string>();
    const known = new Map<string, string>();
    const writer = async (_: unknown, writer: number) => {
      for (let n = 0; n < 30; n++) {
        // Keys of one writer only, so that the model is what its last answered request wrote.
        const key = `${writer} ${(n * 7) % 16}`;
        if (n % 5 === 4) {
          await edge.send("DELETE", at(key));
          model.delete(key);
        } else {
          await edge.send("PUT", at(key), `value ${n}`);
          model.set(key, `value ${n}`);
        }
        if (writer === 0 && n === 20) await edge.restart();
      }
    };
    let writing = true;
    const writes = Promise.all(Array.from({ length: 8 }, writer)).finally(() => {
      writing = false;
    });
    let cursor = "";
    while (writing) {
      const page = await edge.send<Changes>("GET", `/changes?cursor=${cursor}&limit=64`);
      apply(known, page.changes);
      cursor = page.cursor;
    }
    await writes;
    await caughtUp(edge, known, cursor);
    expect([...known].sort(byBytes)).toStrictEqual([...model].sort(byBytes));
    // A follower that begins late finds the same, and one that has everything is given nothing.
    const late = new Map<string, string>();
    const { cursor: end } = await caughtUp(edge, late, "", "&limit=64");
    expect([...late].sort(byBytes)).toStrictEqual([...model].sort(byBytes));
    await edge.restart();
    expect((await edge.send<Changes>("GET", `/changes?cursor=${end}`)).changes).toStrictEqual([]);
  });

  test("a stream gives what all objects write, and goes on from its last cursor after a kill", async () => {
    const edge = await started();
    const known = new Map<string, string>();
    let cursor = "";
    /** Reads the stream until this many keys are known, or it ends. */
    const followed = async (keys: number) => {
      const { url } = await edge.addresses();
      let received = "";
      try {
        const response = await fetch(`${url}/follow?cursor=${cursor}`);
        for await (const part of response.body as unknown as AsyncIterable<Uint8Array>) {
          received += Buffer.from(part).toString("latin1");
          const lines = received.split("\n");
          received = lines.pop() ?? "";
          for (const line of lines) {
            const page = JSON.parse(line) as Changes;
            apply(known, page.changes);
            cursor = page.cursor;
          }
          if (known.size >= keys) return true;
        }
      } catch {
        // It ended with the process.
      }
      return false;
    };
    const write = (from: number, to: number) =>
      Promise.all(
        Array.from({ length: to - from }, (_, n) => edge.send("PUT", at(`key ${from + n}`), "1")),
      );
    await write(0, 40);
    expect(await followed(40)).toBe(true);
    const second = followed(80);
    await write(40, 80);
    expect(await second).toBe(true);
    const third = followed(1_000);
    await write(80, 100);
    await edge.restart();
    expect(await third).toBe(false);
    await write(100, 120);
    expect(await followed(120)).toBe(true);
    expect(known.size).toBe(120);
    expect((await caughtUp(edge, known, cursor)).all).toStrictEqual([]);
  });

  test("the feed has the changes of a shard in their order, and a follower loses none to compaction", async () => {
    const edge = await started();
    const keys = keysOf(9, 6);
    for (const key of keys) await edge.send("PUT", at(key), "1");
    const known = new Map<string, string>();
    const { cursor } = await caughtUp(edge, known, "", "&follower=kept");
    await edge.send("GET", `/changes?cursor=${cursor}&follower=kept`);
    await edge.send("DELETE", at(keys[2] ?? ""));
    await edge.send("PUT", at(keys[4] ?? ""), "2");
    await edge.send("DELETE", at(keys[0] ?? ""));
    const value = "x".repeat(250_000);
    const churn = async () => {
      for (let n = 0; n < 40; n++) await edge.send("PUT", at(keys[5] ?? ""), value + n);
    };
    await churn();
    const { all } = await caughtUp(edge, known, cursor, "&follower=kept");
    expect(all.map((change) => "key" in change && [change.type, change.key])).toStrictEqual([
      ["delete", keys[2]],
      ["set", keys[4]],
      ["delete", keys[0]],
      ["set", keys[5]],
    ]);
    expect([...known.keys()].sort()).toStrictEqual([keys[1], keys[3], keys[4], keys[5]].sort());

    // Without its mark, compaction may take the deletions: then the shard begins again with its whole content.
    await edge.send("DELETE", "/changes?follower=kept");
    await churn();
    const old = new Map(keys.map((key) => [key, "1"]));
    const after = await caughtUp(edge, old, cursor);
    expect(after.all[0]).toStrictEqual({ shard: 9, type: "reset" });
    expect([...old.keys()].sort()).toStrictEqual([keys[1], keys[3], keys[4], keys[5]].sort());
  });

  test("Workers and pages that only read open what was published, and go on with the feed", async () => {
    const edge = await started();
    const { reader } = await edge.addresses();
    expect((await fetch(`${reader}/manifest`)).status).toBe(404);
    const model = new Map(Array.from({ length: 130 }, (_, n) => [`key ${n}`, `value ${n}`]));
    await Promise.all([...model].map(([key, value]) => edge.send("PUT", at(key), value)));
    await edge.send("POST", "/publish");
    await edge.send("PUT", at("key 1"), "later");
    await edge.send("DELETE", at("key 2"));
    await edge.restart();
    const read = (path: string) => edge.send("GET", path, "", { to: "reader" });
    const values = await Promise.all([...model.keys()].map((key) => read(at(key))));
    expect(values).toStrictEqual([...model.values()]);
    expect(await read(at("none"))).toBe(null);

    // What a page does: it opens the bytes of each export, and applies what changed since.
    const manifest = (await read("/manifest")) as Manifest;
    const address = (await edge.addresses()).reader;
    const known = new Map<string, string>();
    for (const shard of manifest.exports.keys()) {
      const from = await (await fetch(`${address}/exports/${shard}`)).arrayBuffer();
      await using db = await open("export", { from, readOnly: true });
      for (const [key, value] of db.collection("items", text()).entries()) {
        expect(shardOf(key)).toBe(shard);
        known.set(key, value);
      }
    }
    expect([...known].sort(byBytes)).toStrictEqual([...model].sort(byBytes));
    const { all } = await caughtUp(edge, known, manifest.cursor);
    assert(all.length < 10, `${all.length} changes since`);
    expect([known.get("key 1"), known.has("key 2"), known.size]).toStrictEqual([
      "later",
      false,
      129,
    ]);

    await edge.send("POST", "/publish");
    expect([await read(at("key 1")), await read(at("key 2"))]).toStrictEqual(["later", null]);
  });

  test("what cannot be done is refused with a message, and changes nothing", async () => {
    const edge = await started();
    const refused = (method: string, path: string, body?: string) =>
      edge.send(method, path, body).then(
        () => "done",
        (error: Error) => error.message,
      );
    expect(await refused("POST", "/buy", "ann")).toBe(
      "POST /buy: 409 There is no stock yet: POST /stock first.",
    );
    expect(await edge.send("POST", "/stock", "65")).toStrictEqual({ total: 65 });
    expect(await edge.send("POST", "/stock", "65")).toStrictEqual({ total: 65 });
    expect(await refused("POST", "/stock", "66")).toBe(
      "POST /stock: 409 The stock is 65 already, and is set only once.",
    );
    const { left } = await edge.send<{ left: number[] }>("GET", "/stock");
    expect([left[0], ...new Set(left.slice(1))]).toStrictEqual([2, 1]);
    for (const [method, path, body] of [
      ["GET", "/changes?cursor=1.2"],
      ["GET", `/changes?cursor=${new Array(64).fill("zzz").join(".")}`],
      ["GET", "/range?limit=0"],
      ["GET", "/keys/%ff"],
      ["POST", "/stock", "-1"],
      ["POST", "/buy", ""],
      ["POST", "/abort", "64"],
    ] as const) {
      const message = await refused(method, path, body);
      assert(message.startsWith(`${method} ${path}: 400 `), message);
    }
    expect(await refused("GET", "/none")).toBe("GET /none: 404 There is no GET /none.");
  });
});
