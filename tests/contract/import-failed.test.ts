import { type OpenOptions, type OpenProgress, open } from "varve";
import { assert, expect, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { random } from "../support/values.js";
import { BAD, type Bytes, exportOf, MISSING, ownerOf, streamOf } from "./import-support.js";
import { everywhere, filled, freshName, opened } from "./storages.js";

everywhere("failed imports", ({ storage }) => {
  test("damaged, cut off or foreign bytes leave no database, or the previous one", async () => {
    const bytes = await exportOf("new", 2_000);
    const name = freshName();
    const refused = async (from: Bytes, replace: boolean, at: string) => {
      try {
        await (await open(name, { storage, from, replace, ...wasmOption() })).close();
      } catch (error) {
        const { code, message } = error as Error & { code: string };
        assert(["VARVE_CORRUPTION", "VARVE_UNSUPPORTED_FORMAT"].includes(code), `${at}: ${error}`);
        assert(message.includes("None of them were kept"), message);
        return true;
      }
      return false;
    };
    const hostile: [string, Bytes][] = [
      ["nothing", new Uint8Array(0)],
      ["zeros", filled(20_000, 0)],
      ["a text", new TextEncoder().encode("<!doctype html>")],
      ["its start", bytes.slice(0, 8_192)],
      ["a half", bytes.slice(0, bytes.length / 2)],
    ];
    const next = random(7);
    for (let i = 0; i < 12; i++) {
      const flipped = bytes.slice();
      // Within the log; its end may be blank.
      const at = 8_300 + next(bytes.length / 2);
      flipped[at] = (flipped[at] as number) ^ (1 << next(8));
      hostile.push([`a flip at ${at}`, flipped]);
    }
    let kept = 0;
    for (const [what, from] of hostile) {
      // A flip may hit an unused byte, which is no damage.
      if (await refused(from, false, what)) continue;
      assert(what.startsWith("a flip"), what);
      kept += 1;
      await storage.destroy?.(name);
    }
    assert(kept < 6, `${kept} flips were taken`);
    const old = await opened(storage, { from: await exportOf("old", 50) }, name);
    await old.close();
    for (const [what, from] of hostile.slice(0, 6)) await refused(from, true, what);
    expect(await ownerOf(await opened(storage, {}, name))).toBe("old");
  });

  test("a failed or aborted import of a new database leaves nothing", async () => {
    const bytes = await exportOf("new", 500);
    const before = await storage.databases?.();
    const name = freshName();
    const stop = (at: OpenProgress["doing"] | undefined) => ({
      onProgress({ doing }: OpenProgress) {
        if (doing === at) throw new Error("enough");
      },
    });
    const failing = (at: number) => {
      if (at > 5_000) throw new Error("the network");
    };
    const isOver = { signal: AbortSignal.abort(new Error("enough")) };
    const isSoonOver = new AbortController();
    for (const options of [
      { from: new Uint8Array(0) },
      { from: filled(20_000, 0) },
      { from: bytes.slice(0, bytes.length / 2), replace: true },
      { from: streamOf(bytes, 1_000, failing) },
      { from: bytes, ...stop("filling") },
      { from: bytes, ...stop("verifying") },
      isOver,
      { signal: isSoonOver.signal },
    ] as OpenOptions[]) {
      const opening = open(name, { storage, ...options, ...wasmOption() });
      isSoonOver.abort(new Error("enough"));
      await rejects(opening, {});
      expect(await storage.databases?.()).toStrictEqual(before);
      await rejects(open(name, { storage, readOnly: true, ...wasmOption() }), {
        ...MISSING,
        message: "no database",
      });
      expect(await storage.destroy?.(name)).toBe(false);
    }
    expect(await ownerOf(await opened(storage, { from: bytes }, name))).toBe("new");
  });

  test("an empty file that existed stays, and readers find no database in it", async () => {
    const name = freshName();
    (await storage.open(name)).file.close();
    for (const options of [{ from: filled(100, 1) }, { readOnly: true }]) {
      const opening = open(name, { storage, ...options, ...wasmOption() });
      if (options.from !== undefined) await rejects(opening, { message: "None of them were kept" });
      else await rejects(opening, { ...MISSING, message: "is empty" });
      assert((await storage.databases?.())?.includes(name));
    }
    expect((await opened(storage, {}, name)).count()).toBe(0);
  });

  test("opening for writing removes the shadow file of a killed program", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1");
    await db.close();
    const before = await storage.databases?.();
    /** The size of the shadow file; it is left there, as by a killed program. */
    const beside = async (write: number) => {
      const found = await storage.open(name);
      const other = await found.openReplacement?.();
      if (other === undefined) throw new Error("every storage here can replace");
      const size = other.file.getSize();
      other.file.write(filled(write, 1), { at: 0 });
      other.file.close();
      found.file.close();
      return size;
    };
    expect(await beside(50_000)).toBe(0);
    expect(await storage.databases?.()).toStrictEqual(before);
    const reader = await opened(storage, { readOnly: true }, name);
    expect(reader.getText("a")).toBe("1");
    await reader.close();
    const again = await opened(storage, {}, name);
    expect(again.getText("a")).toBe("1");
    await again.close();
    expect(await beside(0)).toBe(0);
  });

  test("progress is reported, and the signal or a throw ends the import at any time", async () => {
    const bytes = await exportOf("new", 2_000, 1_500_000);
    const reported: OpenProgress[] = [];
    const onProgress = (progress: OpenProgress) => void reported.push(progress);
    await (await opened(storage, { from: bytes, onProgress })).close();
    expect([...new Set(reported.map(({ doing }) => doing))]).toStrictEqual([
      "filling",
      "verifying",
      "opening",
    ]);
    const filling = reported.filter(({ doing }) => doing === "filling");
    expect(filling.at(-1)).toStrictEqual({
      doing: "filling",
      bytes: bytes.length,
      total: bytes.length,
    });
    expect(filling[1]?.total).toBe(bytes.length);
    for (const replace of [false, true]) {
      for (let end = 1; end < reported.length; end += Math.ceil(reported.length / 8)) {
        const name = freshName();
        if (replace)
          await (await opened(storage, { from: await exportOf("old", 9) }, name)).close();
        const ending = new AbortController();
        let count = 0;
        const wanted: OpenOptions = {
          storage,
          replace,
          from: bytes,
          onProgress() {
            count += 1;
            if (count < end) return;
            if (end % 2 === 0) ending.abort();
            else throw new Error("enough");
          },
          signal: ending.signal,
          ...wasmOption(),
        };
        await rejects(
          open(name, wanted),
          end % 2 === 0 ? { name: "AbortError" } : { message: "enough" },
        );
        const after = await ownerOf(await opened(storage, {}, name));
        // While it is being opened it exists.
        const isOver = reported[end - 1]?.doing === "opening";
        expect(after, `${end} of ${reported.length}`).toBe(
          isOver ? "new" : replace ? "old" : undefined,
        );
      }
    }
  });

  test("an abort ends the import while the source is pending, and cancels the source", async () => {
    const bytes = await exportOf("new", 10);
    let cancel = (_: unknown) => {};
    const canceled = new Promise((resolve) => {
      cancel = resolve;
    });
    const silent = new ReadableStream<Bytes>({
      start: (controller) => controller.enqueue(bytes.slice(0, 5_000)),
      cancel: (reason) => cancel(reason),
    });
    const ending = new AbortController();
    const name = freshName();
    const wanted = { storage, from: silent, signal: ending.signal, ...wasmOption() };
    const onProgress = ({ bytes: came }: OpenProgress) => {
      if (came > 0) setTimeout(() => ending.abort("no longer wanted"));
    };
    const opening = open(name, { ...wanted, onProgress });
    expect(await opening.catch((error) => error)).toBe("no longer wanted");
    expect(await canceled).toBe("no longer wanted");
    const never = new Promise<Bytes>(() => {});
    const signal = AbortSignal.timeout(50);
    await rejects(open(name, { storage, from: never, signal, ...wasmOption() }), {
      name: "TimeoutError",
    });
    expect(await ownerOf(await opened(storage, { from: bytes }, name))).toBe("new");
  });

  test("a failing source keeps the previous database, or none", async () => {
    const bytes = await exportOf("new", 1_000);
    const name = freshName();
    const failing = () =>
      streamOf(bytes, 10_000, (at) => {
        if (at >= 30_000) throw new Error("the network");
      });
    const noBytes = new ReadableStream({ start: (to) => to.enqueue("text") }) as never;
    await rejects(open(name, { storage, from: failing(), ...wasmOption() }), {
      message: "the network",
    });
    await rejects(open(name, { storage, from: noBytes, ...wasmOption() }), BAD);
    await rejects(open(name, { storage, from: 7 as never, ...wasmOption() }), BAD);
    const missing = new Response("none", { status: 404 });
    const reported = /could not be fetched: the response has status 404/;
    await rejects(open(name, { storage, from: missing, ...wasmOption() }), { message: reported });
    const address = Object.defineProperty(missing, "url", { value: "https://a.example/b.varve" });
    await rejects(open(name, { storage, from: address, ...wasmOption() }), {
      message: /fetched from https:\/\/a\.example\/b\.varve: the response has status 404/,
    });
    const rejected = Promise.reject(new Error("offline"));
    await rejects(open(name, { storage, from: rejected, ...wasmOption() }), { message: "offline" });
    const old = await exportOf("old", 9);
    await (await opened(storage, { from: old }, name)).close();
    const replacing = { storage, from: failing(), replace: true, ...wasmOption() };
    await rejects(open(name, replacing), { message: "the network" });
    expect(await ownerOf(await opened(storage, {}, name))).toBe("old");
  });
});
