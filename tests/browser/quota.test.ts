import { open, opfs } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";

const MIB = 1024 * 1024;

/** Limits this origin to so many bytes more than it uses now. */
async function limitFreeSpace(bytes: number): Promise<void> {
  const { usage = 0 } = await navigator.storage.estimate();
  await context().limitStorage?.(usage + bytes);
  onTestFinished(() => context().limitStorage?.(undefined));
}

describe("an origin without free quota", () => {
  test("quota: a write that does not fit is refused, and nothing else is lost", async () => {
    const storage = opfs(`quota-${Date.now()}`);
    const db = await open("full", { storage, ...wasmOption() });
    onTestFinished(() => db.close());
    db.set("before", "kept");
    db.flush();
    await limitFreeSpace(3 * MIB);

    const value = new Uint8Array(100_000).fill(7);
    let written = 0;
    const fill = (): void => {
      for (; written < 200; written += 1) {
        db.set(`value ${written}`, value);
        db.commit();
      }
    };
    let refusal: unknown;
    try {
      fill();
    } catch (error) {
      refusal = error;
    }
    const { name, code } = refusal as { name: string; code: string };
    expect(name).toBe("QuotaExceededError");
    expect(code).toBe("VARVE_QUOTA_EXCEEDED");
    assert(written > 5, `${written} values fitted`);

    expect(db.getText("before")).toBe("kept");
    expect(db.has(`value ${written}`)).toBe(false);
    for (let index = 0; index < written; index += 1) {
      expect(db.get(`value ${index}`)?.[99_999]).toBe(7);
    }

    await context().limitStorage?.(undefined);
    const reached = written;
    fill();
    assert(written > reached, "it continues when there is space again");
    await db.close();
    const again = await open("full", { storage, ...wasmOption() });
    onTestFinished(() => again.close());
    expect(again.getText("before")).toBe("kept");
    expect(again.count()).toBe(201);
  });

  test("quota: deleting, compacting and writing again work, and acknowledged writes are kept", async () => {
    const storage = opfs(`quota-${Date.now()}`);
    let db = await open("emptied", { storage, ...wasmOption() });
    onTestFinished(() => db.close());
    await limitFreeSpace(8 * MIB);
    const fill = (from: number, prefix: string): number => {
      for (let index = from; index < 1_000; index += 1) {
        try {
          db.set(`${prefix} ${index}`, new Uint8Array(20_000).fill(index));
          db.commit();
        } catch (error) {
          expect((error as { code?: string }).code).toBe("VARVE_QUOTA_EXCEEDED");
          return index;
        }
      }
      return 1_000;
    };
    const written = fill(0, "first");
    assert(written > 150 && written < 500, `${written} values fitted`);
    for (let index = 0; index < written; index += 1) {
      if (index % 3 === 0) continue;
      expect(db.delete(`first ${index}`)).toBe(true);
      db.commit();
    }
    await db.compact();
    const again = fill(0, "again");
    assert(again > written / 3, `${again} of ${written} values fitted again`);
    await db.close();
    db = await open("emptied", { storage, ...wasmOption() });
    expect(db.recovery.wasClean).toBe(true);
    expect(db.count()).toBe(Math.ceil(written / 3) + again);
    for (let index = 0; index < written; index += 3) {
      expect(db.get(`first ${index}`)?.[19_999]).toBe(index % 256);
    }
    for (let index = 0; index < again; index += 1) {
      expect(db.get(`again ${index}`)?.[19_999]).toBe(index % 256);
    }
    for (const key of [...db.keys()]) expect(db.delete(key)).toBe(true);
    db.flush();
    expect(db.count()).toBe(0);
    await db.close();
  });

  test("quota: creating a database fails with the reason, and succeeds later", async () => {
    const storage = opfs(`quota-${Date.now()}`);
    await limitFreeSpace(0);
    await rejects(open("none", { storage, ...wasmOption() }), { code: "VARVE_QUOTA_EXCEEDED" });
    await context().limitStorage?.(undefined);
    const db = await open("none", { storage, ...wasmOption() });
    onTestFinished(() => db.close());
    expect(db.count()).toBe(0);
  });
});
