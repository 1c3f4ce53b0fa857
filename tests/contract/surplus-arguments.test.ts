/** Unknown arguments and options are never ignored: every call refuses them by name. */

import { connect, file, memory, opfs, serve } from "varve";
import { fromJson, inJson, toJson } from "varve/json";
import {
  auto,
  json,
  option,
  str,
  struct,
  text,
  u16,
  u32,
  union,
  vec,
  versioned,
} from "varve/struct";
import { describe, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { opened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** Calls a function as a program without types may do. */
type Loose = (...args: unknown[]) => unknown;

const Product = struct("Product", { stock: u16, name: str });

describe("surplus arguments", () => {
  test("calls refuse a surplus argument that a program might expect to have an effect", async () => {
    const db = await opened(memory());
    db.set("a", "1");
    const jobs = db.collection("jobs", json<number>(), { key: auto() });
    const [{ version }] = [db.getEntry("a") ?? { version: 0 }];
    const operation = { type: "delete", key: "a" };
    const options = { ifVersion: version + 1 };
    let ran = 0;
    const body = () => {
      ran += 1;
    };
    const calls: [object, string, unknown[]][] = [
      [db, "transaction", [body, {}, { durability: "flushed" }]],
      [db, "delete", ["a", options]],
      [db, "clear", [{}, options]],
      [db, "batch", [[operation], options]],
      [jobs, "push", [1, options]],
      [jobs, "delete", [1, options]],
      [jobs, "clear", [{}, options]],
      [jobs, "batch", [[{ type: "delete", key: 1 }], options]],
    ];
    for (const [on, name, args] of calls) {
      const call = (on as Record<string, Loose>)[name] as Loose;
      const message = new RegExp(
        `${name}\\(\\) takes no more arguments, nor options. Given: an Object`,
      );
      throws(() => call.apply(on, args), { ...BAD, message });
    }
    expect(ran).toBe(0);
    expect(db.getText("a")).toBe("1");
    expect(jobs.count()).toBe(0);
    // A trailing undefined does not count as an argument.
    (db.transaction as Loose).call(db, body, undefined);
    expect((db.delete as Loose).call(db, "a", undefined)).toBe(true);
  });

  test("functions that make storages, types and texts refuse surplus arguments", () => {
    const bytes = Product.encode({ stock: 1, name: "" });
    const calls: [string, Loose, unknown[]][] = [
      ["memory()", memory as Loose, [{ limit: 1 }]],
      ["file()", file as Loose, ["./data", { lock: false }]],
      ["opfs()", opfs as Loose, ["data", {}]],
      ["json()", json as Loose, [{}, Product]],
      ["text()", text as Loose, ["latin1"]],
      ["auto()", auto as Loose, [100]],
      ["option()", option as Loose, [u16, 0]],
      ["vec()", vec as Loose, [u16, 10]],
      ["union()", union as Loose, [{ A: u16 }, {}]],
      ["inJson()", inJson as Loose, [Product, { renameAll: "camelCase" }, {}]],
      ["struct()", struct as Loose, ["A", { a: u16 }, { versioned: true }]],
      ["versioned()", versioned as Loose, ["A", { a: u16 }, {}]],
      ["toJson()", toJson as Loose, [Product, bytes, 2]],
    ];
    for (const [name, call, args] of calls) {
      const message = new RegExp(`${name.replace("()", "\\(\\)")} takes no more arguments`);
      throws(() => call(...args), { ...BAD, message });
    }
    throws(() => (json as Loose)(Product), { ...BAD, message: /no option but lossy/ });
    throws(() => (Product.view as Loose)(bytes, 8), { ...BAD, message: /view\(\) takes bytes/ });
    const parse = fromJson as Loose;
    throws(() => parse(Product, "{}", { ignoreUnkown: true }), { ...BAD, message: /ignoreUnkown/ });
    throws(() => parse(Product, "{}", true), { ...BAD, message: /options of fromJson/ });
  });
});

describe("arguments of serve", () => {
  const serves = serve as Loose;

  test("serve refuses bad options when it is called, not when a client asks", () => {
    const wrong: [unknown, RegExp][] = [
      [{ storage: [memory(), memory()] }, /option storage must be one storage.*Given: an Array/],
      [{ storage: memory }, /option storage must be one storage.*Given: a function/],
      [{ durability: "safe" }, /durability/],
      [{ memory: "64 MiB" }, /memory/],
      [{ spaceFactor: 9 }, /spaceFactor/],
      [{ onError: 1 }, /onError/],
      [{ storge: memory() }, /"storge"/],
      [{ from: new Uint8Array(1) }, /no option "from"/],
      [{ procedures: [] }, /procedures of serve\(\) must be an object/],
      [{ procedures: { buy: 1 } }, /procedure "buy".*must be a function/],
      [{ procedures: { buy: async () => {} } }, /procedure "buy".*must not be async/],
      [{ procedures: { *buy() {} } }, /procedure "buy".*must not be async or a generator/],
      [{ collections: 1 }, /collections of serve\(\) must be an object/],
      [{ collections: { a: {} } }, /collection "a".*needs a codec/],
      [{ collections: { a: u16 } }, /collection "a".*needs a codec/],
      [
        { collections: { a: { of: Product, keys: u32 } } },
        /collection "a".*no option "keys".*of, key/,
      ],
      [{ collections: { a: { key: u32 } } }, /collection "a".*needs a codec/],
      [{ collections: { a: { of: Product, key: "u32" } } }, /collection "a"/],
      [{ collections: { a: { of: Product, indexes: { x: "price" } } } }, /collection "a".*"price"/],
      [
        { collections: { a: { of: json(), indexes: { x: "b" } } } },
        /collection "a".*its type is not given/,
      ],
      [
        { collections: { a: { of: Product, indexes: { x: { fields: "stock", uniq: true } } } } },
        /collection "a".*"uniq"/,
      ],
    ];
    for (const [options, message] of wrong) {
      throws(() => serves("shop", options), { ...BAD, message });
    }
    throws(() => serves("./data/shop"), { ...BAD, message: /give the name "shop"/ });
    throws(() => serves("shop.varve"), { ...BAD, message: /give the name "shop"/ });
    throws(() => serves(""), { ...BAD, message: /empty/ });
  });

  test("serve rejects a client's name that the storage refuses", async () => {
    const client = connect("a/b", { worker: serve("a/b", { storage: memory() }).here });
    const message = /give the name "b"/;
    await rejects(client.ready, { code: BAD.code, message });
    await rejects(client.get("a"), { code: BAD.code, message });
    await client.close();
  });
});
