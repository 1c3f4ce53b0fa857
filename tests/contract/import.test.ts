import { type Database, memory, type OpenOptions, type OpenProgress, open } from "varve";
import { text } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { random } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { everywhere, filled, freshName, opened } from "./storages.js";

type Bytes = Uint8Array<ArrayBuffer>;

const EXISTS = { name: "DatabaseExistsError", code: "VARVE_DATABASE_EXISTS" } as const;
const MISSING = { name: "DatabaseNotFoundError", code: "VARVE_DATABASE_NOT_FOUND" } as const;
const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** The export of a database with this many records, each of which names its owner. */
async function exportOf(owner: string, count: number, large = 0): Promise<Bytes> {
  const db = await opened(memory());
  db.set("owner", owner);
  db.set("count", `${count}`);
  for (let i = 0; i < count; i++) db.set(`key ${i}`, `${owner} ${i}`.repeat(1 + (i % 9)));
  if (large > 0) db.set("large", filled(large, 7));
  db.collection("notes", text()).set("note", owner);
  const bytes = new Uint8Array(await new Response(db.export()).arrayBuffer());
  await db.close();
  return bytes;
}

/** The owner of a database, after checking every record in it. */
async function ownerOf(db: Database): Promise<string | undefined> {
  const owner = db.getText("owner");
  if (owner === undefined) {
    expect(db.count()).toBe(0);
    return undefined;
  }
  const count = Number(db.getText("count"));
  for (let i = 0; i < count; i++) {
    expect(db.getText(`key ${i}`)).toBe(`${owner} ${i}`.repeat(1 + (i % 9)));
  }
  expect(db.count()).toBe(count + 2 + Number(db.has("large")));
  expect(db.collection("notes", text()).get("note")).toBe(owner);
  const { problems } = await db.verify();
  // One of two superblocks is enough, and the next write restores the other.
  expect(problems.filter(({ what }) => what !== "superblock")).toStrictEqual([]);
  return owner;
}

/** A stream of the bytes in chunks, with a callback before each. */
function streamOf(bytes: Bytes, chunkSize: number, before: (at: number) => void = () => {}) {
  let at = 0;
  return new ReadableStream<Bytes>({
    pull(controller) {
      before(at);
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.slice(at, at + chunkSize));
      at += chunkSize;
    },
  });
}

