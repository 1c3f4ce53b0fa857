import { Repo } from "@automerge/automerge-repo";
import { runStorageAdapterTests } from "@automerge/automerge-repo/helpers/tests/storage-adapter-tests.js";
import { file, open } from "varve";
import { VarveStorageAdapter } from "varve/automerge";
import { afterEach, assert, describe, expect, onTestFinished, test } from "vitest";
import { FakeStorage } from "../contract/fake-storage.js";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { FULL, fresh, nearlyFull, onBoth } from "./support.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };

const bytes = (...all: number[]) => new Uint8Array(all);

onBoth("Automerge's own suite", (to, kind) => {
  runStorageAdapterTests(async () => {
    await to().clear();
    return { adapter: new VarveStorageAdapter(to()) };
  }, kind);
});

onBoth("automerge: repositories", (to) => {
  // A repository stores what has changed a moment later, even if it was flushed before.
  const repository = () =>
    new Repo({ storage: new VarveStorageAdapter(to()), saveDebounceRate: 1 });
  afterEach(() => turn(50));

  test("automerge: a document is there in another repository, with its history", async () => {
    const first = repository();
    const handle = first.create<{ lines: string[] }>({ lines: [] });
    for (let i = 0; i < 50; i += 1) handle.change(({ lines }) => void lines.push(`${i}`));
    await first.flush();
    const second = repository();
    const found = await second.find<{ lines: string[] }>(handle.url);
    expect([...found.doc().lines]).toStrictEqual(Array.from({ length: 50 }, (_, i) => `${i}`));
    expect(found.heads()).toStrictEqual(handle.heads());
    found.change(({ lines }) => void lines.push("more"));
    await second.flush();
    const third = await repository().find<{ lines: string[] }>(handle.url);
    expect(third.doc().lines.at(-1)).toBe("more");
  });

  test("automerge: what is stored of a document is deleted with it", async () => {
    const repo = repository();
    const handle = repo.create({ a: 1 });
    await repo.flush();
    await turn(50);
    const prefix = `automerge/${handle.documentId}/`;
    assert((await to().count({ prefix })) > 0);
    repo.delete(handle.documentId);
    while ((await to().count({ prefix })) > 0) await turn(5);
  });
});

