import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { folder } from "./support/processes.js";
import { shopIn, Thread } from "./support/runtime-programs.js";

async function opened(directory: string, readOnly = false): Promise<Database> {
  const db = await open("shop", { storage: file(directory), readOnly, ...wasmOption() });
  onTestFinished(() => db.close());
  return db;
}

const KEEPS_ON = "setInterval(() => {}, 1000);";

describe("threads of one process", () => {
  test("threads can each have their own databases, also in one folder", async () => {
    const directory = folder();
    const thread = new Thread(
      `const db = await open("theirs", { storage: file(${JSON.stringify(directory)}) });
       db.set("key", "theirs");
       parentPort.postMessage(db.getText("key"));
       ${KEEPS_ON}`,
    );
    const db = await opened(directory);
    db.set("key", "ours");
    expect(await thread.firstMessage).toBe("theirs");
    expect(db.getText("key")).toBe("ours");
  });

  test("a database that another thread has open is refused, with the reason", async () => {
    const directory = folder();
    const thread = new Thread(
      `${shopIn(directory)} const db = await shop(); parentPort.postMessage("open"); ${KEEPS_ON}`,
    );
    await thread.firstMessage;
    await rejects(opened(directory), {
      name: "DatabaseBusyError",
      code: "VARVE_DATABASE_BUSY",
      message: /open in this process .*another thread \(threads use connect\(\)\)/,
    });
  });

  test("a database that the main thread has open is refused until it is closed", async () => {
    const directory = folder();
    const db = await opened(directory);
    db.set("key", "value");
    const opens = `${shopIn(directory)}
      const answer = await shop().then((db) => db.getText("key"), (error) => error.code);
      parentPort.postMessage(answer);`;
    expect(await new Thread(opens).firstMessage).toBe("VARVE_DATABASE_BUSY");
    await db.close();
    expect(await new Thread(opens).firstMessage).toBe("value");
  });

  test("threads may share a database that is open read-only", async () => {
    const directory = folder();
    const db = await opened(directory);
    db.set("key", "value");
    await db.close();
    const reader = await opened(directory, true);
    const thread = new Thread(
      `${shopIn(directory)}
       const db = await shop({ readOnly: true });
       parentPort.postMessage(db.getText("key"));`,
    );
    expect(await thread.firstMessage).toBe("value");
    expect(reader.getText("key")).toBe("value");
  });

  test("threads may share one compiled module", async () => {
    const directory = folder();
    const thread = new Thread(
      `import { readFileSync } from "node:fs";
       const bytes = readFileSync(new URL("../../dist/varve.wasm", import.meta.url));
       const wasm = await WebAssembly.compile(bytes);
       const db = await open("shop", { storage: file(${JSON.stringify(directory)}), wasm });
       db.set("key", "value");
       parentPort.postMessage(db.getText("key"));`,
    );
    expect(await thread.firstMessage).toBe("value");
  });
});

describe("threads that end", () => {
  const ENDS: Record<string, string> = {
    "by process.exit": "process.exit(0);",
    "because it has nothing left to do": "parentPort.unref?.();",
    "by an error": 'setTimeout(() => { throw new Error("on purpose"); });',
  };
  for (const [how, source] of Object.entries(ENDS)) {
    test(`a thread that ended ${how} has committed its writes and released the database`, async () => {
      const directory = folder();
      const thread = new Thread(
        `${shopIn(directory)}
         const db = await shop({ durability: "buffered" });
         db.set("key", "value");
         ${source}`,
      );
      await thread.ended;
      expect((await opened(directory)).getText("key")).toBe("value");
    });
  }

  test("a thread that did not close leaves only the database file", async () => {
    const directory = folder();
    await new Thread(`${shopIn(directory)} (await shop()).set("key", "value"); process.exit(0);`)
      .ended;
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
  });

  test("a terminated thread does not lock the database: it opens at once, with all commits", async () => {
    const directory = folder();
    // Deno lets a thread that is busy run on for two seconds.
    const busy = context().runtime === "deno" ? KEEPS_ON : "for (;;);";
    for (let round = 0; round < 10; round += 1) {
      const thread = new Thread(
        `${shopIn(directory)}
         const db = await shop();
         db.set("round", "${round}");
         db.commit();
         parentPort.postMessage("committed");
         ${busy}`,
      );
      await thread.firstMessage;
      await thread.terminate();
      assert(existsSync(join(directory, "shop.varve.lock")), "it could not give its lock back");
      const db = await opened(directory);
      expect(db.getText("round")).toBe(`${round}`);
      await db.close();
    }
  });

  test("a terminated thread does not lock the database for another thread", async () => {
    const directory = folder();
    const opens = `${shopIn(directory)}
      const db = await shop().catch((error) => error);
      parentPort.postMessage(db instanceof Error ? db.message : "open");
      ${KEEPS_ON}`;
    const first = new Thread(opens);
    expect(await first.firstMessage).toBe("open");
    await first.terminate();
    expect(await new Thread(opens).firstMessage).toBe("open");
  });
});
