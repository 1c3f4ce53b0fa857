import { file, memory, opfs, type Storage } from "varve";
import { describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { bytes, text } from "../support/values.js";

/** The storages of this runtime. */
function storages(): { kind: string; make: () => Storage }[] {
  const { runtime, directory } = context();
  const unique = `storage-${Date.now()}`;
  let count = 0;
  const inMemory = { kind: "memory", make: memory };
  if (runtime === "worker") {
    return [inMemory, { kind: "opfs", make: () => opfs(`${unique}/${count++}`) }];
  }
  return [inMemory, { kind: "file", make: () => file(`${directory}/${unique}/${count++}`) }];
}

for (const { kind, make } of storages()) {
  describe(`the contract of storage: ${kind}`, () => {
    const opened = async (storage = make(), name = "shop") => {
      const { file: one } = await storage.open(name);
      onTestFinished(() => one.close());
      return one;
    };

    test("the storage has a kind", () => {
      expect(make().kind).toBe(kind);
    });

    test("a new file is empty", async () => {
      const one = await opened();
      expect(one.getSize()).toBe(0);
      expect(one.read(new Uint8Array(10), { at: 0 })).toBe(0);
    });

    test("written bytes are read back, from any offset", async () => {
      const one = await opened();
      expect(one.write(bytes("hello world"), { at: 0 })).toBe(11);
      const word = new Uint8Array(5);
      expect(one.read(word, { at: 6 })).toBe(5);
      expect(text(word)).toBe("world");
    });

    test("a read stops at the end of the file and leaves the rest of the buffer", async () => {
      const one = await opened();
      one.write(bytes("abc"), { at: 0 });
      const buffer = bytes("......");
      expect(one.read(buffer, { at: 1 })).toBe(2);
      expect(text(buffer)).toBe("bc....");
      expect(one.read(buffer, { at: 3 })).toBe(0);
      expect(one.read(buffer, { at: 3000 })).toBe(0);
    });

    test("a write beyond the end fills the gap with zeros", async () => {
      const one = await opened();
      one.write(bytes("x"), { at: 5 });
      expect(one.getSize()).toBe(6);
      const all = new Uint8Array(6).fill(255);
      expect(one.read(all, { at: 0 })).toBe(6);
      expect([...all]).toStrictEqual([0, 0, 0, 0, 0, 120]);
    });

    test("an overwrite changes its bytes and no others, and not the size", async () => {
      const one = await opened();
      one.write(bytes("aaaaaa"), { at: 0 });
      one.write(bytes("bb"), { at: 2 });
      const all = new Uint8Array(6);
      one.read(all, { at: 0 });
      expect(text(all)).toBe("aabbaa");
      expect(one.getSize()).toBe(6);
    });

    test("truncate shortens and lengthens, filling with zeros", async () => {
      const one = await opened();
      one.write(bytes("abcdef"), { at: 0 });
      one.truncate(2);
      expect(one.getSize()).toBe(2);
      one.truncate(4);
      const all = new Uint8Array(8).fill(255);
      expect(one.read(all, { at: 0 })).toBe(4);
      expect([...all.subarray(0, 4)]).toStrictEqual([97, 98, 0, 0]);
    });

    test("a grown file reads as zeros wherever nothing was written, in any order of writes", async () => {
      const one = await opened();
      const expected = new Uint8Array(700_000);
      const write = (at: number, length: number, mark: number) => {
        expected.fill(mark, at, at + length);
        expect(one.write(new Uint8Array(length).fill(mark), { at })).toBe(length);
      };
      // The file grows twice. The last bytes of the new range are written first, then some next to the old end.
      for (const [was, end, mark] of [
        [30, 400_000, 1],
        [400_000, 700_000, 11],
      ] as const) {
        write(was - 20, 20, mark);
        write(end - 64, 64, mark + 1);
        write(end - 131_000, 70, mark + 2);
        write(end - 290_000, 150_000, mark + 3);
        write(end - 250_000, 1_000, mark + 4);
        write(end - 132_000, 2_000, mark + 5);
        write(was + 5, 70, mark + 6);
        write(end - 131_100, 20, mark + 7);
      }
      const all = new Uint8Array(700_001).fill(255);
      expect(one.read(all, { at: 0 })).toBe(700_000);
      const differs = expected.findIndex((byte, at) => byte !== all[at]);
      expect(differs).toBe(-1);
    });

    test("a truncated file ends with what is written behind its end", async () => {
      const storage = make();
      const one = await opened(storage);
      one.write(bytes("far"), { at: 300_000 });
      one.truncate(131_072);
      one.write(bytes("near"), { at: 131_072 });
      one.close();
      const again = await opened(storage);
      expect(again.getSize()).toBe(131_076);
    });

    test("views of wasm memory are read into and written from in place", async () => {
      const one = await opened();
      const wasm = new WebAssembly.Memory({ initial: 4 });
      const out = new Uint8Array(wasm.buffer, 100, 70_000).fill(7);
      expect(one.write(out, { at: 3 })).toBe(70_000);
      const back = new Uint8Array(wasm.buffer, 100_000, 70_003);
      expect(one.read(back, { at: 0 })).toBe(70_003);
      expect([...back.subarray(0, 5)]).toStrictEqual([0, 0, 0, 7, 7]);
      expect(back[70_002]).toBe(7);
    });

    test("flush changes nothing", async () => {
      const one = await opened();
      one.write(bytes("abc"), { at: 0 });
      one.flush();
      expect(one.getSize()).toBe(3);
    });

    test("close may be called twice, and every other call on a closed file throws", async () => {
      const one = await opened();
      one.close();
      one.close();
      const buffer = new Uint8Array(1);
      throws(() => one.read(buffer, { at: 0 }));
      throws(() => one.write(buffer, { at: 0 }));
      throws(() => one.truncate(0));
      throws(() => one.getSize());
      throws(() => one.flush());
    });

    test("the same name opened again has the same bytes", async () => {
      const storage = make();
      const first = await opened(storage);
      first.write(bytes("kept"), { at: 0 });
      first.close();
      const second = await opened(storage);
      const all = new Uint8Array(4);
      expect(second.read(all, { at: 0 })).toBe(4);
      expect(text(all)).toBe("kept");
    });

    test("a file can be open only once", async () => {
      const storage = make();
      const first = await opened(storage);
      await rejects(storage.open("shop"), {
        name: "DatabaseBusyError",
        code: "VARVE_DATABASE_BUSY",
      });
      first.close();
      await opened(storage);
    });

    test("two storages are separate, whatever the names", async () => {
      const [one, two] = [make(), make()];
      const first = await opened(one);
      first.write(bytes("one"), { at: 0 });
      expect((await opened(two)).getSize()).toBe(0);
      expect(one.identity("shop")).not.toBe(two.identity("shop"));
      const again = one.identity("shop");
      expect(one.identity("shop")).toBe(again);
    });

    test("names that differ in case, dots, slashes or composition are different files", async () => {
      const storage = make();
      const names = [
        "a",
        "A",
        "a.",
        "a..b",
        "%41",
        // A name that looks like a path is listed by the file's own name.
        "%2E..varve",
        "%2E.%2Fa.varve",
        "%2Fa.varve",
        "a%2Fb.varve",
        "a%5Cb.varve",
        "a.varve.varve",
        "\0",
        " ",
        "é",
        "e\u0301",
        "CON",
        "con",
        "💾",
        "a".repeat(200),
      ];
      const all = await Promise.all(names.map((name) => opened(storage, name)));
      for (const [index, one] of all.entries()) one.write(bytes(`${index}`), { at: 0 });
      for (const [index, one] of all.entries()) {
        const expected = `${index}`;
        expect(one.getSize(), names[index]).toBe(expected.length);
        const content = new Uint8Array(expected.length);
        one.read(content, { at: 0 });
        expect(text(content), names[index]).toBe(expected);
      }
      expect(new Set(names.map((name) => storage.identity(name))).size).toBe(names.length);
    });

    test("a file with a name that looks like a path is listed by the name that opens and removes it", async () => {
      const storage = make();
      const names = ["%2E%2Fdata%2Fshop.varve", "shop", "shop.varve.varve", "shop.v2"];
      for (const name of names) {
        const { file: one } = await storage.open(name);
        one.write(bytes(name), { at: 0 });
        one.flush();
        one.close();
      }
      const listed = (await storage.databases?.()) ?? [];
      expect(listed.sort()).toStrictEqual([...names].sort());
      for (const name of listed) expect(await storage.destroy?.(name), name).toBe(true);
      expect(await storage.databases?.()).toStrictEqual([]);
    });

    test("an invalid name is refused before anything is touched", async () => {
      const storage = make();
      const wrong: [unknown, RegExp][] = [
        ["", /empty/],
        [7, /string.*Given: 7/],
        [undefined, /string.*undefined/],
        [null, /string.*null/],
        [{}, /string.*Object/],
        ["\ud800", /surrogate/],
        ["a\udc00b", /surrogate/],
        ["a".repeat(201), /200 bytes.*201/],
        ["A".repeat(67), /200 bytes.*201/],
        ["./data/shop", /no path.*For "\.\/data\/shop" give the name "shop"/],
        ["shop.varve", /For "shop\.varve" give the name "shop"\. \(A file/],
        ["Shop.VARVE", /give the name "Shop"/],
        ["shop.varve.varve.x/y", /give the name "y"/],
        ["C:\\data\\shop.varve", /give the name "shop"/],
        ["a/b", /give the name "b".*goes by "a%2Fb\.varve"/],
        ["..", /no path.*goes by "%2E\.\.varve"/],
        [".", /no path/],
        ["/", /no path/],
        ["data/", /no path/],
        ["%2E%2f.varve", /no path/],
        ["💾".repeat(17), /200 bytes.*204/],
      ];
      for (const [name, message] of wrong) {
        const pattern = { name: "TypeError", code: "VARVE_BAD_ARGUMENT", message };
        throws(() => storage.identity(name as string), pattern);
        await rejects(storage.open(name as string), pattern);
      }
    });
  });
}
