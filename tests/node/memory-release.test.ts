import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { file, memory, open, type Storage } from "varve";
import { assert, describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { turn } from "../support/values.js";
import { folder } from "./support/processes.js";

/** Collects all garbage now. */
function collect(): void {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
}

/** Opens a database, uses it and closes it. Returns its handle and its memories. */
async function usedAndClosed(storage: Storage) {
  const { instantiate } = WebAssembly;
  const memories: WeakRef<WebAssembly.Memory>[] = [];
  const noting = async (...given: Parameters<typeof instantiate>) => {
    const instance = (await instantiate(...given)) as unknown as WebAssembly.Instance;
    memories.push(new WeakRef(instance.exports.memory as WebAssembly.Memory));
    return instance;
  };
  WebAssembly.instantiate = noting as unknown as typeof instantiate;
  try {
    const db = await open("shop", { storage, ...wasmOption() });
    for (let i = 0; i < 200; i += 1) db.set(`key ${i}`, new Uint8Array(i));
    db.get(new Uint8Array([1, 2, 3]));
    db.updateIf("key 7", () => new Uint8Array(9));
    await turn(5);
    for (const _ of db.entries({ limit: 3 }));
    db.pin("key 9")?.dispose();
    await db.close();
    return { db, memories };
  } finally {
    WebAssembly.instantiate = instantiate;
  }
}

// Only Node shows what the garbage collector keeps.
if (context().runtime === "node") {
  describe("closed databases", () => {
    for (const [where, storage] of [
      ["in memory", () => memory()],
      ["in a file", () => file(folder())],
    ] as const) {
      test(`close frees the memory though a handle is kept (${where})`, async () => {
        const { db, memories } = await usedAndClosed(storage());
        assert(memories.length > 0, "its memory was seen");
        // Values on the stack may be found there until they are overwritten.
        for (let i = 0; i < 20 && memories.some((one) => one.deref() !== undefined); i += 1) {
          await turn(10);
          collect();
        }
        expect(memories.filter((one) => one.deref() !== undefined).length).toBe(0);
        expect(Object.prototype.toString.call(db)).toBe("[object Object]");
      });
    }
  });
}
