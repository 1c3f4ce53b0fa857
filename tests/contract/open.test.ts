import type { Database, OpenOptions } from "varve";
import { databases, destroy, memory, open } from "varve";
import { json } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { bytes } from "../support/values.js";
import { FakeStorage } from "./fake-storage.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const CLOSED = { name: "DatabaseClosedError", code: "VARVE_DATABASE_CLOSED" } as const;

everywhere("open and close", ({ storage, name: place }) => {
  test("written data is there after closing and opening again", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    expect(db.recovery.created).toBe(true);
    for (let round = 0; round < 4; round++) {
      for (let i = 0; i < 100; i++) db.set(`key ${i}`, `round ${round}, ${i}`);
      db.delete(`key ${round}`);
      db = await reopened(db, storage, name);
      expect(db.recovery.created).toBe(false);
      expect(db.recovery.wasClean).toBe(true);
      expect(db.recovery.tornBytes).toBe(0);
      expect(db.count()).toBe(99);
      expect(db.getText("key 99")).toBe(`round ${round}, 99`);
      expect(db.has(`key ${round}`)).toBe(false);
    }
  });

  test("a database of 20,000 keys is read, changed and listed right after opening", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 20_000; i++) db.set(`key ${i}`, `${i}`);
    db = await reopened(db, storage, name);
    expect(db.count()).toBe(20_000);
    for (let i = 0; i < 20_000; i += 401) expect(db.getText(`key ${i}`)).toBe(`${i}`);
    expect(db.has("key 20000")).toBe(false);
    for (let i = 0; i < 20_000; i += 1_000) db.set(`key ${i}`, "changed");
    expect(db.delete("key 1")).toBe(true);
    expect(db.delete("key 1")).toBe(false);
    db.set("key 20000", "added");
    expect(db.count()).toBe(20_000);
    db = await reopened(db, storage, name);
    let listed = 0;
    for (const key of db.keys()) {
      const i = Number(key.slice(4));
      const changed = i === 20_000 ? "added" : i % 1_000 === 0 ? "changed" : `${i}`;
      expect(db.getText(key)).toBe(changed);
      listed += 1;
    }
    expect(listed).toBe(20_000);
  });

  test("a database that was opened and closed without a write opens again", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db = await reopened(db, storage, name);
    db = await reopened(db, storage, name);
    expect(db.count()).toBe(0);
    db.set("a", "1");
    expect(db.getText("a")).toBe("1");
  });

  test("a second open joins: both handles see the same data, and the last close closes", async () => {
    const name = freshName();
    const one = await opened(storage, {}, name);
    const two = await opened(storage, {}, name);
    assert(one !== two);
    one.set("a", "1");
    expect(two.getText("a")).toBe("1");
    two.transaction(() => one.set("b", "2"));
    await one.close();
    throws(() => one.get("a"), CLOSED);
    expect(two.getText("b")).toBe("2");
    two.set("c", "3");
    await two.close();
    throws(() => two.get("a"), CLOSED);
    const three = await opened(storage, {}, name);
    expect(three.count()).toBe(3);
  });

  test("concurrent opens share one opening", async () => {
    const name = freshName();
    const options = { storage, ...wasmOption() };
    const all = await Promise.all([1, 2, 3].map(() => open(name, options)));
    for (const db of all) onTestFinished(() => db.close());
    all[0]?.set("a", "1");
    expect(all[2]?.getText("a")).toBe("1");
    await all[0]?.close();
    await all[1]?.close();
    expect(all[2]?.getText("a")).toBe("1");
  });

  test("a second open with other options is refused, and the error names them", async () => {
    const name = freshName();
    const db = await opened(storage, { durability: "flushed", memory: 8_388_608 }, name);
    await rejects(opened(storage, {}, name), {
      name: "OptionsMismatchError",
      code: "VARVE_OPTIONS_MISMATCH",
      message: /durability is "flushed", not "written"; memory/,
    });
    for (const options of [{ strictViews: true }, { ordered: false }] as OpenOptions[]) {
      const other = { durability: "flushed", memory: 8_388_608, ...options } as const;
      await rejects(opened(storage, other, name), { name: "OptionsMismatchError" });
    }
    const joined = await opened(storage, { durability: "flushed", memory: 8_388_608 }, name);
    await db.close();
    expect(joined.count()).toBe(0);
  });

  test("recovery on an open database is refused, and an open without it joins", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    await rejects(opened(storage, { recovery: "salvage" }, name), {
      name: "OptionsMismatchError",
      message: /recovery is undefined, not "salvage"\. .*close it first/,
    });
    await db.close();
    const salvaged = await opened(storage, { recovery: "salvage" }, name);
    salvaged.set("a", "1");
    for (const recovery of [undefined, "salvage"] as const) {
      expect((await opened(storage, { recovery }, name)).getText("a")).toBe("1");
    }
    await rejects(opened(storage, { recovery: "prefix" }, name), { name: "OptionsMismatchError" });
  });

  test("closing twice at once is the same as closing once", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    const other = await opened(storage, {}, name);
    const [first, second] = [db.close(), db.close()];
    expect(first).toBe(second);
    await first;
    await db.close();
    expect(other.count()).toBe(0);
  });

  test("a database that is closing can be opened again at once", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1");
    const closing = db.close();
    const again = await opened(storage, {}, name);
    await closing;
    expect(again.getText("a")).toBe("1");
  });

  test("asyncDispose closes a database at the end of its block", async () => {
    const db = await opened(storage);
    await db[Symbol.asyncDispose]();
    throws(() => db.get("a"), CLOSED);
  });

  test("a name that looks like a path or a file is refused, and the error names the right call", async () => {
    const storageOf: Record<string, (folder: string) => string> = {
      file: (folder) => ` and the option storage: file\\("[^"]*/${folder}"\\)`,
      opfs: (folder) => ` and the option storage: opfs\\("contract/${folder}"\\)`,
    };
    const inFolder = storageOf[place] ?? (() => "");
    for (const [name, wanted] of [
      ["./data/shop", `"shop"${inFolder("data")}\\.`],
      ["data/shop.varve", `"shop"${inFolder("data")}\\.`],
      ["data\\shop", `"shop"${inFolder("data")}\\.`],
      ["a/b", `"b"${inFolder("a")}\\.`],
      ["data/eu/", `"shop"${inFolder("data/eu")}`],
      ["shop.varve", '"shop"\\.'],
      ["shop.VARVE", '"shop"\\.'],
    ] as const) {
      const message = new RegExp(`no path.*For .* give the name ${wanted}`);
      await rejects(open(name, { storage }), { ...BAD, message });
      await rejects(destroy(name, { storage }), { ...BAD, message });
    }
    for (const name of ["/data/shop", "C:\\data\\shop.varve", "..", ".", "../shop", "/"]) {
      const message = /no path.*give the name "shop"/;
      await rejects(open(name, { storage }), { ...BAD, message });
      await rejects(open(name, { from: new Uint8Array(1), readOnly: true }), { ...BAD, message });
    }
    expect((await databases({ storage })).filter((name) => /data|shop/.test(name))).toStrictEqual(
      [],
    );
  });

  test("names that differ in case, and files named like paths, are separate", async () => {
    const names = [
      "%2E.%2Fescape.varve",
      "%2E..varve",
      "%2E.varve",
      "a%2Fb.varve",
      "a%5Cb.varve",
      "CON",
      "con",
      "Con",
      "é",
      "e\u0301",
      " ",
      "a%2fb",
    ];
    const all: Database[] = [];
    for (const name of names) {
      const db = await opened(storage, {}, name);
      expect(db.count(), name).toBe(0);
      db.set("name", name);
      all.push(db);
    }
    for (const db of all) await db.close();
    for (const name of names) {
      const db = await opened(storage, {}, name);
      expect(db.getText("name")).toBe(name);
    }
  });

  test("a bad name is refused before anything is opened", async () => {
    const bad: [unknown, RegExp][] = [
      ["", /empty/],
      ["x".repeat(201), /200 bytes/],
      ["é".repeat(50), /200 bytes/],
      ["a\ud800", /surrogate/],
      [undefined, /string/],
      [7, /string.*7/],
      [{}, /string/],
    ];
    for (const [name, message] of bad) {
      await rejects(open(name as string, { storage }), { ...BAD, message });
    }
    await opened(storage, {}, "x".repeat(190));
  });

  test("databases of different storages are separate", async () => {
    const name = freshName();
    const here = await opened(storage, {}, name);
    const there = await opened(memory(), {}, name);
    here.set("a", "here");
    expect(there.has("a"), place).toBe(false);
  });
});

