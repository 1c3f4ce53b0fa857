/** Schemas printed as Rust. The output is committed, so that `cargo test` compiles and checks it. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { toRust } from "varve/rust";
import {
  added,
  bool,
  enum8,
  f32,
  json,
  optNonZero,
  str,
  struct,
  timestamp,
  u8,
  u16,
  u64,
  versioned,
} from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { vectors } from "../struct/vectors.js";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";

/** The name of a Rust module for a type. */
function moduleOf(name: string): string {
  return name.replace(/(?<=[a-z])[A-Z]/g, "_$&").toLowerCase();
}

describe("toRust", () => {
  test("prints the committed file for the schemas of all vectors, which cargo test compiles", () => {
    const modules = vectors.map(({ name, schema }) => {
      const indented = toRust({ kind: schema }).replace(/^(?=.)/gm, "    ");
      return `pub mod ${moduleOf(name)} {\n${indented}}\n`;
    });
    const all = vectors.map(({ name }) => {
      const path = `${moduleOf(name)}::${name}`;
      return `    ("${name}", <${path} as Record>::LAYOUT, <${path} as Record>::FINGERPRINT),\n`;
    });
    const head = "// Made by toRust: UPDATE_PRINTED=1 writes it again.\n\n";
    const list =
      "use varve::schema::{Layout, Record};\n\n" +
      `pub const ALL: &[(&str, &Layout, u64)] = &[\n${all.join("")}];\n`;
    const made = `${head}${list}\n${modules.join("\n")}`;
    const path = join(context().root, "crate/tests/schema/printed.rs");
    if (process.env.UPDATE_PRINTED !== undefined) writeFileSync(path, made);
    expect(readFileSync(path, "utf8")).toBe(made);
  });

  test("prints a schema with its imports", () => {
    const Product = struct("Product", { stock: u16, name: str });
    expect(toRust(Product)).toBe(`use musli_zerocopy::{Ref, ZeroCopy};
use varve::schema::Record;

#[derive(Clone, Copy, Debug, ZeroCopy, Record)]
#[repr(C)]
pub struct Product {
    pub stock: u16,
    pub name: Ref<str>,
}
`);
  });

  test("marks the added fields of a versioned struct, with their defaults", () => {
    const Product = versioned("Product", {
      stock: u16,
      name: str,
      price: added(f32, 9),
      sold: added(u64, 5n),
      size: added(enum8("s", "m"), "m"),
      since: added(timestamp, new Date(5)),
      hidden: added(bool, false),
      note: added(str, ""),
    });
    const printed = toRust(Product);
    expect(printed.slice(printed.indexOf("pub struct Product"))).toBe(`pub struct Product {
    pub root_size: u16,
    pub stock: u16,
    pub name: Ref<str>,
    #[varve(added = 9.0)]
    pub price: f32,
    #[varve(added = 5)]
    pub sold: u64,
    // Earlier records have "m" here in TypeScript, and zeros in Rust.
    #[varve(added)]
    pub size: Size,
    #[varve(timestamp, added = 5)]
    pub since: i64,
    #[varve(added)]
    pub hidden: bool,
    #[varve(added)]
    pub note: Ref<str>,
}
`);
  });

  test("converts names to valid Rust, and keeps the original names beside them", () => {
    const Inner = struct("self", { self: u8, _: u8, "": u8 });
    const Odd = struct('or"der\n\u202e', { createdAt: u8, created_at: u8, type: u8, inner: Inner });
    const printed = toRust(Odd);
    for (const line of [
      '#[varve(rename = "or\\"der\\u{a}\\u{202e}")]\npub struct OrDer {',
      '    #[varve(rename = "createdAt")]\n    pub created_at: u8,',
      '    #[varve(rename = "created_at")]\n    pub created_at_: u8,',
      "    pub r#type: u8,",
      '#[varve(rename = "self")]\npub struct OrDerSelf {',
      '    #[varve(rename = "self")]\n    pub self_: u8,',
    ]) {
      assert(printed.includes(line), `${line}\n\n${printed}`);
    }
  });

  test("refuses objects that are no schemas, and types that Rust lacks", () => {
    const notSchema = throws(() => toRust(json()), { code: "VARVE_BAD_ARGUMENT" });
    assert(notSchema.message.includes("Only a schema"));
    const noFloat = throws(() => toRust(struct("A", { a: optNonZero(f32) })));
    assert(noFloat.message.includes("no non-zero float"));
  });
});
