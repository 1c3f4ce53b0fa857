/**
 * The compiler's output about the package's types: in an editor, in the declarations of a program, which print types
 * in the same way, and in its errors.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { compile, compiled } from "./project.js";

const OPTIONS = {
  module: "NodeNext",
  moduleResolution: "NodeNext",
  lib: ["ES2022", "DOM", "ESNext.Disposable"],
};

const SCHEMAS = `
  import { connect, type Database, type Key, serve } from "varve";
  import { type Infer, type Input, json, option, str, struct, u16, u32, vec } from "varve/struct";

  const Size = struct("Size", { width: u16, height: u16 });
  const Product = struct("Product", { stock: u16, size: Size, tags: vec(str), note: option(str) });
  declare const db: Database;
`;

const PROGRAM = `${SCHEMAS}
  const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
  const served = serve("shop", {
    collections: { products: { of: Product, key: u32, indexes: { byWidth: "size.width" } } },
    procedures: { look: (db) => db.collection("products", Product).get("a") },
  });
  const shop = connect<typeof served>("shop", { collections: { products: true } });

  export const view = products.get("a")!;
  export const copy = view.snapshot();
  export const { updateIf, set } = products;
  export const found = await shop.products.get(1);
  export const looked = await shop.call.look();
  export const index = shop.products.index;
  export const everything = { Product, products, served, shop, remote: shop.products };
`;

/** The declaration of a name, on one line. */
function declarationOf(declarations: string, name: string): string {
  const found = new RegExp(`(?:export declare const |, )${name}: ([\\s\\S]*?);\n(?=export|$)`).exec(
    `${declarations.trimEnd()}\n`,
  );
  assert(found !== null, `${name} is declared`);
  return (found?.[1] ?? "")
    .replace(/import\("[^"]*"\)\./g, "")
    .replace(/\s+/g, " ")
    .trim();
}

describe("compiler output", () => {
  test("the type of a record shows its own fields, wherever the record comes from", () => {
    const { output, folder } = compiled(PROGRAM, {
      ...OPTIONS,
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
    });
    // Types that the package does not export could not be named there, which would be an error.
    expect(output).toBe("");
    const declarations = readFileSync(join(folder, "program.d.ts"), "utf8");
    const plain =
      "{ stock: number; size: { width: number; height: number; }; tags: string[]; " +
      "note: string | undefined; }";
    expect(declarationOf(declarations, "copy")).toBe(plain);
    expect(declarationOf(declarations, "found")).toBe(`${plain} | undefined`);
    expect(declarationOf(declarations, "looked")).toBe(`${plain} | undefined`);
    const size = "Snapshots<{ width: number; height: number; }>";
    expect(declarationOf(declarations, "view")).toBe(
      `{ readonly stock: number; readonly size: { readonly width: number; readonly height: number; } & ${size}; ` +
        `readonly tags: List<string, string>; readonly note: string | undefined; } & Snapshots<${plain}>`,
    );
    const input =
      "{ readonly stock: number; readonly size: { readonly width: number; readonly height: number; }; " +
      "readonly tags: Items<string>; readonly note?: string | null | undefined; }";
    assert(declarationOf(declarations, "set").includes(`value: ${input}`), "what set takes");
    const writable =
      `{ stock: number; size: { width: number; height: number; } & ${size} & ` +
      "Assigns<{ readonly width: number; readonly height: number; }>; tags: WritableList<string, string, string>; " +
      `note: string | undefined; } & Snapshots<${plain}> & Assigns<${input}>`;
    const changed = declarationOf(declarations, "updateIf");
    assert(changed.includes(`value: ${writable})`), "what a callback of updateIf is given");
    expect(declarationOf(declarations, "index")).toBe(
      `{ readonly byWidth: RemoteIndex<number, number, ${plain}>; }`,
    );
    for (const helper of ["PlainOf", "Plainly", "ViewOf", "WritableOf", "InputOf", "LeavesOf"]) {
      assert(!declarations.includes(helper), `no ${helper} is shown`);
    }
    assert(!/import\("[^"]*dist/.test(declarations), "each type comes from a name of the package");
  });

  test("the error for a refused type gives the reason in words", () => {
    for (const [program, why] of [
      [
        'serve("a", { procedures: { buy: async (db) => { db.count(); } } })',
        "A procedure is one transaction, so its function must not be async or a generator.",
      ],
      [
        "db.transaction(async () => {})",
        "A transaction is synchronous: its function must not be async or a generator.",
      ],
      [
        'serve("a", { collections: { a: { of: Product, keys: u32 } } })',
        "A collection has no option of this name, only: of, key, indexes, expireIn.",
      ],
      [
        'serve("a", { collections: { a: { of: json<{ b: 1 }>(), indexes: { by: "b" } } } })',
        "An index of values without a schema needs the options fields and type.",
      ],
      [
        'serve("a", { collections: { a: { of: Product, indexes: { by: { fields: "stock", uniq: true } } } } })',
        "An index has no option of this name, only: fields, type, unique, multiEntry.",
      ],
      [
        'db.collection("a", Product, { indexes: { by: { fields: "stock", uniq: true } } })',
        "An index has no option of this name, only: fields, type, unique, multiEntry.",
      ],
    ] as const) {
      const output = compile(`${SCHEMAS}\n${program};`, OPTIONS);
      assert(output.includes(why), output);
      assert(!output.includes("'never'"), output);
    }
  });
});
