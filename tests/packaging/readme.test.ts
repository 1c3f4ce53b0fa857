/** The programs of README.md and of the pages beside docs/places.md run as printed; worker.ts runs in tests/edge. */

import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { copied, developed, inChromium } from "../fixtures/fixture.js";
import { until } from "../support/values.js";
import { prepared, ranAsShown, shown, shownIn } from "./documented-programs.js";
import { command, compile, root } from "./project.js";

const README = "README.md";
const PAGES = "docs/pages.md";
const RECORDS = "docs/records.md";
const STANDARD = "docs/standard.md";
const LIVE = "docs/live.md";
const STRUCTURED = "docs/structured.md";
const TYPES = { module: "NodeNext", moduleResolution: "NodeNext", lib: ["ES2022", "DOM"] };

const linesOf = (code: string) =>
  code
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");

/** Waits until a page writes this to its console, in Vite's development server. The last file is the page's. */
async function writes(files: Readonly<Record<string, string>>, wanted: unknown): Promise<void> {
  const folder = copied();
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const first = Object.keys(files).at(-1);
  writeFileSync(
    join(folder, "index.html"),
    `<!doctype html><body><script type="module" src="/${first}"></script>`,
  );
  const url = await developed(folder, {});
  await inChromium(async (page) => {
    const written: string[] = [];
    page.on("console", async (message) => {
      for (const one of message.args()) written.push(JSON.stringify(await one.jsonValue()));
    });
    await page.goto(url);
    await until(() => written.includes(JSON.stringify(wanted)));
  });
}

