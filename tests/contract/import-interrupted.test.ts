import { type OpenOptions, open } from "varve";
import { assert, describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { random } from "../support/values.js";
import { type FakeStorage, platform } from "./fake-storage.js";
import { exportOf, MISSING, ownerOf, streamOf } from "./import-support.js";
import { filled } from "./storages.js";
import { TwoFiles } from "./two-files.js";

/** The owner of the database in a storage; none if it is new. */
async function ownerIn(
  storage: FakeStorage,
  options: OpenOptions = {},
): Promise<string | undefined> {
  const db = await open("two", { storage, ...options, ...wasmOption() });
  try {
    return await ownerOf(db);
  } finally {
    await db.close();
  }
}

/** Number of cases; other runtimes try only a few. */
function seeds(many: number): number {
  return context().thorough ? many : 2;
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === "string" ? code : String(error);
}

describe("interrupted imports", () => {
  test("a power loss at any call leaves no database, which is never opened as one, or all of it", async () => {
    const bytes = await exportOf("new", 60);
    const whole = new TwoFiles(false);
    expect(await ownerIn(whole, { from: streamOf(bytes, 20_000) })).toBe("new");
    const none = [new Uint8Array(0), new Uint8Array(0)] as const;
    const found = new Map<string, number>();
    for (let calls = 0; calls <= whole.events.length; calls++) {
      for (let seed = 0; seed < seeds(10); seed++) {
        const leave = () => whole.after(none, calls, random(1_000 * calls + seed));
        const left = leave();
        const size = left.content.length;
        const owner = await ownerIn(left).catch(codeOf);
        const salvaged = await ownerIn(leave(), { recovery: "salvage" }).catch(codeOf);
        expect(salvaged, `with recovery at ${calls}, ${seed}`).toBe(owner);
        if (owner === undefined) assert(size <= 16, `${size} bytes were taken for a new one`);
        else assert(owner === "new" || owner === MISSING.code, `${owner} at ${calls}, ${seed}`);
        found.set(String(owner), (found.get(String(owner)) ?? 0) + 1);
        if (owner !== MISSING.code) continue;
        await rejects(ownerIn(left, { readOnly: true }), MISSING);
        expect(await ownerIn(left, { from: bytes })).toBe("new");
        expect(await ownerIn(left)).toBe("new");
      }
    }
    expect([...found.keys()].sort()).toStrictEqual([
      "VARVE_DATABASE_NOT_FOUND",
      "new",
      "undefined",
    ]);
  });

  test("a marker over a database does not keep it from being salvaged", async () => {
    const storage = new TwoFiles(false);
    const wanted = { storage, ...wasmOption() };
    const written = await open("two", wanted);
    for (const key of ["a", "b", "c", "d"]) {
      written.set(key, filled(10_000, 1));
      written.flush();
    }
    const bytes = storage.content.slice();
    await written.close();
    bytes.set(new TextEncoder().encode("changes varve\r\n\x1a"));
    bytes.fill(0, 25_000, 25_100);
    storage.content = bytes.slice();
    await rejects(open("two", wanted), { code: "VARVE_CORRUPTION" });
    for (const recovery of ["prefix", "salvage"] as const) {
      storage.content = bytes.slice();
      const db = await open("two", { ...wanted, recovery });
      expect([...db.keys()]).toStrictEqual(recovery === "prefix" ? ["a"] : ["a", "c", "d"]);
      await db.close();
    }
  });

  test("a half-filled file stays one if the next import fails", async () => {
    const storage = new TwoFiles(false);
    const half = streamOf(await exportOf("new", 60), 5_000);
    storage.fault = ({ at }) => (at > 9_000 ? platform.lost() : undefined);
    await rejects(ownerIn(storage, { from: half }), {});
    storage.fault = () => undefined;
    storage.content = new TextEncoder().encode("filling varve\r\n\x1a and more");
    await rejects(ownerIn(storage, { from: filled(100, 1) }), {
      message: "None of them were kept",
    });
    await rejects(ownerIn(storage), { ...MISSING, message: "was being filled" });
  });

  for (const [sizes, oldCount, newCount] of [
    ["a smaller one", 400, 20],
    ["a larger one", 20, 400],
  ] as const) {
    test(`a power loss at any call while replacing by copying by ${sizes} leaves the old or the new database`, async () => {
      const old = await exportOf("old", oldCount);
      const bytes = await exportOf("new", newCount);
      const whole = new TwoFiles(false);
      expect(await ownerIn(whole, { from: old })).toBe("old");
      whole.events.length = 0;
      const before = [whole.content.slice(), new Uint8Array(0)] as const;
      expect(await ownerIn(whole, { from: streamOf(bytes, 50_000), replace: true })).toBe("new");
      const found = new Set<string | undefined>();
      for (let calls = 0; calls <= whole.events.length; calls++) {
        for (let seed = 0; seed < seeds(5); seed++) {
          const leave = () => whole.after(before, calls, random(1_000 * calls + seed));
          const left = leave();
          // The completion may be interrupted as well.
          const state = [left.content.slice(), left.next.content.slice()] as const;
          const owner = await ownerIn(left);
          found.add(owner);
          assert(owner === "old" || owner === "new", `${owner} at ${calls}, ${seed}`);
          const salvaged = await ownerIn(leave(), { recovery: "salvage" });
          expect(salvaged, `with recovery at ${calls}, ${seed}`).toBe(owner);
          if (seed > 0) continue;
          for (let again = 0; again < left.events.length; again += 2) {
            const twice = left.after(state, again, random(again));
            expect(await ownerIn(twice).catch(String), `${calls}, then ${again}`).toBe(owner);
          }
          expect(await ownerIn(left, { from: bytes, replace: true })).toBe("new");
        }
      }
      expect([...found].sort()).toStrictEqual(["new", "old"]);
    });
  }

  for (const inOneStep of [false, true]) {
    test(`a failure of any call, ${inOneStep ? "in one step" : "by copying"}, throws and keeps the old database`, async () => {
      const old = await exportOf("old", 5);
      const bytes = await exportOf("new", 40);
      for (const replace of [false, true]) {
        const outcomes = new Set<string>();
        for (let failing = 1; ; failing += context().thorough ? 1 : 3) {
          const storage = new TwoFiles(inOneStep);
          if (replace) expect(await ownerIn(storage, { from: old })).toBe("old");
          let calls = 0;
          let isOn = true;
          storage.fault = ({ op }) => {
            calls += 1;
            if (!isOn || calls !== failing) return undefined;
            if (op === "write" && failing % 3 === 0) return 0;
            return failing % 3 === 1 ? platform.enospc() : platform.io();
          };
          const from = streamOf(bytes, 9_000);
          const outcome = await ownerIn(storage, { from, replace }).catch((error) => error);
          isOn = false;
          if (calls < failing) break;
          const after = await ownerIn(storage).catch(codeOf);
          if (typeof outcome === "string") {
            expect(after, `call ${failing}`).toBe("new");
            outcomes.add(outcome);
            continue;
          }
          const { code } = outcome as { code: string };
          assert(
            /^VARVE_(STORAGE|QUOTA_EXCEEDED|CORRUPTION|UNSUPPORTED_FORMAT|DATABASE_EXISTS)/.test(
              code,
            ),
            String(outcome),
          );
          outcomes.add(code);
          const legal = replace ? ["old", "new"] : [undefined, MISSING.code, "new"];
          assert(legal.includes(after), `${after} after call ${failing}: ${outcome}`);
          expect(storage.openFiles + storage.next.openFiles, "open files").toBe(0);
        }
        assert(outcomes.has("VARVE_QUOTA_EXCEEDED"), [...outcomes].join());
      }
    });
  }

  test("a full disk while replacing is reported, and frees the space used so far", async () => {
    const storage = new TwoFiles(false);
    expect(await ownerIn(storage, { from: await exportOf("old", 100) })).toBe("old");
    const size = storage.content.length;
    const from = await exportOf("new", 3_000);
    for (const most of [from.length - 1_000, from.length + 1_000]) {
      // With one file, and with both.
      storage.fault = ({ op, at, length }) => {
        const other = at + length > size ? storage.next.content.length : 0;
        if (
          op !== "write" ||
          Math.max(at + length, other + (most > from.length ? size : 0)) <= most
        ) {
          return undefined;
        }
        return platform.quota();
      };
      await rejects(ownerIn(storage, { from, replace: true }), { code: "VARVE_QUOTA_EXCEEDED" });
      expect(storage.next.content.length).toBe(0);
      expect(storage.content.length).toBe(size);
    }
    storage.fault = () => undefined;
    expect(await ownerIn(storage)).toBe("old");
  });
});
