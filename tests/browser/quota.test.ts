import { open, opfs } from "varve";
import { cleanup, context, equal, ok, rejects, suite, test, wasmOption } from "../harness.js";

const MIB = 1024 * 1024;

/** Limits this origin to so many bytes more than it uses now. */
async function leaveRoom(bytes: number): Promise<void> {
  const { usage = 0 } = await navigator.storage.estimate();
  await context().limitStorage?.(usage + bytes);
  cleanup(() => context().limitStorage?.(undefined));
}

suite("an origin without free quota", () => {
  test("quota: a write that does not fit is refused, and nothing else is lost", async () => {
    const storage = opfs(`quota-${Date.now()}`);
    const db = await open("full", { storage, ...wasmOption() });
    cleanup(() => db.close());
    db.set("before", "kept");
    db.flush();
    await leaveRoom(3 * MIB);

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
    equal(name, "QuotaExceededError");
    equal(code, "VARVE_QUOTA_EXCEEDED");
    ok(written > 5, `${written} values fitted`);

    equal(db.getText("before"), "kept");
    equal(db.has(`value ${written}`), false);
    for (let index = 0; index < written; index += 1) {
      equal(db.get(`value ${index}`)?.[99_999], 7);
    }

    await context().limitStorage?.(undefined);
    const reached = written;
    fill();
    ok(written > reached, "with room again it goes on");
    await db.close();
    const again = await open("full", { storage, ...wasmOption() });
    cleanup(() => again.close());
    equal(again.getText("before"), "kept");
    equal(again.count(), 201);
  });

  test("quota: deleting, compacting and writing again work, and acknowledged writes are kept", async () => {
    const storage = opfs(`quota-${Date.now()}`);
    let db = await open("emptied", { storage, ...wasmOption() });
    cleanup(() => db.close());
    await leaveRoom(8 * MIB);
    const fill = (from: number, prefix: string): number => {
      for (let index = from; index < 1_000; index += 1) {
        try {
          db.set(`${prefix} ${index}`, new Uint8Array(20_000).fill(index));
          db.commit();
        } catch (error) {
          equal((error as { code?: string }).code, "VARVE_QUOTA_EXCEEDED");
          return index;
        }
      }
      return 1_000;
    };
    const written = fill(0, "first");
    ok(written > 150 && written < 500, `${written} values fitted`);
    for (let index = 0; index < written; index += 1) {
      if (index % 3 === 0) continue;
      equal(db.delete(`first ${index}`), true);
      db.commit();
    }
    await db.compact();
    const again = fill(0, "again");
    ok(again > written / 3, `${again} of ${written} values fitted again`);
    await db.close();
    db = await open("emptied", { storage, ...wasmOption() });
    equal(db.recovery.wasClean, true);
    equal(db.count(), Math.ceil(written / 3) + again);
    for (let index = 0; index < written; index += 3) {
      equal(db.get(`first ${index}`)?.[19_999], index % 256);
    }
    for (let index = 0; index < again; index += 1) {
      equal(db.get(`again ${index}`)?.[19_999], index % 256);
    }
    for (const key of [...db.keys()]) equal(db.delete(key), true);
    db.flush();
    equal(db.count(), 0);
    await db.close();
  });

  test("quota: creating a database fails with the reason, and succeeds later", async () => {
    const storage = opfs(`quota-${Date.now()}`);
    await leaveRoom(0);
    await rejects(open("none", { storage, ...wasmOption() }), { code: "VARVE_QUOTA_EXCEEDED" });
    await context().limitStorage?.(undefined);
    const db = await open("none", { storage, ...wasmOption() });
    cleanup(() => db.close());
    equal(db.count(), 0);
  });
});
