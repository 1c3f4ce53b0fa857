import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";

/** The imports of the engine: the file, detaching views before memory is reused, and reports of panics. */
const IMPORTS = [
  "detach",
  "flush",
  "panicked",
  "read",
  "size",
  "start_copying",
  "truncate",
  "views_held",
  "write",
];

/** The exports of the engine. Only js/engine calls these. */
const EXPORTS = [
  "abort",
  "at",
  "clear",
  "close",
  "commit",
  "count",
  "count_range",
  "delete_due",
  "end_snapshot",
  "end_turn",
  "error_report",
  "expect_at",
  "expire_next",
  "expires",
  "find",
  "find_many",
  "finish",
  "flush",
  "last_commit",
  "maintain",
  "note",
  "open",
  "pack",
  "packing",
  "pending",
  "pin",
  "pinned",
  "queue_capacity",
  "recovery",
  "release",
  "remove",
  "reserve",
  "result",
  "retain",
  "retained_bytes",
  "rollback",
  "savepoint",
  "scan",
  "scratch",
  "set",
  "set_begin",
  "set_now",
  "set_queued",
  "since",
  "snapshot",
  "sort_part",
  "stats",
  "touch",
  "unflushed",
  "unpin",
  "unwitnessed",
  "update_begin",
  "update_resize",
  "verify",
  "version",
  "walk_begin",
  "walk_current",
  "walk_end",
  "walk_next",
  "walk_value",
  "witness",
];

function built(name: string): WebAssembly.Module {
  return new WebAssembly.Module(readFileSync(join(context().root, "dist", name)));
}

describe("the boundary of the wasm module", () => {
  test("the module imports exactly these functions of one host module", () => {
    const imports = WebAssembly.Module.imports(built("varve.wasm"));
    expect(
      imports.map(({ module, name, kind }) => `${module}.${name} ${kind}`).sort(),
    ).toStrictEqual(IMPORTS.map((name) => `host.${name} function`));
  });

  test("the module exports exactly these functions, its memory and two linker symbols", () => {
    const exports = WebAssembly.Module.exports(built("varve.wasm"));
    const named = (wanted: string) =>
      exports
        .filter(({ kind }) => kind === wanted)
        .map(({ name }) => name)
        .sort();
    expect(named("function")).toStrictEqual(EXPORTS);
    expect(named("memory")).toStrictEqual(["memory"]);
    expect(named("global")).toStrictEqual(["__data_end", "__heap_base"]);
    expect(named("table")).toStrictEqual([]);
  });

  test("the debug build has the same boundary, except for unused parts that the optimizer removes", () => {
    const [release, debug] = [built("varve.wasm"), built("varve.debug.wasm")];
    const exportsOf = (module: WebAssembly.Module) =>
      WebAssembly.Module.exports(module)
        .map(({ name }) => name)
        .sort();
    expect(exportsOf(debug)).toStrictEqual(exportsOf(release));
    const host = new Set([...IMPORTS, "truncate"].map((name) => `host.${name}`));
    for (const { module, name } of WebAssembly.Module.imports(debug)) {
      assert(host.has(`${module}.${name}`), `${module}.${name} is asked for`);
    }
  });

  test("the module contains no names, debugging data or producers", () => {
    for (const section of ["name", "producers", "target_features", ".debug_info"]) {
      assert(
        WebAssembly.Module.customSections(built("varve.wasm"), section).length === 0,
        `the section ${section} is gone`,
      );
    }
  });
});
