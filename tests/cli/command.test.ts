/** Common behavior of all commands: help, wrong usage, unreadable files, output that ends. */

import { execFileSync } from "node:child_process";
import {
  chmodSync,
  closeSync,
  copyFileSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { bin, database, folder, golden, printed, varve } from "./support.js";

const COMMANDS = [
  "stat",
  "get",
  "list",
  "log",
  "diff",
  "at",
  "schema",
  "verify",
  "salvage",
  "export",
];
/** The arguments of each command. */
function argumentsOf(command: string, path: string): string[] {
  const more = {
    get: ["key"],
    diff: ["--since", "0"],
    at: ["1"],
    salvage: [`${path}.new`],
    export: [`${path}.live`],
  };
  return [command, path, ...(more[command as keyof typeof more] ?? [])];
}

describe("varve", () => {
  test("--help lists the commands, and for each command its options", async () => {
    const all = await printed("--help");
    for (const command of COMMANDS) assert(all.includes(`\n  ${command} FILE`), command);
    for (const args of [["-h"], ["help"], ["help", "nonsense"]])
      expect(await printed(...args)).toBe(all);
    for (const command of COMMANDS) {
      const help = await printed(command, "--help");
      assert(help.startsWith(`Usage: varve ${command} FILE`), help);
      expect(await printed("help", command)).toBe(help);
      expect(await printed(command, "-h")).toBe(help);
      for (const text of [all, help]) {
        assert(/Exit codes:\n {2}0 .*\n {2}1 .*\n {2}2 .*\n {2}3 /.test(text), "the exit codes");
        for (const line of text.split("\n")) assert(line.length <= 90, `not too long: ${line}`);
      }
    }
  });

  test("--version prints the version of the package", async () => {
    const { version } = JSON.parse(readFileSync(join(context().root, "package.json"), "utf8"));
    for (const flag of ["--version", "-v"]) expect(await printed(flag)).toBe(`varve ${version}\n`);
  });

  test("unknown input exits with code 2, and names the help", async () => {
    const path = await database((db) => db.set("key", "value"));
    for (const args of [
      [],
      ["open", path],
      ["--json"],
      ["stat"],
      ["stat", path, "key"],
      ["stat", path, "--values"],
      ["get", path],
      ["get", path, ""],
      ["get", path, "-key"],
      ["get", path, "%%", "--base64"],
      ["get", path, "key".repeat(30_000)],
      ["list", path, "key"],
      ["list", path, "--limit", "-1"],
      ["list", path, "--limit", "many"],
      ["list", path, "--limit=1e3"],
      ["list", path, "--limit"],
      ["list", path, "--prefix"],
      ["list", path, "--prefix", "--json"],
      ["list", path, "--limit", "--"],
      ["list", path, "--json=yes"],
    ]) {
      const { code, stdout, stderr } = await varve(args);
      expect(code, args.join(" ")).toBe(2);
      expect(stdout.length, args.join(" ")).toBe(0);
      assert(stderr.startsWith("varve: ") && !stderr.includes("    at "), stderr);
      assert(/--help|^varve: A key /.test(stderr), stderr);
    }
  });

  test("words after -- are taken literally", async () => {
    const path = await database((db) => db.set("--json", "value"));
    expect(await printed("get", path, "--", "--json")).toBe("value");
  });

  test("an option's value may begin with a dash", async () => {
    const path = await database((db) => {
      for (const key of ["-d", "--json", "d"]) db.set(key, "value");
    });
    expect(await printed("list", path, "--prefix", "-d")).toBe("-d\n");
    expect(await printed("list", "--prefix=--json", path)).toBe("--json\n");
    const { stderr } = await varve(["list", path, "--limit", "-1"]);
    expect(stderr).toBe("varve: --limit must be a whole number: -1. See varve list --help.\n");
    const forgotten = await varve(["list", path, "--prefix", "--json"]);
    assert(
      /--prefix takes P, but --json is an option: write --prefix=--json if/.test(forgotten.stderr),
    );
  });

  test("the exit code is kept if standard error cannot be written", async () => {
    const path = await database(() => {});
    const full = openSync("/dev/full", "w");
    onTestFinished(() => closeSync(full));
    for (const [code, ...args] of [
      [3, "stat", `${path}.missing`],
      [2, "list", path, "--limit", "-1"],
      [1, "get", path, "none"],
    ] as const) {
      expect((await varve(args, { stderr: full })).code, args.join(" ")).toBe(code);
    }
  });

  test("an unreadable file exits with code 3 and the reason, and creates none", async () => {
    const directory = folder();
    writeFileSync(join(directory, "text"), "a text, and no database".repeat(1000));
    writeFileSync(join(directory, "empty"), "");
    writeFileSync(join(directory, "shop.varve"), "");
    mkdirSync(join(directory, "folder"));
    execFileSync("mkfifo", [join(directory, "pipe")]);
    const before = readdirSync(directory);
    for (const [name, reason] of [
      ["missing", /There is no file .*missing/],
      ["missing/too", /There is no file .*missing\/too\.\n/],
      ["shop", /There is no file .*shop\. Did you mean .*shop\.varve\?/],
      ["text/below", /cannot be read/],
      ["text", /is not a varve database/],
      ["empty", /is not a varve database: it is empty/],
      ["folder", /not a regular file/],
      ["pipe", /not a regular file/],
    ] as const) {
      for (const command of COMMANDS) {
        const { code, stdout, stderr } = await varve(argumentsOf(command, join(directory, name)));
        expect(code, `${command} ${name}`).toBe(3);
        expect(stdout.length).toBe(0);
        assert(reason.test(stderr), stderr);
      }
    }
    expect(readdirSync(directory)).toStrictEqual(before);
  });

  test("files of a newer format exit with code 3", async () => {
    const { code, stderr } = await varve(["stat", golden("newer-major")]);
    expect(code).toBe(3);
    assert(/newer/.test(stderr), stderr);
  });

  test("damage that prevents reading exits with code 3", async () => {
    for (const command of ["stat", "get", "list"]) {
      const { code, stderr } = await varve(argumentsOf(command, golden("damaged-frame")));
      expect(code, command).toBe(3);
      assert(/damaged/.test(stderr), stderr);
    }
  });

  test("a file that is open elsewhere exits with code 3 at once, and names the process", async () => {
    const path = await database((db) => db.set("key", "value"));
    const db = await open("shop", { storage: file(dirname(path)) });
    for (const command of COMMANDS) {
      const { code, stderr } = await varve(argumentsOf(command, path));
      expect(code, command).toBe(3);
      assert(stderr.includes(`process ${process.pid}`), stderr);
    }
    await db.close();
    expect(await printed("get", path, "key")).toBe("value");
  });

  test("a file in a read-only folder is left as it is", async () => {
    const path = golden("torn-frame");
    const before = { bytes: readFileSync(path), changed: statSync(path).mtimeMs };
    chmodSync(path, 0o444);
    chmodSync(dirname(path), 0o555);
    try {
      await printed("stat", path);
      await printed("list", path, "--values");
      expect(await printed("get", path, "kept")).toBe("flushed");
      expect(readdirSync(dirname(path))).toStrictEqual(["torn-frame.varve"]);
    } finally {
      chmodSync(dirname(path), 0o755);
    }
    expect(new Uint8Array(readFileSync(path))).toStrictEqual(new Uint8Array(before.bytes));
    expect(statSync(path).mtimeMs).toBe(before.changed);
  });

  test("files are accepted by any name, also relative to the current folder", async () => {
    const path = golden("one-record");
    for (const name of ["A copy [1] of 'it'.bak", "größe\n\u202e.varve", "-dash", "%41"]) {
      copyFileSync(path, join(dirname(path), name));
      const { code, stdout, stderr } = await varve(["get", "--", name, "name"], {
        cwd: dirname(path),
      });
      expect([code, stdout.toString(), stderr], name).toStrictEqual([0, "varve", ""]);
    }
  });

  test("error messages contain no control characters of names and keys", async () => {
    const path = await database((db) => db.set("key", "value"));
    const evil = "\x1b]0;evil\x07\x9b31m\u202e\r";
    for (const args of [
      ["get", path, evil],
      ["get", path, evil, "--base64"],
      ["stat", evil],
      [evil],
      ["stat", path, `--${evil}`],
      ["list", path, "--limit", evil],
    ]) {
      const { code, stderr } = await varve(args);
      assert(code !== 0);
      assert(
        stderr.includes("evil") && /^varve: [^\p{Cc}\p{Cf}]+\n$/u.test(stderr),
        JSON.stringify(stderr),
      );
    }
  });

  test("a closed pipe ends the command quietly", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 30_000; i += 1) db.set(`key ${i}`, "value ".repeat(10));
      db.set("large", new Uint8Array(4_000_000));
    });
    for (const args of [
      ["list", path],
      ["list", path, "--values", "--json"],
      ["get", path, "large"],
    ]) {
      const { code, stdout, stderr } = await varve(args, { readAtMost: 1 });
      expect([code, stderr], args.join(" ")).toStrictEqual([0, ""]);
      assert(stdout.length > 0 && stdout.length < 1_000_000, `${stdout.length} bytes`);
    }
  });

  test("output that cannot be written exits with code 3", async () => {
    const path = await database((db) => db.set("key", "value"), { history: "keep" });
    for (const command of COMMANDS) {
      const { code, stderr } = await varve(argumentsOf(command, path), {
        stdout: openSync("/dev/full", "w"),
      });
      expect(code, command).toBe(3);
      assert(/^varve: The output cannot be written: .*\n$/.test(stderr), stderr);
    }
  });

  test("the command runs in Node 24, Deno and Bun as in Node 20", async () => {
    const path = await database((db) => {
      for (let i = 0; i < 3_000; i += 1) db.set(`key ${i}`, `value ${i}`);
    });
    const url = pathToFileURL(join(context().root, "scripts/programs.mjs")).href;
    const programs: { runtimeCommand(name: string): Promise<string[]> } = await import(url);
    const expected = [await printed("list", path, "--values"), await printed("list", "--help")];
    for (const name of ["node24", "deno", "bun"]) {
      const called = await programs.runtimeCommand(name);
      const runtime = name === "deno" ? [...called, "--allow-read"] : called;
      const run = (...args: string[]) => varve(args, { runtime });
      const listed = await run("list", path, "--values");
      expect([listed.code, listed.stderr], name).toStrictEqual([0, ""]);
      expect(listed.stdout.toString(), name).toBe(expected[0]);
      expect((await run("list", "--help")).stdout.toString(), name).toBe(expected[1]);
      expect((await run("get", path, "key 7")).stdout.toString(), name).toBe("value 7");
      expect(
        [
          (await run("get", path, "nothing")).code,
          (await run("list", path, "--nonsense")).code,
          (await run("stat", `${path}.missing`)).code,
          (await run("list", path, "--json")).code,
          (await varve(["list", path], { runtime, readAtMost: 1 })).code,
        ],
        name,
      ).toStrictEqual([1, 2, 3, 0, 0]);
    }
  });

  test("the first line lets a shell start the command", () => {
    assert(readFileSync(bin(), "utf8").startsWith("#!/usr/bin/env node\n"));
  });
});
