/** Programs under fake timers, as vitest, Jest and Sinon install them: nothing hangs, and no call fails for them. */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { install } from "@sinonjs/fake-timers";
import { type Client, connect, file, memory, open, serve } from "varve";
import { json } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";

/** A clock of this realm that stands still until the test ends, and everything else with it. */
function stopped() {
  const clock = install({ now: 0 });
  onTestFinished(() => {
    // Node passes messages of other processes on by nextTick, so one of Vitest may be waiting in this clock.
    clock.runMicrotasks();
    clock.uninstall();
  });
  return clock;
}

function served() {
  const { port1, port2 } = new MessageChannel();
  const collections = { notes: json<number>() };
  serve("shop", { storage: memory(), ...wasmOption(), collections }).listen(port1);
  const client = connect("shop", { worker: () => port2, collections });
  onTestFinished(async () => {
    await (client as Client).close();
    port1.close();
  });
  return client;
}

describe("fake timers", () => {
  test("a database opens, writes, flushes in time, verifies, compacts, exports and closes", async () => {
    stopped();
    const folder = join(context().directory as string, "fake-timers");
    const db = await open("shop", {
      storage: file(folder),
      durability: "buffered",
      ...wasmOption(),
    });
    for (let i = 0; i < 5_000; i += 1) db.set(`key ${i}`, "value".repeat(20));
    await db.committed;
    db.set("more", "1");
    // Nothing requests the flush: its timer has to fire.
    await db.committed;
    await db.flushed;
    const notes = db.collection("notes", json<number>());
    for (let i = 0; i < 2_000; i += 1) notes.set(`n ${i}`, i);
    for (let i = 0; i < 4_000; i += 1) db.delete(`key ${i}`);
    await db.compact();
    expect((await db.verify()).ok).toBe(true);
    assert((await new Response(db.export()).arrayBuffer()).byteLength > 10_000);
    const lines = await new Response(notes.toJsonLines()).text();
    expect(await notes.fromJsonLines(lines)).toBe(2_000);
    await db.close();
  });

  test("calls of a client are answered and time out, whatever its clock does", async () => {
    const clock = stopped();
    const client = served();
    await client.set("a", "1");
    clock.setSystemTime(Date.now() + 3_600_000);
    expect(await client.getText("a")).toBe("1");
    clock.setSystemTime(5);
    await client.notes.set("n", 1);
    await clock.tickAsync(100_000);
    expect(await client.notes.get("n")).toStrictEqual(1);
    await client.compact();
    expect((await client.verify()).ok).toBe(true);
    const meddling = client.transaction(
      async (tx) => {
        await tx.get("a");
        await client.set("a", "2");
        tx.set("a", "mine");
      },
      { retries: 3 },
    );
    await rejects(meddling, { code: "VARVE_CONFLICT" });
  });

  test("live and watch report changes, and close waits for a pending call", async () => {
    stopped();
    const client = served();
    const seen: number[] = [];
    let wake = () => {};
    client.notes.live({}, (rows) => {
      seen.push(rows.length);
      wake();
    });
    for (const n of [1, 2, 3]) await client.notes.set(`n ${n}`, n);
    while (seen.at(-1) !== 3) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    const [late, closing] = [client.getText("a"), client.close()];
    expect(await late).toBe(undefined);
    await closing;
  });

  test("an unanswered call ends at its deadline, and no step of a clock ends one before", async () => {
    const clock = stopped();
    const { port1, port2 } = new MessageChannel();
    onTestFinished(() => port1.close());
    const client = connect("shop", { worker: () => port2, timeout: 300 });
    const begun = process.hrtime.bigint;
    expect(typeof begun).toBe("function");
    let isOver = false;
    const call = client.get("a").finally(() => {
      isOver = true;
    });
    call.catch(() => {});
    clock.setSystemTime(Date.now() + 3_600_000);
    await clock.tickAsync(50_000);
    expect(isOver).toBe(false);
    await rejects(call, { code: "VARVE_OWNER_UNAVAILABLE" });
    await client.close();
  });

  test("fake timers installed before the package was loaded have no effect either", async () => {
    const program = `
      const { install } = await import("@sinonjs/fake-timers");
      const { setTimeout: later } = globalThis;
      const over = later(() => { console.log("hangs"); process.exit(1); }, 100_000);
      install({ now: 0 });
      const { connect, memory, open, serve } = await import("varve");
      const db = await open("db", { storage: memory(), durability: "buffered" });
      db.set("a", "1");
      await db.committed;
      await db.flushed;
      await db.compact();
      await db.verify();
      await db.close();
      const { port1, port2 } = new MessageChannel();
      serve("shop", { storage: memory() }).listen(port1);
      const shop = connect("shop", { worker: () => port2 });
      await shop.set("a", "1");
      await shop.compact();
      const rows = shop.live()[Symbol.asyncIterator]();
      const first = await rows.next();
      const late = shop.getText("a");
      await shop.close();
      port1.close();
      const { port1: unserved, port2: silent } = new MessageChannel();
      unserved.ref();
      const unanswered = connect("unanswered", { worker: () => silent, timeout: 200 });
      const { code } = await unanswered.get("a").catch((error) => error);
      console.log(first.value.length, await late, code);
      process.exit(0);`;
    const run =
      context().runtime === "deno" ? ["eval", program] : ["--input-type=module", "-e", program];
    const { stdout } = await promisify(execFile)(process.execPath, run, { cwd: context().root });
    expect(stdout.trim()).toBe("1 1 VARVE_OWNER_UNAVAILABLE");
  });
});
