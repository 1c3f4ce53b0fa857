import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";

/** Runs in a thread whose monotonic clock can be advanced; `varve` has all exports of the package. */
function moved(program: string): Promise<unknown> {
  const varve = pathToFileURL(join(context().root, "dist/index.js")).href;
  const thread = new Worker(
    `const { parentPort } = require("node:worker_threads");
     const now = performance.now.bind(performance);
     let ahead = 0;
     // Bound, so that it looks like the platform's own.
     performance.now = (() => now() + ahead).bind();
     const moveOn = (ms) => { ahead += ms };
     const until = async (holds) => {
       while (!holds()) await new Promise((resolve) => setTimeout(resolve, 1));
     };
     import(${JSON.stringify(varve)}).then(async (varve) => {
       const { connect, memory, serve } = varve;
       const { port1, port2 } = new MessageChannel();
       serve("shop", { storage: memory() }).listen(port1);
       const client = connect("shop", { worker: () => port2 });
       ${program}
     }).then((answer) => parentPort.postMessage(answer));`,
    { eval: true },
  );
  onTestFinished(async () => {
    await thread.terminate();
  });
  return new Promise((resolve, reject) => {
    thread.once("message", resolve);
    thread.once("error", reject);
  });
}

describe("expired watches of a client", () => {
  test("a client learns of the change that found its watch expired, and of all later ones", async () => {
    const rows = await moved(`
      let rows = [];
      client.live({}, (all) => { rows = all });
      for (let i = 0; i < 40; i += 1) await client.set("n" + i, "1");
      moveOn(91_000);
      await client.set("found", "1");
      await until(() => rows.length === 41);
      for (let i = 0; i < 60; i += 1) {
        if (i % 7 === 0) moveOn(91_000);
        await client.set("m" + i, "1");
        await until(() => rows.length === 42 + i);
      }
      return rows.length;`);
    expect(rows).toBe(101);
  });

  test("a renewed watch reports each key that was written meanwhile", async () => {
    const keys = await moved(`
      const keys = new Set();
      client.watch({}, (changes) => changes.forEach(({ key }) => keys.add(key)));
      await client.set("a", "1");
      await until(() => keys.size === 1);
      moveOn(91_000);
      await client.batch([{ type: "set", key: "b", value: "1" }, { type: "delete", key: "a" }]);
      await until(() => keys.size === 2);
      return [...keys].join();`);
    expect(keys).toBe("a,b");
  });

  test("a watch of a client that is gone is dropped, and nothing is read for it", async () => {
    const reads = await moved(`
      const other = new MessageChannel();
      const served = serve("gone", {
        storage: memory(),
        procedures: {
          look: (db) => {
            const { engine } = db.constructor.sessionOf(db);
            const { version } = engine;
            engine.version = (...args) => { reads += 1; return version.apply(engine, args) };
          },
        },
      });
      let reads = 0;
      served.listen(other.port1);
      const gone = connect("gone", { worker: () => other.port2 });
      let received = 0;
      gone.watch({}, () => { received += 1 });
      await gone.call.look();
      await gone.set("a", "1");
      await until(() => received === 1);
      // From now on no message about it arrives.
      const { postMessage } = other.port1;
      other.port1.postMessage = (message) => {
        if (message.type !== "changes") postMessage.call(other.port1, message);
      };
      moveOn(91_000);
      await gone.set("b", "1");
      await new Promise((resolve) => setTimeout(resolve, 20));
      reads = 0;
      await gone.set("c", "1");
      await new Promise((resolve) => setTimeout(resolve, 20));
      return reads;`);
    expect(reads).toBe(0);
  });
});