describe("the programs of the README", () => {
  test("the list is complete, each with its file name and how it is run", () => {
    expect(
      [
        README,
        "docs/api.md",
        "docs/durability.md",
        PAGES,
        RECORDS,
        LIVE,
        STRUCTURED,
        STANDARD,
        "docs/cloudflare.md",
      ].map((page) => shownIn(page).map(({ file }) => file)),
    ).toStrictEqual([
      ["shop.mjs", "main.js", "records.ts"],
      [],
      [],
      ["db.ts", "main.ts"],
      ["src/main.rs", "users.mjs", "payments.mjs"],
      ["stock.mjs", "kept.mjs"],
      ["drafts.mjs"],
      ["users.mjs"],
      ["worker.ts"],
    ]);
    const length = readFileSync(root(README), "utf8").split("\n").length;
    assert(length < 150, `the README has ${length} lines`);
    const manual = readFileSync(root("CONTRIBUTING.md"), "utf8");
    assert(manual.includes("`README.md` and `docs/` are run by tests"), "as CONTRIBUTING says");
  });

  test("the first one prints what it says, as a module and with types", async () => {
    const program = shown(README, "shop.mjs");
    const promised = /console\.log\(.*\/\/ (.+)$/m.exec(program.source)?.[1];
    assert(promised !== undefined, "it prints something and says what");
    for (const place of ["node", "node24"]) {
      expect(await ranAsShown(program, place), place).toBe(promised.replaceAll('"', ""));
    }
    assert(linesOf(program.source).length <= 12, "it is short");
    expect(compile(program.source, TYPES)).toBe("");
  });

  test("the page's program prints what it says", async () => {
    const { source } = shown(README, "main.js");
    await writes({ "main.js": source }, "Boost 350");
  });

  test("the page's program with collections sells one twice and shows what is left", async () => {
    const files = {
      "db.ts": shown(PAGES, "db.ts").source,
      "main.ts": shown(PAGES, "main.ts").source,
    };
    await writes(files, [["yeezy", { stock: 98, name: "Boost 350" }]]);
  });

  test("the program with records runs with its types removed, on what it has stored", async () => {
    const program = shown(README, "records.ts");
    for (const place of ["node24", "deno", "bun"]) {
      expect(await ranAsShown(program, place), place).toBe("Yeezy Boost 350 V2 20000");
    }
    expect(compile(program.source, TYPES)).toBe("");
  });

  test("the program that follows a collection and an index prints what it says", async () => {
    const program = shown(LIVE, "stock.mjs");
    for (const place of ["node", "node24"]) {
      const lines = (await ranAsShown(program, place)).split("\n");
      expect(lines, place).toStrictEqual(["a 3", "b 2,a 3", "changed b,a", "Boost 350"]);
    }
  });

  test("the program that keeps a range prints what it says", async () => {
    const program = shown(LIVE, "kept.mjs");
    for (const place of ["node", "node24"]) {
      const lines = (await ranAsShown(program, place)).split("\n");
      expect(lines, place).toStrictEqual(["Milk false 1", "Milk,Salt"]);
    }
  });

  test("the program with values as they are prints what it says", async () => {
    const program = shown(STRUCTURED, "drafts.mjs");
    for (const place of ["node", "node24"]) {
      expect(await ranAsShown(program, place), place).toBe("true true");
    }
  });

  test("the program with indexes of plain objects prints what it says", async () => {
    const program = shown(RECORDS, "users.mjs");
    for (const place of ["node", "node24"]) {
      const lines = (await ranAsShown(program, place)).split("\n");
      expect(lines, place).toStrictEqual(["30", "[ 'bob', 'ann' ]", "[ 'ann', 'bob' ]"]);
    }
  });

  test("the program with a JSON form prints what it says", async () => {
    const program = shown(RECORDS, "payments.mjs");
    const [, promised] = /It prints `(.*)`\./.exec(readFileSync(root(RECORDS), "utf8")) ?? [];
    for (const place of ["node", "node24"]) {
      expect(await ranAsShown(program, place), place).toBe(promised);
    }
  });

  test("the program with a schema of zod prints what it says", async () => {
    const { folder, commandLine } = await prepared(shown(STANDARD, "users.mjs"), "node");
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(root("node_modules/zod"), join(folder, "node_modules/zod"));
    expect(command(commandLine, folder).trim()).toBe("0");
  });

  test("the Rust program reads and changes records in fewer than forty lines", async () => {
    const program = shown(README, "records.ts");
    const rust = shown(RECORDS, "src/main.rs").source;
    const { folder, commandLine } = await prepared(program, "node24");
    expect(command(commandLine, folder).trim()).toBe("Yeezy Boost 350 V2 20000");
    const package_ = join(folder, "rust");
    mkdirSync(join(package_, "src"), { recursive: true });
    writeFileSync(join(package_, "src/main.rs"), rust);
    // The command of the page, with the path of this crate.
    const [, crate = "", musli = ""] =
      /Cargo needs `(varve = [^`]*)` and `(musli-zerocopy = [^`]*)`/.exec(
        readFileSync(root(RECORDS), "utf8"),
      ) ?? [];
    const here = crate.replace("../varve/crate", root("crate"));
    assert(here !== crate, crate);
    writeFileSync(
      join(package_, "Cargo.toml"),
      `[package]\nname = "records"\nedition = "2024"\n[dependencies]\n${here}\n${musli}\n[workspace]\n`,
    );
    cpSync(root("Cargo.lock"), join(package_, "Cargo.lock"));
    cpSync(join(folder, "shop.varve"), join(package_, "shop.varve"));
    const run = ["cargo", "run", "--quiet", "--offline", "--target-dir", root("target/readme")];
    expect(command(run, package_).trim()).toBe("19999 of Yeezy Boost 350 V2");
    cpSync(join(package_, "shop.varve"), join(folder, "shop.varve"));
    const reading = program.source.replace(/^products\.(set|updateIf)\(.*\n/gm, "");
    writeFileSync(join(folder, program.file), reading);
    expect(command(commandLine, folder).trim()).toBe("Yeezy Boost 350 V2 19999");
    const lines = [...linesOf(program.source), ...linesOf(rust)];
    assert(lines.length > 20 && lines.length < 40, `${lines.length} lines`);
    const example = linesOf(readFileSync(root("crate/examples/records.rs"), "utf8"));
    for (const line of linesOf(rust)) assert(example.includes(line), line);
  });
});