everywhere("import", ({ storage }) => {
  test("a database filled from bytes has all their data, in every form, and goes on like any other", async () => {
    const bytes = await exportOf("new", 3_000, 2_500_000);
    const framed = new Uint8Array(bytes.length + 100);
    framed.set(bytes, 50);
    const forms = [
      bytes,
      bytes.slice().buffer,
      new DataView(framed.buffer, 50, bytes.length),
      new Blob([bytes]),
      new Response(bytes.slice()),
      streamOf(bytes, 100_003),
      streamOf(bytes.slice(0), 1 << 20),
      Promise.resolve(bytes),
    ];
    for (const from of forms) {
      const name = freshName();
      const db = await opened(storage, { from: from as Bytes }, name);
      expect(await ownerOf(db)).toBe("new");
      db.set("more", "1");
      db.collection("others", text()).set("a", "1");
      await db.close();
      const again = await opened(storage, {}, name);
      expect(again.getText("more")).toBe("1");
      again.delete("more");
      expect(await ownerOf(again)).toBe("new");
      await again.close();
    }
  });

  test("an existing database is refused, and left as it is", async () => {
    const from = await exportOf("new", 10);
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1");
    await rejects(open(name, { storage, from, ...wasmOption() }), { ...EXISTS, message: "open" });
    await db.close();
    await rejects(open(name, { storage, from, ...wasmOption() }), {
      ...EXISTS,
      message: "replace",
    });
    const again = await opened(storage, {}, name);
    expect([...again.keys()]).toStrictEqual(["a"]);
  });

  test("replace replaces a database, whichever is larger", async () => {
    const name = freshName();
    const small = await exportOf("small", 5);
    const large = await exportOf("large", 4_000, 3_000_000);
    const db = await opened(storage, {}, name);
    db.set("secret", "of the first");
    const wanted = { storage, from: small, replace: true, ...wasmOption() };
    await rejects(open(name, wanted), { name: "DatabaseBusyError", message: "Close it" });
    await db.close();
    for (const [bytes, owner] of [
      [small, "small"],
      [large, "large"],
      [small, "small"],
    ] as const) {
      const replaced = await opened(
        storage,
        { from: streamOf(bytes, 77_777), replace: true },
        name,
      );
      expect(await ownerOf(replaced)).toBe(owner);
      if (owner === "small") assert(replaced.stats().fileBytes < 3_000_000);
      replaced.set("more", "1");
      await replaced.close();
      const again = await opened(storage, {}, name);
      expect(again.getText("more")).toBe("1");
      again.delete("more");
      expect(await ownerOf(again)).toBe(owner);
      await again.close();
    }
    // If there is nothing to replace, it is filled as without the option.
    const fresh = await opened(storage, { from: small, replace: true });
    expect(await ownerOf(fresh)).toBe("small");
  });

  test("a replaced database keeps its name and nothing of the old one", async () => {
    if (storage.databases === undefined) throw new Error("this storage cannot list databases");
    const name = freshName();
    const from = await exportOf("new", 100);
    await (await opened(storage, { from }, name)).close();
    const before = await storage.databases();
    await (await opened(storage, { from, replace: true }, name)).close();
    expect((await storage.databases()).sort()).toStrictEqual(before.sort());
    expect(await storage.destroy?.(name)).toBe(true);
  });

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

describe("options of an import", () => {
  test("a response or stream that is locked or was read is refused", async () => {
    const used = new Response(new Uint8Array(9));
    await used.arrayBuffer();
    const locked = new Response(new Uint8Array(9));
    const reader = locked.body?.getReader();
    const reported = { ...BAD, message: /was already read, or is being read/ };
    for (const from of [used, locked, locked.body as ReadableStream<Bytes>]) {
      await rejects(open("a", { storage: memory(), from, ...wasmOption() }), reported);
      await rejects(open("a", { from, readOnly: true, ...wasmOption() }), reported);
    }
    await reader?.cancel();
  });

  test("options without a meaning are refused", async () => {
    const from = await exportOf("new", 1);
    const storage = memory();
    for (const wrong of [
      { replace: true },
      { replace: 1 as never, from },
      { replace: true, from, readOnly: true },
      { from, readOnly: true, storage },
    ]) {
      await rejects(open("a", { ...wrong, ...wasmOption() }), BAD);
    }
  });

  test("replace is refused by a storage that cannot replace, and nothing is changed", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    db.set("a", "1");
    await db.close();
    const before = fake.content.slice();
    const wanted = { storage: fake, from: await exportOf("new", 1), replace: true };
    await rejects(open("a", { ...wanted, ...wasmOption() }), {
      ...BAD,
      message: "not replace any",
    });
    expect(fake.content).toStrictEqual(before);
  });
});

/** A write that reached one of two files, to be replayed in part. */
interface Event {
  readonly file: 0 | 1;
  readonly op: "write" | "truncate" | "flush";
  readonly at: number;
  readonly bytes: Bytes;
}

/** Two files that record their calls: the main file and its shadow. */
class TwoFiles extends FakeStorage {
  readonly events: Event[] = [];
  next = new FakeStorage();
  /** Fails the call with this number, and all later ones if requested. */
  private readonly inOneStep: boolean;

  constructor(inOneStep: boolean) {
    super();
    this.inOneStep = inOneStep;
  }

  override async open() {
    const { file, ...more } = await super.open();
    const { next } = this;
    next.fault = (call) => this.fault(call);
    const openReplacement = async () => {
      const { file: other } = await next.open();
      const takeOver = () => {
        other.close();
        this.content = next.content;
        this.events.length = 0;
        next.content = new Uint8Array(0);
      };
      const remove = () => {
        other.close();
        next.content = new Uint8Array(0);
        this.note(1, "truncate", 0);
      };
      return { file: this.noting(other, 1), remove, ...(this.inOneStep && { takeOver }) };
    };
    return { ...more, file: this.noting(file, 0), openReplacement };
  }

  private note(file: 0 | 1, op: Event["op"], at = 0, bytes: Uint8Array = new Uint8Array(0)) {
    this.events.push({ file, op, at, bytes: bytes.slice() as Bytes });
  }

  private noting(file: Awaited<ReturnType<FakeStorage["open"]>>["file"], number: 0 | 1) {
    return {
      read: (buffer: Uint8Array, options: { at: number }) => file.read(buffer, options),
      write: (buffer: Uint8Array, { at }: { at: number }) => {
        const count = file.write(buffer, { at });
        this.note(number, "write", at, buffer.subarray(0, count));
        return count;
      },
      truncate: (size: number) => {
        file.truncate(size);
        this.note(number, "truncate", size);
      },
      getSize: () => file.getSize(),
      flush: () => {
        file.flush();
        this.note(number, "flush");
      },
      close: () => file.close(),
    };
  }

  /** The result of a power loss after this many calls: everything flushed, and a random part of the rest. */
  after(
    before: readonly [Bytes, Bytes],
    calls: number,
    chance: (below: number) => number,
  ): TwoFiles {
    const left = new TwoFiles(this.inOneStep);
    const files = [left, left.next] as const;
    for (const file of [0, 1] as const) {
      files[file].content = before[file].slice();
      const events = this.events.slice(0, calls).filter((event) => event.file === file);
      const flushed = events.map(({ op }) => op).lastIndexOf("flush");
      for (const [i, { op, at, bytes }] of events.entries()) {
        // The last call may have been done in part.
        const part = i < flushed ? 3 : chance(4);
        if (op === "flush" || part === 0) continue;
        const length = part === 1 ? chance(bytes.length + 1) : bytes.length;
        if (op === "truncate") {
          files[file].extend(at);
          files[file].content = files[file].content.slice(0, at);
        } else {
          files[file].extend(at + length);
          files[file].content.set(bytes.subarray(0, length), at);
        }
      }
    }
    return left;
  }
}

/** The owner of the database in a storage; none if it is new. */
async function looked(
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
    expect(await looked(whole, { from: streamOf(bytes, 20_000) })).toBe("new");
    const none = [new Uint8Array(0), new Uint8Array(0)] as const;
    const found = new Map<string, number>();
    for (let calls = 0; calls <= whole.events.length; calls++) {
      for (let seed = 0; seed < seeds(10); seed++) {
        const leave = () => whole.after(none, calls, random(1_000 * calls + seed));
        const left = leave();
        const size = left.content.length;
        const owner = await looked(left).catch(codeOf);
        const salvaged = await looked(leave(), { recovery: "salvage" }).catch(codeOf);
        expect(salvaged, `with recovery at ${calls}, ${seed}`).toBe(owner);
        if (owner === undefined) assert(size <= 16, `${size} bytes were taken for a new one`);
        else assert(owner === "new" || owner === MISSING.code, `${owner} at ${calls}, ${seed}`);
        found.set(String(owner), (found.get(String(owner)) ?? 0) + 1);
        if (owner !== MISSING.code) continue;
        await rejects(looked(left, { readOnly: true }), MISSING);
        expect(await looked(left, { from: bytes })).toBe("new");
        expect(await looked(left)).toBe("new");
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
    await rejects(looked(storage, { from: half }), {});
    storage.fault = () => undefined;
    storage.content = new TextEncoder().encode("filling varve\r\n\x1a and more");
    await rejects(looked(storage, { from: filled(100, 1) }), { message: "None of them were kept" });
    await rejects(looked(storage), { ...MISSING, message: "was being filled" });
  });

  for (const [sizes, oldCount, newCount] of [
    ["a smaller one", 400, 20],
    ["a larger one", 20, 400],
  ] as const) {
    test(`a power loss at any call while replacing by copying by ${sizes} leaves the old or the new database`, async () => {
      const old = await exportOf("old", oldCount);
      const bytes = await exportOf("new", newCount);
      const whole = new TwoFiles(false);
      expect(await looked(whole, { from: old })).toBe("old");
      whole.events.length = 0;
      const before = [whole.content.slice(), new Uint8Array(0)] as const;
      expect(await looked(whole, { from: streamOf(bytes, 50_000), replace: true })).toBe("new");
      const found = new Set<string | undefined>();
      for (let calls = 0; calls <= whole.events.length; calls++) {
        for (let seed = 0; seed < seeds(5); seed++) {
          const leave = () => whole.after(before, calls, random(1_000 * calls + seed));
          const left = leave();
          // The completion may be interrupted as well.
          const state = [left.content.slice(), left.next.content.slice()] as const;
          const owner = await looked(left);
          found.add(owner);
          assert(owner === "old" || owner === "new", `${owner} at ${calls}, ${seed}`);
          const salvaged = await looked(leave(), { recovery: "salvage" });
          expect(salvaged, `with recovery at ${calls}, ${seed}`).toBe(owner);
          if (seed > 0) continue;
          for (let again = 0; again < left.events.length; again += 2) {
            const twice = left.after(state, again, random(again));
            expect(await looked(twice).catch(String), `${calls}, then ${again}`).toBe(owner);
          }
          expect(await looked(left, { from: bytes, replace: true })).toBe("new");
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
          if (replace) expect(await looked(storage, { from: old })).toBe("old");
          let calls = 0;
          let isOn = true;
          storage.fault = ({ op }) => {
            calls += 1;
            if (!isOn || calls !== failing) return undefined;
            if (op === "write" && failing % 3 === 0) return 0;
            return failing % 3 === 1 ? platform.enospc() : platform.io();
          };
          const from = streamOf(bytes, 9_000);
          const outcome = await looked(storage, { from, replace }).catch((error) => error);
          isOn = false;
          if (calls < failing) break;
          const after = await looked(storage).catch(codeOf);
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
    expect(await looked(storage, { from: await exportOf("old", 100) })).toBe("old");
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
      await rejects(looked(storage, { from, replace: true }), { code: "VARVE_QUOTA_EXCEEDED" });
      expect(storage.next.content.length).toBe(0);
      expect(storage.content.length).toBe(size);
    }
    storage.fault = () => undefined;
    expect(await looked(storage)).toBe("old");
  });

  test("an open during the import joins it, and sees all of it", async () => {
    const bytes = await exportOf("new", 500);
    const storage = memory();
    const name = freshName();
    const first = open(name, { storage, from: streamOf(bytes, 5_000), ...wasmOption() });
    const second = open(name, { storage, ...wasmOption() });
    const [a, b] = await Promise.all([first, second]);
    onTestFinished(() => Promise.all([a.close(), b.close()]).then(() => {}));
    expect(await ownerOf(b)).toBe("new");
  });
});