describe("options", () => {
  test("unknown options are refused with the list of the known ones", async () => {
    const open2 = (options: unknown) => open("options", options as OpenOptions);
    await rejects(open2({ durabilty: "flushed" }), {
      ...BAD,
      message:
        /"durabilty".*storage, from, replace, durability, memory, spaceFactor, history, ordered, strictViews, onError, wasm, readOnly, recovery, onProgress, signal/,
    });
    await rejects(open2({ onprogress: () => {} }), { ...BAD, message: /"onprogress"/ });
    for (const options of [null, 5, "written", [], () => {}]) await rejects(open2(options), BAD);
  });

  test("options of a wrong type or value are refused by name", async () => {
    const wrong: [object, RegExp][] = [
      [{ durability: "safe" }, /durability.*"buffered", "written" or "flushed".*"safe"/],
      [{ durability: true }, /durability/],
      [{ memory: "64 MiB" }, /memory.*"64 MiB"/],
      [{ memory: 0 }, /memory/],
      [{ memory: 1e12 }, /memory/],
      [{ memory: 1_048_576.5 }, /memory/],
      [{ ordered: 1 }, /ordered.*1/],
      [{ strictViews: "yes" }, /strictViews/],
      [{ onError: "log" }, /onError/],
      [{ readOnly: "yes" }, /readOnly.*"yes"/],
      [{ onProgress: true }, /onProgress.*true/],
      [{ signal: new AbortController() }, /signal.*AbortSignal/],
      [
        { storage: "./data" },
        /storage.*opfs\(\), file\(\), memory\(\) or durableObject\(\).*"\.\/data"/,
      ],
      [{ storage: null }, /storage/],
      [{ storage: memory }, /storage/],
      [{ storage: memory(), wasm: "varve.wasm" }, /wasm/],
    ];
    for (const [options, message] of wrong) {
      await rejects(open("options", options as OpenOptions), { ...BAD, message });
    }
  });

  test("every call refuses an invalid onProgress or signal", async () => {
    const db = await opened(memory(), wasmOption());
    const rows = db.collection("rows", json());
    rows.set("a", 1);
    const wrong: object[] = [
      { onProgress: null },
      { onProgress: {} },
      { onProgress: Number.NaN },
      { signal: null },
      { signal: true },
      { signal: new AbortController() },
    ];
    for (const options of wrong) {
      const refused = {
        ...BAD,
        message: /The option (onProgress must be a function|signal must be an Abort)/,
      };
      await rejects(db.compact(options), refused);
      await rejects(db.verify(options), refused);
      throws(() => db.export(options), refused);
      await rejects(db.migrate("rows", json(), options), refused);
      await rejects(rows.fromJsonLines('{"key":"a","value":2}', options), refused);
      expect(rows.get("a")).toBe(1);
    }
  });

  test("an undefined option counts as missing", async () => {
    const nothing = {
      durability: undefined,
      memory: undefined,
      onError: undefined,
      wasm: undefined,
    };
    const db = await opened(memory(), { ...nothing, ...wasmOption() });
    expect(db.durability).toBe("written");
  });

  test("each memory() is a separate storage", async () => {
    const name = freshName();
    const [one, two] = [await opened(memory(), {}, name), await opened(memory(), {}, name)];
    one.set("a", "1");
    expect(two.has("a")).toBe(false);
  });

  test("closing frees the memory: hundreds of databases, one after the other", async () => {
    for (let i = 0; i < 300; i++) {
      const db = await open("short-lived", { storage: memory(), ...wasmOption() });
      db.set("a", "1");
      await db.close();
    }
  });

  test("a database without order supports everything but ranges", async () => {
    const db = await opened(memory(), { ordered: false });
    db.set("a", "1");
    db.delete("a");
    db.set("b", "2");
    expect(db.getText("b")).toBe("2");
  });
});