onBoth("automerge: the adapter", (to, kind) => {
  test("automerge: parts of keys may be any text, and none is the beginning of another one", async () => {
    const adapter = new VarveStorageAdapter(to(), { prefix: "keys/" });
    const keys = [["a"], ["a", "b"], ["ab"], ["a/b"], ["a%2Fb", "ö\u0000"], ["", ""], [""]];
    for (const [i, key] of keys.entries()) await adapter.save(key, bytes(i));
    for (const [i, key] of keys.entries()) expect(await adapter.load(key)).toStrictEqual(bytes(i));
    expect((await adapter.loadRange([])).map(({ key }) => key)).toStrictEqual(keys);
    expect((await adapter.loadRange(["a"])).map(({ key }) => key)).toStrictEqual([
      ["a"],
      ["a", "b"],
    ]);
    await adapter.removeRange(["a"]);
    expect((await adapter.loadRange([])).length).toBe(keys.length - 2);
    await adapter.remove(["a/b"]);
    expect(await adapter.load(["a/b"])).toBe(undefined);
    await adapter.removeRange([]);
    expect(await to().count({ prefix: "keys/" })).toBe(0);
  });

  test("automerge: the data may be changed after the call, and what is loaded is a copy", async () => {
    const adapter = new VarveStorageAdapter(to());
    const data = bytes(0, 1, 2, 3).subarray(1);
    const saving = adapter.save(["copy"], data);
    data.fill(9);
    await saving;
    const loaded = await adapter.load(["copy"]);
    expect(loaded).toStrictEqual(bytes(1, 2, 3));
    loaded?.fill(8);
    expect((await adapter.loadRange(["copy"]))[0]?.data).toStrictEqual(bytes(1, 2, 3));
    await adapter.save(["copy"], bytes());
    expect(await adapter.load(["copy"])).toStrictEqual(bytes());
  });

  test("automerge: bad keys and data are refused", async () => {
    const adapter = new VarveStorageAdapter(to());
    for (const key of ["a", undefined, [5], ["\ud800"]] as never[]) {
      await rejects(adapter.load(key), { ...BAD, message: /key/ });
      await rejects(adapter.save(key, bytes(1)), BAD);
      await rejects(adapter.remove(key), BAD);
      await rejects(adapter.loadRange(key), BAD);
      await rejects(adapter.removeRange(key), BAD);
    }
    await rejects(adapter.save(["a"], "text" as never), { ...BAD, message: /bytes/ });
    await rejects(adapter.save(["a"], new Uint8Array(17_000_000)), BAD);
  });

  test("automerge: a value of something else is reported", async () => {
    const adapter = new VarveStorageAdapter(to(), { prefix: "other/" });
    await to().set("other/a/", "text");
    const malformed = { name: "MalformedValueError", code: "VARVE_MALFORMED_VALUE" };
    await rejects(adapter.load(["a"]), malformed);
    await rejects(adapter.loadRange([]), malformed);
    expect(await to().getText("other/a/")).toBe("text");
  });

  test("automerge: on a full disk save rejects, and what was saved stays", async () => {
    const { to: full, free } = await nearlyFull(kind);
    const adapter = new VarveStorageAdapter(full);
    await adapter.save(["a"], bytes(1));
    const large = new Uint8Array(4_000_000).fill(7);
    await rejects(adapter.save(["a"], large), FULL);
    expect(await adapter.load(["a"])).toStrictEqual(bytes(1));
    free();
    await adapter.save(["a"], large);
    expect((await adapter.load(["a"]))?.length).toBe(large.length);
  });

  test("automerge: a closed database rejects", async () => {
    const db = await fresh(kind);
    const adapter = new VarveStorageAdapter(db);
    const closed = { code: "VARVE_DATABASE_CLOSED" };
    await db.close();
    await rejects(adapter.load(["a"]), closed);
    await rejects(adapter.save(["a"], bytes(1)), closed);
    await rejects(adapter.remove(["a"]), closed);
    await rejects(adapter.loadRange(["a"]), closed);
    await rejects(adapter.removeRange(["a"]), closed);
  });
});

describe("automerge: VarveStorageAdapter", () => {
  test("automerge: anything but a database or a client is refused, and a bad prefix", async () => {
    const db = await fresh("database");
    for (const wrong of [undefined, null, {}, new Map(), "shop", db.snapshot()]) {
      throws(() => new VarveStorageAdapter(wrong as object), { ...BAD, message: /open\(\)/ });
    }
    throws(() => new VarveStorageAdapter(db, { prefix: 5 as never }), {
      ...BAD,
      message: /prefix/,
    });
  });

  test("automerge: what has resolved is in the file, also of a buffered database", async () => {
    const storage = new FakeStorage();
    const db = await open("automerge", { storage, durability: "buffered", ...wasmOption() });
    onTestFinished(() => db.close());
    const adapter = new VarveStorageAdapter(db);
    const writes = () => storage.calls.filter(({ op }) => op === "write").length;
    const calls = [
      () => adapter.save(["a", "b"], bytes(1)),
      () => adapter.remove(["a", "b"]),
      () => adapter.save(["a", "c"], bytes(1)),
      () => adapter.removeRange(["a"]),
    ];
    for (const call of calls) {
      const before = writes();
      await call();
      assert(writes() > before);
    }
  });

  test("automerge: a document is there when the database is opened again", async () => {
    const storage = file(context().directory ?? "");
    let url: Parameters<Repo["find"]>[0] | undefined;
    for (const expected of [1, 2]) {
      const db = await open("automerge", { storage, ...wasmOption() });
      const repo = new Repo({ storage: new VarveStorageAdapter(db) });
      const handle = url ? await repo.find<{ n: number }>(url) : repo.create({ n: 0 });
      handle.change((doc) => {
        doc.n += 1;
      });
      url = handle.url;
      expect(handle.doc().n).toBe(expected);
      await repo.flush();
      await repo.shutdown();
      await db.close();
    }
  });
});