describe("files", () => {
  /** A closed database with some flushed records. */
  async function written(): Promise<FakeStorage> {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < 40; i++) {
      db.set(`key ${i}`, filled(500, i));
      db.flush();
    }
    await db.close();
    fake.forget();
    return fake;
  }

  test("a foreign file is refused and left as it is", async () => {
    for (const content of [bytes("a letter to my aunt\n"), filled(100_000, 7), filled(20_000, 0)]) {
      const fake = new FakeStorage();
      fake.content = content.slice();
      await rejects(opened(fake), {
        name: "UnsupportedFormatError",
        code: "VARVE_UNSUPPORTED_FORMAT",
        message: /not a varve database/,
      });
      expect(fake.order).toBe("");
      expect(fake.openFiles).toBe(0);
      expect(fake.content).toStrictEqual(content);
    }
  });

  test("damaged flushed data is refused with details, and nothing is written", async () => {
    const fake = await written();
    const at = 8_192 + 4_096 + 300;
    fake.content[at] = (fake.content[at] as number) ^ 0x10;
    const before = fake.content.slice();
    const error = await rejects(opened(fake), {
      name: "CorruptionError",
      code: "VARVE_CORRUPTION",
      message: /damaged at byte \d+/,
    });
    const details = Reflect.get(error, "details") as Record<string, number>;
    assert((details.position as number) <= at && (details.position as number) > 8_192);
    assert((details.intactFrames as number) > 10);
    assert((details.intactBytes as number) > 5_000);
    assert((details.flushedFrames as number) >= (details.expectedFrame as number));
    expect(fake.order).toBe("");
    expect(fake.openFiles).toBe(0);
    expect(fake.content).toStrictEqual(before);
    // Once repaired, it opens.
    fake.content[at] = (fake.content[at] as number) ^ 0x10;
    expect((await opened(fake)).count()).toBe(40);
  });

  test("a torn end opens with all flushed data, and reports what was dropped", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    db.set("flushed", "1");
    db.flush();
    // The witness of the flush must not come in between.
    await fake.reaches(`${fake.order} write`);
    const before = fake.content.slice();
    db.set("torn", filled(2_000, 9));
    db.commit();
    const torn = fake.crashed();
    const first = before.findIndex((byte, i) => byte !== fake.content[i]);
    torn.content.fill(0, first + 700);
    const again = await opened(torn);
    expect(again.getText("flushed")).toBe("1");
    expect(again.has("torn")).toBe(false);
    expect(again.recovery.wasClean).toBe(false);
    assert(again.recovery.tornBytes > 0);
    again.set("after", "2");
    await again.close();
    const third = await opened(torn);
    expect(third.getText("after")).toBe("2");
    expect(third.count()).toBe(2);
  });

  test("a failed open rejects all waiting calls, and no later one", async () => {
    const fake = await written();
    const good = fake.content;
    fake.content = bytes("not a database").slice();
    const name = freshName();
    const attempts = [1, 2, 3].map(() => opened(fake, {}, name));
    const results = await Promise.allSettled(attempts);
    expect(results.map(({ status }) => status)).toStrictEqual(["rejected", "rejected", "rejected"]);
    expect(fake.openFiles).toBe(0);
    fake.content = good;
    expect((await opened(fake, {}, name)).count()).toBe(40);
  });
});
